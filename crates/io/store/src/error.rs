use std::io;
use std::path::{Path, PathBuf};

use crate::Holder;

/// Why the store could not be opened, read or written. Every message names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The directory that should hold the store does not exist.
    #[error("{}: the directory {} does not exist", path.display(), parent.display())]
    NoDirectory {
        /// The store.
        path: PathBuf,
        /// Its directory.
        parent: PathBuf,
    },
    /// Something other than a file is there.
    #[error("{}: is {found}, not a file", path.display())]
    NotAFile {
        /// The store.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// A file that Plimsoll did not write; it is left as it is.
    #[error("{}: is not a Plimsoll store ({found}); it was left as it is", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        found: String,
    },
    /// A store whose contents do not agree with their checksums; it is left as it is.
    #[error(
        "{}: is damaged ({detail}); it was left as it is; move it away to begin anew",
        path.display()
    )]
    Damaged {
        /// The store.
        path: PathBuf,
        /// What does not agree.
        detail: String,
    },
    /// A store that a newer Plimsoll wrote; it is left as it is.
    #[error("{}: has format {found}, but this Plimsoll knows formats up to {known}", path.display())]
    Newer {
        /// The store.
        path: PathBuf,
        /// The format it has.
        found: u64,
        /// The newest that is understood.
        known: u64,
    },
    /// Another controller holds the store.
    #[error("{}: is in use by {}", path.display(), holder_of(holder.as_ref()))]
    InUse {
        /// The store.
        path: PathBuf,
        /// The process that holds it, as far as it says.
        holder: Option<Holder>,
    },
    /// No room is left; what was committed before can still be read.
    #[error("{}: no room to write: {source}", path.display())]
    Full {
        /// The store.
        path: PathBuf,
        /// The system's word for it: disk, quota or file size.
        source: io::Error,
    },
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The database refused.
    #[error("{}: {source}", path.display())]
    Database {
        /// The store.
        path: PathBuf,
        /// Why.
        source: Box<redb::Error>,
    },
}

fn holder_of(holder: Option<&Holder>) -> String {
    holder.map_or_else(|| "another process".to_owned(), ToString::to_string)
}

impl StoreError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let path = path.to_owned();
        match source.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => StoreError::Full { path, source },
            _ => StoreError::Io { path, source },
        }
    }

    pub(crate) fn database(path: &Path, error: redb::Error) -> Self {
        match error {
            redb::Error::Io(source) => StoreError::io(path, source),
            redb::Error::Corrupted(detail) => StoreError::Damaged { path: path.to_owned(), detail },
            redb::Error::DatabaseAlreadyOpen => {
                StoreError::InUse { path: path.to_owned(), holder: None }
            }
            source => StoreError::Database { path: path.to_owned(), source: Box::new(source) },
        }
    }
}
