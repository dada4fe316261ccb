//! How many clients the process' limit of open files leaves room for. A client whose request is passed on takes two: its
//! own connection and the backend's. Were the limit found only when a file is refused, clients would take all, and those
//! that were there before could not be served; so as many are kept back for backends as clients may take.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit};

use crate::config::ProxyConfig;

/// Of a thread's runtime: what polls, what wakes it, what tells signals, and one to be safe.
const PER_THREAD: usize = 4;
/// For commands, scrapes, look-ups, files that are read again, and connections that are turned away.
const SPARE: usize = 16;

/// What a proxy of some configuration takes of the files that its process may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// Kept back: what is open already, what so many threads and entries will open, and a health check of each backend.
    kept: usize,
    /// Connections of clients that all entries together may have, by `limits.connections`.
    pub connections: usize,
}

impl OpenFiles {
    /// Where this process has those open that the proxy's has before it starts.
    pub fn of(config: &ProxyConfig) -> Self {
        let open = fs::read_dir("/proc/self/fd").map_or(SPARE, Iterator::count);
        let threads = config.thread_count();
        let listeners = config.ingress.len() + config.egress.len() * threads;
        let checked = config.pools.iter().filter(|pool| pool.health.is_some());
        let checks: usize = checked.map(|pool| pool.backends.len()).sum();
        let ingress = config.ingress.iter().map(|entry| entry.limits.connections);
        let egress = config.egress.iter().map(|entry| entry.limits.connections);
        OpenFiles {
            kept: open + PER_THREAD * (threads + 1) + listeners + checks + SPARE,
            connections: ingress.chain(egress).sum(),
        }
    }

    /// How many connections of clients there is room for where so many files may be open.
    pub fn room(&self, limit: u64) -> usize {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        (limit.saturating_sub(self.kept) / 2).max(1)
    }

    /// How many files must be open at most for all connections that entries may have.
    pub fn needed(&self) -> u64 {
        (self.kept + 2 * self.connections) as u64
    }
}

/// Of all entries and threads together.
#[derive(Debug)]
pub(crate) struct Room {
    /// Most connections of clients.
    pub(crate) most: usize,
    open: AtomicUsize,
}

impl Room {
    /// As much as this process' limit leaves.
    pub(crate) fn new(config: &ProxyConfig) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Room { most: OpenFiles::of(config).room(limit), open: AtomicUsize::new(0) }
    }

    /// One more client; whether there is room for it. It is to [`leave`](Self::leave) either way.
    pub(crate) fn enter(&self) -> bool {
        self.open.fetch_add(1, Ordering::Relaxed) < self.most
    }

    pub(crate) fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_connections_need_has_room_for_them_and_one_file_less_has_not() {
        let files = OpenFiles { kept: 33, connections: 500 };
        assert_eq!((files.needed(), files.room(1_033), files.room(1_032)), (1_033, 500, 499));
        assert_eq!((files.room(u64::MAX), files.room(3)), ((usize::MAX - 33) / 2, 1));
    }
}
