//! Whether a bpffs is the machine's. What is pinned in one that is mounted in a mount namespace of its own is gone when
//! the last process of that is: in a container, under `unshare --mount`, or under `ip netns exec`, which hides the
//! machine's.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The first PID namespace, by its number (`PROC_PID_INIT_INO`).
const FIRST_PIDS: u64 = 0xefff_fffc;
/// The first mount namespace has one of the first numbers, or one below them (since Linux 6.18).
const LAST_OF_FIRST_MOUNTS: u64 = 0xf000_0001;

/// What to do about it.
pub(crate) const ADVICE: &str = "expected the machine's /sys/fs/bpf: mount it into the container (-v /sys/fs/bpf:/sys/fs/bpf), \
     or enter a network namespace by `nsenter --net`, not `ip netns exec`";

/// Whose a mounted bpffs is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The machine's.
    Machine,
    /// That of this process's mount namespace alone.
    Namespace,
    /// This process has mounts of its own, and the machine's cannot be looked at.
    Unknown,
}

/// Whether this process sees other mounts than the machine's first one.
pub(crate) fn are_own() -> bool {
    let number = |path: &str| {
        let link = fs::read_link(path).ok()?.to_string_lossy().into_owned();
        link.split_once('[')?.1.strip_suffix(']')?.parse::<u64>().ok()
    };
    if number("/proc/self/ns/pid").is_some_and(|own| own != FIRST_PIDS) {
        return true;
    }
    let own = number("/proc/self/ns/mnt");
    match number("/proc/1/ns/mnt") {
        Some(first) => own != Some(first),
        // Only a process that may trace the first one can know.
        None => own.is_some_and(|own| own > LAST_OF_FIRST_MOUNTS),
    }
}

/// Whose a mounted bpffs is: each mount of one is a file system of its own.
pub(crate) fn owner(bpffs: &Path) -> Owner {
    if !are_own() {
        return Owner::Machine;
    }
    let device = |path: &Path| fs::metadata(path).ok().map(|meta| meta.dev());
    let there = Path::new("/proc/1/root").join(bpffs.strip_prefix("/").unwrap_or(bpffs));
    // A container's first process is its own, and sees what it sees.
    let is_first = fs::read_link("/proc/self/ns/pid")
        .is_ok_and(|link| link.to_string_lossy().contains(&FIRST_PIDS.to_string()));
    match device(&there).filter(|_| is_first) {
        Some(there) if Some(there) == device(bpffs) => Owner::Machine,
        Some(_) => Owner::Namespace,
        None => Owner::Unknown,
    }
}
