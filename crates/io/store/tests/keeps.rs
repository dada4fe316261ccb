//! What goes in comes out, in order and within bounds, also after the store was closed.

mod common;

use common::{event, numbered, open, place, plan, sample};
use plimsoll_store::{Batch, Bounds, Holder, Store, StoreError};

#[test]
fn all_that_was_written_is_there_after_a_restart() {
    let (_dir, path) = place();
    let store = open(&path).unwrap();
    assert_eq!(store.load_memory("shop").unwrap(), None);
    assert!(store.samples("shop", "s1").unwrap().is_empty());
    for n in 1..=5 {
        store.write(&numbered(n)).unwrap();
    }
    store.save_memory("other", b"theirs").unwrap();
    drop(store);

    let store = open(&path).unwrap();
    assert_eq!(common::last_number(&store), Some(5));
    assert_eq!(store.load_memory("other").unwrap().unwrap(), b"theirs");
    let samples = store.samples("shop", "s2").unwrap();
    assert_eq!(samples.len(), 100);
    assert_eq!((samples[0], samples[99]), (sample(1), sample(5)));
    assert_eq!(store.last_plans("shop", 2).unwrap(), [plan(4), plan(5)]);
    assert!(store.last_plans("other", 9).unwrap().is_empty());
    assert!(store.samples("shop", "s").unwrap().is_empty(), "no prefix of a name is the name");
}

#[test]
fn every_ring_drops_its_oldest() {
    let (_dir, path) = place();
    let bounds = Bounds { samples: 50, plans: 3, events: 7 };
    let holder = Holder::this_process("");
    let store = Store::open_with(&path, &holder, bounds).unwrap();
    for n in 1..=10 {
        store.write(&numbered(n)).unwrap();
    }
    let samples = store.samples("shop", "s1").unwrap();
    assert_eq!((samples.len(), samples[0].unix_ms, samples[49].unix_ms), (50, 8, 10));
    let epochs: Vec<u64> =
        store.last_plans("shop", 99).unwrap().iter().map(|plan| plan.epoch).collect();
    assert_eq!(epochs, [8, 9, 10]);
    let numbers: Vec<u64> =
        store.last_events("shop", 99).unwrap().iter().map(|event| event.seq).collect();
    assert_eq!(numbers, [4, 5, 6, 7, 8, 9, 10]);
    // A single batch that is larger than the ring, and a ring made smaller.
    drop(store);
    let bounds = Bounds { samples: 5, ..bounds };
    let store = Store::open_with(&path, &holder, bounds).unwrap();
    store.write(&numbered(11)).unwrap();
    let samples = store.samples("shop", "s1").unwrap();
    assert_eq!((samples.len(), samples[0].unix_ms), (5, 11));
}

#[test]
fn a_ring_is_as_long_however_its_samples_came() {
    let (_dir, path) = place();
    let bounds = Bounds { samples: 10, ..Bounds::default() };
    let store = Store::open_with(&path, &Holder::this_process(""), bounds).unwrap();
    let mut written = 0;
    for size in [1, 1, 1, 7, 3, 25, 1, 9, 2, 2, 10, 4] {
        let mut batch = Batch::new();
        for _ in 0..size {
            written += 1;
            batch.sample("shop", "s1", sample(written));
        }
        store.write(&batch).unwrap();
        let kept: Vec<u64> =
            store.samples("shop", "s1").unwrap().iter().map(|sample| sample.unix_ms).collect();
        let expected: Vec<u64> = (written.saturating_sub(10) + 1..=written).collect();
        assert_eq!(kept, expected);
    }
}

#[test]
fn a_clock_that_steps_back_does_not_reorder_events() {
    let (_dir, path) = place();
    let store = open(&path).unwrap();
    for (unix_ms, reason) in [(5_000, "first"), (1_000, "second"), (9_000, "third")] {
        let mut batch = Batch::new();
        batch.event("shop", event(unix_ms, reason));
        store.write(&batch).unwrap();
    }
    let reasons = |events: Vec<plimsoll_store::StoredEvent>| -> Vec<(u64, String)> {
        events.into_iter().map(|stored| (stored.seq, stored.event.reason)).collect()
    };
    let all = [(1, "first".to_owned()), (2, "second".to_owned()), (3, "third".to_owned())];
    assert_eq!(reasons(store.last_events("shop", 9).unwrap()), all);
    assert_eq!(reasons(store.events_after("shop", 0, 9).unwrap()), all);
    assert_eq!(reasons(store.events_after("shop", 1, 1).unwrap()), all[1..2]);
    assert_eq!(reasons(store.events_after("shop", 3, 9).unwrap()), []);
    assert_eq!(reasons(store.events_after("shop", u64::MAX, 9).unwrap()), []);
}

#[test]
fn identities_last_and_are_never_given_twice() {
    let (_dir, path) = place();
    let store = open(&path).unwrap();
    let first = store.backend_ids("shop", &["s1", "s2"]).unwrap();
    assert_ne!(first[0], first[1]);
    let other = store.backend_ids("other", &["s1"]).unwrap();
    assert!(!first.contains(&other[0]));
    store.write(&numbered(1)).unwrap();
    store.forget_backend("shop", "s2").unwrap();
    assert!(store.samples("shop", "s2").unwrap().is_empty());
    assert_eq!(store.samples("shop", "s1").unwrap().len(), 20);
    drop(store);

    let store = open(&path).unwrap();
    let again = store.backend_ids("shop", &["s3", "s2", "s1"]).unwrap();
    assert_eq!(again[2], first[0]);
    assert!(!first.contains(&again[1]) && !other.contains(&again[1]), "s2 joined anew");
    assert!(!first.contains(&again[0]) && again[0] != again[1]);
}

#[test]
fn a_store_needs_a_directory() {
    let (_dir, path) = place();
    let nowhere = path.join("none").join("state");
    assert!(matches!(open(&nowhere), Err(StoreError::NoDirectory { .. })));
    let error = open(&nowhere).unwrap_err().to_string();
    assert!(
        error.contains("none/state: the directory") && error.ends_with("does not exist"),
        "{error}"
    );
    assert!(!path.exists());
}
