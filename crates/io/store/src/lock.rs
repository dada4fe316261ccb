//! One controller per store: an advisory lock on a file beside it, which the kernel releases when its
//! holder dies, however it dies.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::open::{PRIVATE, make_private};

/// The process that holds a store, in its own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process id on `host`.
    pub pid: u32,
    /// The host's name.
    pub host: String,
    /// Since when, RFC 3339 in UTC.
    pub started: String,
    /// Where its API listens, `host:port`; empty when it has none.
    pub api: String,
}

impl Holder {
    /// This process, from now on.
    pub fn this_process(api: &str) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let started = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second());
        Holder {
            pid: std::process::id(),
            host: host.trim().to_owned(),
            started: started.map(|time| time.to_string()).unwrap_or_default(),
            api: api.to_owned(),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {} since {}", self.pid, self.host, self.started)?;
        if self.api.is_empty() { Ok(()) } else { write!(f, " (its API: {})", self.api) }
    }
}

/// Held for as long as it lives.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would not do: a process that is just being started from another thread still
        // has a copy of the file. If it fails, closing is what is left.
        self.file.unlock().ok();
    }
}

/// The lock's file: the store's name and `.lock`.
pub(crate) fn lock_path(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

impl Lock {
    /// Takes the lock of a store. The file stays when the lock is released: to remove it would let two
    /// processes hold locks on two files of the same name.
    pub(crate) fn take(store: &Path, holder: &Holder) -> Result<Lock, StoreError> {
        let path = lock_path(store);
        let fail = |source| StoreError::io(&path, source);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PRIVATE)
            .open(&path)
            .map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = read(&mut file).and_then(|text| serde_json::from_str(&text).ok());
                return Err(StoreError::InUse { path: store.to_owned(), holder });
            }
            Err(TryLockError::Error(source)) => return Err(fail(source)),
        }
        if !read(&mut file).is_some_and(|text| is_ours(&text)) {
            let found = "it stands where the lock of a store would be".to_owned();
            return Err(StoreError::Foreign { path, found });
        }
        make_private(&file).map_err(fail)?;
        // Over the old text first and shortened after, so that a reader never finds it empty.
        let text = serde_json::to_string(holder).map_err(|error| fail(error.into()))?;
        file.seek(SeekFrom::Start(0)).map_err(fail)?;
        let written =
            file.write_all(text.as_bytes()).and_then(|()| file.set_len(text.len() as u64));
        match written.map_err(fail) {
            // The lock holds, and only its holder's name is missing: a full disk is no reason to stop.
            Ok(()) | Err(StoreError::Full { .. }) => Ok(Lock { file }),
            Err(error) => Err(error),
        }
    }
}

fn read(file: &mut File) -> Option<String> {
    const LONGEST: u64 = 4096;
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Empty when new; zeros when the power failed before the text reached the disk.
fn is_ours(text: &str) -> bool {
    let text = text.trim_matches('\0');
    text.is_empty() || text.starts_with("{\"pid\":")
}
