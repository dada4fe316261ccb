//! The store that survives the controller's process.

use plimsoll_control::{Controller, Memory};
use plimsoll_model::BackendId;

/// A memory is only taken when a crash follows within this time: taking one at every save would cost more than the rest
/// of the simulation.
const NEEDED_WITHIN_NS: u64 = 900_000_000_000;

/// The store: the last memory that was written.
#[derive(Default)]
pub struct Store {
    kept: Option<Memory>,
    /// When the next crash comes, and from when on nothing is written before it.
    next_crash: Vec<(u64, u64)>,
}

impl Store {
    /// Announces a crash; nothing is written from `closed` on.
    pub fn expect_crash(&mut self, at: u64, closed: u64) {
        self.next_crash.push((at, closed));
    }

    /// The crash has happened.
    pub fn crash_is_over(&mut self, now: u64) {
        self.next_crash.retain(|&(at, _)| at > now);
    }

    /// Keeps the controller's memory.
    pub fn save(&mut self, now: u64, controller: &Controller) {
        let open = self.next_crash.iter().all(|&(_, closed)| now < closed);
        let needed = self.next_crash.iter().any(|&(at, _)| now + NEEDED_WITHIN_NS >= at);
        if open && needed {
            self.kept = Some(controller.memory());
        }
    }

    /// Loses the memory.
    pub fn lose(&mut self) {
        self.kept = None;
    }

    /// The memory, serialized and parsed as in the daemon.
    pub fn read(&self) -> Option<Memory> {
        let bytes = serde_json::to_vec(self.kept.as_ref()?).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// The weights in the memory, by backend.
    pub fn weights(&self) -> Option<Vec<(BackendId, u32)>> {
        let value = serde_json::to_value(self.kept.as_ref()?).ok()?;
        let of = |b: &serde_json::Value| {
            let i: u32 = b.get("name")?.as_str()?.strip_prefix('s')?.parse().ok()?;
            Some((BackendId(i), u32::try_from(b.get("weight")?.as_u64()?).ok()?))
        };
        value.get("backends")?.as_array()?.iter().map(of).collect()
    }
}
