//! The weights in force: set by one that steers, taken up by each thread at its next upkeep, for which it is woken.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Weights of the backends of one pool of one entry.
#[derive(Debug)]
pub(crate) struct Weights {
    /// Counts changes: who has seen this one has seen the weights, or will be woken again.
    generation: AtomicU64,
    by_backend: Box<[AtomicU32]>,
}

impl Weights {
    pub(crate) fn new(weights: &[u32]) -> Self {
        let by_backend = weights.iter().map(|weight| AtomicU32::new(*weight)).collect();
        Weights { generation: AtomicU64::new(0), by_backend }
    }

    /// One of them.
    pub(crate) fn get(&self, backend: usize) -> u32 {
        self.by_backend[backend].load(Ordering::Relaxed)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<u32> {
        (0..self.by_backend.len()).map(|backend| self.get(backend)).collect()
    }

    /// Sets one. The threads are to be woken.
    pub(crate) fn set(&self, backend: usize, weight: u32) {
        self.by_backend[backend].store(weight, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Which change was the last.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}
