//! What the tests of the store share.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::{Path, PathBuf};

use plimsoll_model::{Outcome, Source};
use plimsoll_store::{Batch, EventRecord, Holder, PlanRecord, Store, StoreError, StoredSample};

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

pub fn sample(n: u64) -> StoredSample {
    StoredSample {
        unix_ms: n,
        weight: 0.5,
        rate_rps: Some(n as f64),
        latency_us: 1_000.0 + n as f64,
        requests: 1,
        outcome: Outcome::Success,
        source: Source::Probe,
    }
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
    for backend in ["s1", "s2", "s3"] {
        for _ in 0..20 {
            batch.sample("shop", backend, sample(n));
        }
    }
    batch
}

/// The number of the last batch, after checking that all of it is there.
pub fn last_number(store: &Store) -> Option<u64> {
    let memory = store.load_memory("shop").unwrap()?;
    let n = u64::from_le_bytes(memory.try_into().unwrap());
    assert_eq!(store.last_plans("shop", 1).unwrap()[0].epoch, n);
    assert_eq!(store.last_events("shop", 1).unwrap()[0].event.unix_ms, n);
    for backend in ["s1", "s2", "s3"] {
        let samples = store.samples("shop", backend).unwrap();
        assert!(samples.iter().rev().take(20).all(|s| s.unix_ms == n));
    }
    Some(n)
}
