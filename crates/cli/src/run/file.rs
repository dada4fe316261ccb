//! Whether the configuration file has changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// What changes when a file is written or replaced: device, inode, length, seconds and nanoseconds of
/// the last change. None when there is no file.
type Mark = Option<(u64, u64, u64, i64, i64)>;

/// Looks at a file once in a while. It follows symbolic links, so that a link which is pointed
/// elsewhere (as in a mounted Kubernetes ConfigMap) is a change too.
#[derive(Debug)]
pub struct Follow {
    path: PathBuf,
    read: Mark,
    last: Mark,
}

impl Follow {
    /// Follows a file that has just been read.
    pub fn new(path: PathBuf) -> Self {
        let mark = mark(&path);
        Follow { path, read: mark, last: mark }
    }

    /// The file has just been read for another reason.
    pub fn was_read(&mut self) {
        self.read = mark(&self.path);
        self.last = self.read;
    }

    /// Whether the file has changed since it was last said to have, and has not since the last look:
    /// what is still being written is left alone. A file that is missing has not changed: it is
    /// probably being replaced.
    pub fn has_changed(&mut self) -> bool {
        let now = mark(&self.path);
        let settled = now.is_some() && now == self.last;
        self.last = now;
        let changed = settled && now != self.read;
        if changed {
            self.read = now;
        }
        changed
    }
}

fn mark(path: &PathBuf) -> Mark {
    let data = fs::metadata(path).ok()?;
    Some((data.dev(), data.ino(), data.len(), data.mtime(), data.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_change_is_reported_once_after_it_has_settled() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f.yaml");
        let write = |text: &str| fs::write(&path, text).expect("written");
        write("a");
        let mut follow = Follow::new(path.clone());
        assert!(!follow.has_changed());
        write("ab");
        assert!(!follow.has_changed(), "it may still be written");
        write("abc");
        assert!(!follow.has_changed(), "it was");
        assert!(follow.has_changed());
        assert!(!follow.has_changed());
        fs::remove_file(&path).expect("removed");
        assert!(!follow.has_changed() && !follow.has_changed(), "missing is not changed");
        write("abcd");
        assert!(!follow.has_changed());
        assert!(follow.has_changed());
        write("abcde");
        follow.was_read();
        assert!(!follow.has_changed() && !follow.has_changed());
    }
}
