//! Whether a bpffs is the machine's. What is pinned in one that is mounted in a mount namespace of its own is gone when
//! the last process of that is: in a container, under `unshare --mount`, or under `ip netns exec`, which hides the
//! machine's.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The first PID namespace, by its number (`PROC_PID_INIT_INO`).
const FIRST_PIDS: &str = "pid:[4026531836]";

/// Whose mounts a process sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mounts {
    /// The machine's, or that is not told.
    Machine,
    /// Its own, where the machine's can be compared.
    Own,
    /// A container's: its first process is not the machine's.
    Container,
}

/// Whose mounts this process sees.
pub(crate) fn mounts() -> Mounts {
    let link = |path: &str| fs::read_link(path).ok().map(|to| to.to_string_lossy().into_owned());
    if link("/proc/self/ns/pid").is_some_and(|own| own != FIRST_PIDS) {
        return Mounts::Container;
    }
    // Only whoever may trace the first process is told.
    let first = link("/proc/1/ns/mnt");
    match first.is_some() && first != link("/proc/self/ns/mnt") {
        true => Mounts::Own,
        false => Mounts::Machine,
    }
}

/// Whether a mounted bpffs is another one than the machine has there: each mount of one is a file system of its own.
pub(crate) fn is_own(bpffs: &Path) -> bool {
    if mounts() != Mounts::Own {
        return false;
    }
    let device = |path: &Path| fs::metadata(path).ok().map(|meta| meta.dev());
    let there = Path::new("/proc/1/root").join(bpffs.strip_prefix("/").unwrap_or(bpffs));
    device(bpffs) != device(&there)
}

/// What to do about it.
pub(crate) const ADVICE: &str = "expected the machine's /sys/fs/bpf: mount it into the container (-v /sys/fs/bpf:/sys/fs/bpf), \
     or enter a network namespace by `nsenter --net`, not `ip netns exec`";
