//! Opening a store without ever harming what is not one.

use std::fs::{self, File};
use std::io::{self, Read};
use std::mem::ManuallyDrop;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{Builder, Database};

use crate::StoreError;
use crate::overlay::Overlay;
use crate::tables::{self, FORMAT};

/// With what every file of the database begins.
const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";

/// The database's cache, bytes. Its own default of 1 GiB is more than the whole controller needs.
const CACHE: usize = 32 << 20;

/// Read and written by the owner alone: addresses, traffic and process of the controller are for no other user.
pub(crate) const PRIVATE: u32 = 0o600;

/// Takes away what a file of ours lets others do, as those of earlier versions did.
pub(crate) fn make_private(file: &File) -> io::Result<()> {
    let mut permissions = file.metadata()?.permissions();
    if permissions.mode() & 0o7777 & !PRIVATE == 0 {
        return Ok(());
    }
    permissions.set_mode(PRIVATE);
    match file.set_permissions(permissions) {
        // Another's file, which its owner lets us write: the owner has decided which users may.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        done => done,
    }
}

/// The path without symbolic links, so that one store has one lock whatever it is called.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, StoreError> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(StoreError::NotAFile { path: path.to_owned(), found: "a directory" }),
    };
    if !parent.is_dir() {
        return Err(StoreError::NoDirectory { path: path.to_owned(), parent: parent.to_owned() });
    }
    match fs::canonicalize(path) {
        Ok(full) => Ok(full),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
            let parent = fs::canonicalize(parent).map_err(|e| StoreError::io(path, e))?;
            Ok(parent.join(path.file_name().unwrap_or_default()))
        }
        Err(error) => Err(StoreError::io(path, error)),
    }
}

/// Whether something is there, and if so, whether it looks like a store at first sight.
pub(crate) fn inspect(path: &Path) -> Result<bool, StoreError> {
    let fail = |error| StoreError::io(path, error);
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(fail(error)),
    };
    if !metadata.is_file() {
        let found = if metadata.is_dir() { "a directory" } else { "a device, pipe or socket" };
        return Err(StoreError::NotAFile { path: path.to_owned(), found });
    }
    let head = head(path).map_err(fail)?;
    if head == MAGIC {
        return Ok(true);
    }
    let found = match head.as_slice() {
        [] => "it is empty".to_owned(),
        head if head.starts_with(b"SQLite") => "it is an SQLite database".to_owned(),
        head => format!("it begins with {}", head.escape_ascii()),
    };
    Err(StoreError::Foreign { path: path.to_owned(), found })
}

/// Makes a new store: complete under another name first, so that no crash leaves half of one.
pub(crate) fn create(path: &Path) -> Result<(), StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    discard_unfinished(&new)?;
    let private = File::options().read(true).write(true).create_new(true).mode(PRIVATE).open(&new);
    let file = private.map_err(|error| StoreError::io(path, error))?;
    let made = Builder::new()
        .set_cache_size(CACHE)
        .create_file(file)
        .map_err(redb::Error::from)
        .and_then(|db| tables::initialise(&db))
        .map_err(|error| StoreError::database(path, error))
        .and_then(|()| put_in_place(&new, path).map_err(|error| StoreError::io(path, error)));
    if made.is_err() {
        // It is ours, and useless; that it could not be made is the error to report.
        fs::remove_file(&new).ok();
    }
    made
}

/// The first bytes of a file.
fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// Removes what a crash in [`create`] left behind, and nothing else.
fn discard_unfinished(new: &Path) -> Result<(), StoreError> {
    match inspect(new) {
        Ok(false) => return Ok(()),
        Ok(true) => {}
        // The database writes its magic last, over zeros.
        Err(StoreError::Foreign { .. })
            if head(new).is_ok_and(|head| head.iter().all(|byte| *byte == 0)) => {}
        Err(error) => return Err(error),
    }
    fs::remove_file(new).map_err(|error| StoreError::io(new, error))
}

fn put_in_place(new: &Path, path: &Path) -> io::Result<()> {
    File::open(new)?.sync_all()?;
    fs::rename(new, path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Reads the whole of a store, repairing it in memory where a crash left it unfinished, and changes
/// nothing.
pub(crate) fn verify(path: &Path) -> Result<(), StoreError> {
    let damaged =
        |detail: &str| StoreError::Damaged { path: path.to_owned(), detail: detail.to_owned() };
    let overlay = File::open(path).and_then(Overlay::new).map_err(|e| StoreError::io(path, e))?;
    let open = || Builder::new().set_cache_size(CACHE).create_with_backend(overlay);
    // The database is written to report damage, but it reads what was written by anyone: a panic in
    // it must not end the controller.
    let db = match catch_unwind(AssertUnwindSafe(open)) {
        Ok(Ok(db)) => db,
        Ok(Err(redb::DatabaseError::UpgradeRequired(_))) => {
            return Err(damaged("its database has a format of long ago"));
        }
        Ok(Err(error)) => return Err(unreadable(path, error.into())),
        Err(_) => return Err(damaged("its header makes no sense")),
    };
    // Not dropped after a panic: that might panic again.
    let mut db = ManuallyDrop::new(db);
    let check = || -> Result<(bool, Option<u64>), redb::Error> {
        let intact = db.check_integrity()?;
        Ok((intact, tables::format(&db)?))
    };
    let checked = catch_unwind(AssertUnwindSafe(check));
    if checked.is_ok() {
        drop(ManuallyDrop::into_inner(db));
    }
    match checked {
        Err(_) => Err(damaged("its pages make no sense")),
        Ok(Err(error)) => Err(unreadable(path, error)),
        Ok(Ok((false, _))) => Err(damaged("its checksums do not agree")),
        Ok(Ok((true, None))) => {
            let found = "it is another program's redb database".to_owned();
            Err(StoreError::Foreign { path: path.to_owned(), found })
        }
        Ok(Ok((true, Some(FORMAT)))) => Ok(()),
        Ok(Ok((true, Some(found)))) if found > FORMAT => {
            Err(StoreError::Newer { path: path.to_owned(), found, known: FORMAT })
        }
        Ok(Ok((true, Some(found)))) => Err(damaged(&format!("there was never a format {found}"))),
    }
}

/// What fails in [`verify`] without the system's having refused is the file's fault.
fn unreadable(path: &Path, error: redb::Error) -> StoreError {
    match error {
        redb::Error::Io(error) if error.raw_os_error().is_some() => StoreError::io(path, error),
        error => StoreError::Damaged { path: path.to_owned(), detail: error.to_string() },
    }
}

/// Opens a store that [`verify`] found good.
pub(crate) fn open(path: &Path) -> Result<Database, StoreError> {
    Builder::new()
        .set_cache_size(CACHE)
        .open(path)
        .map_err(|error| StoreError::database(path, error.into()))
}
