//! What the tests of the store share.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::{Path, PathBuf};

use plimsoll_store::{Batch, EventRecord, Holder, PlanRecord, Store, StoreError};

/// A directory that goes away with the test, and a path in it where no store is yet.
pub fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    // Without links, as the store sees it.
    let path = dir.path().canonicalize().unwrap().join("state");
    (dir, path)
}

pub fn open(path: &Path) -> Result<Store, StoreError> {
    Store::open(path, &Holder::this_process("127.0.0.1:7400"))
}

pub fn event(unix_ms: u64, reason: &str) -> EventRecord {
    let backend = Some("s1".to_owned());
    EventRecord { unix_ms, backend, kind: "failed".to_owned(), reason: reason.to_owned() }
}

pub fn plan(epoch: u64) -> PlanRecord {
    let reason = format!("plan {epoch}");
    PlanRecord { unix_ms: epoch * 1_000, epoch, reason, entries: Vec::new() }
}

/// A batch that says its number everywhere, so that a part of it would show.
pub fn numbered(n: u64) -> Batch {
    let mut batch = Batch::new();
    batch.memory("shop", n.to_le_bytes().to_vec());
    batch.plan("shop", plan(n));
    batch.event("shop", event(n, &"x".repeat(200)));
    batch
}

/// The number of the last batch, after checking that all of it is there.
pub fn last_number(store: &Store) -> Option<u64> {
    let memory = store.load_memory("shop").unwrap()?;
    let n = u64::from_le_bytes(memory.try_into().unwrap());
    assert_eq!(store.last_plans("shop", 1).unwrap()[0].epoch, n);
    assert_eq!(store.last_events("shop", 1).unwrap()[0].event.unix_ms, n);
    Some(n)
}
