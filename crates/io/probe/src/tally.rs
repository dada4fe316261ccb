use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use plimsoll_model::BackendId;

use crate::LocalFault;

/// A machine out of descriptors faults with every probe: one line in so long is enough.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Counts what did not become an event.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    skipped: AtomicU64,
    faults: AtomicU64,
    warned: Mutex<Option<Instant>>,
}

impl Tally {
    /// A probe or round was due, but as many as allowed were under way.
    pub fn skip(&self, backend: BackendId) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
        tracing::trace!(%backend, "probe skipped: as many as allowed are under way");
    }

    /// This machine could not probe.
    pub fn fault(&self, backend: BackendId, fault: &LocalFault) {
        let faults = self.faults.fetch_add(1, Ordering::Relaxed) + 1;
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            *warned = Some(Instant::now());
            tracing::warn!(%backend, faults, "{fault}");
        }
    }

    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }
}
