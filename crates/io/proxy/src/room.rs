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

/// Of all entries and threads together.
#[derive(Debug)]
pub(crate) struct Room {
    /// Most connections of clients.
    pub(crate) most: usize,
    open: AtomicUsize,
}

impl Room {
    /// What is left beside what is open, what so many threads will open, and a health check of each backend.
    pub(crate) fn new(config: &ProxyConfig, threads: usize) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let open = fs::read_dir("/proc/self/fd").map_or(SPARE, Iterator::count);
        let checked = config.pools.iter().filter(|pool| pool.health.is_some());
        let checks: usize = checked.map(|pool| pool.backends.len()).sum();
        let kept = open + PER_THREAD * (threads + 1) + checks + SPARE;
        Room { most: (limit.saturating_sub(kept) / 2).max(1), open: AtomicUsize::new(0) }
    }

    /// One more client; whether there is room for it. It is to [`leave`](Self::leave) either way.
    pub(crate) fn enter(&self) -> bool {
        self.open.fetch_add(1, Ordering::Relaxed) < self.most
    }

    pub(crate) fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
