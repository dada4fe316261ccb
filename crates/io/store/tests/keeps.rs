//! What goes in comes out, in order and within bounds, also after the store was closed.

mod common;

use common::{event, numbered, open, place, plan};
use plimsoll_store::{Batch, Bounds, Holder, Store, StoreError};

#[test]
fn all_that_was_written_is_there_after_a_restart() {
    let (_dir, path) = place();
    let store = open(&path).unwrap();
    assert_eq!(store.load_memory("shop").unwrap(), None);
    for n in 1..=5 {
        store.write(&numbered(n)).unwrap();
    }
    store.save_memory("other", b"theirs").unwrap();
    drop(store);

    let store = open(&path).unwrap();
    assert_eq!(common::last_number(&store), Some(5));
    assert_eq!(store.load_memory("other").unwrap().unwrap(), b"theirs");
    assert_eq!(store.last_plans("shop", 2).unwrap(), [plan(4), plan(5)]);
    assert!(store.last_plans("other", 9).unwrap().is_empty());
    assert!(store.last_plans("sho", 9).unwrap().is_empty(), "no prefix of a name is the name");
}

#[test]
fn every_ring_drops_its_oldest() {
    let (_dir, path) = place();
    let bounds = Bounds { plans: 3, events: 7 };
    let holder = Holder::this_process("");
    let store = Store::open_with(&path, &holder, bounds).unwrap();
    for n in 1..=10 {
        store.write(&numbered(n)).unwrap();
    }
    let epochs: Vec<u64> =
        store.last_plans("shop", 99).unwrap().iter().map(|plan| plan.epoch).collect();
    assert_eq!(epochs, [8, 9, 10]);
    let numbers: Vec<u64> =
        store.last_events("shop", 99).unwrap().iter().map(|event| event.seq).collect();
    assert_eq!(numbers, [4, 5, 6, 7, 8, 9, 10]);
    // A ring made smaller, and a single batch that is larger than it.
    drop(store);
    let store = Store::open_with(&path, &holder, Bounds { events: 2, ..bounds }).unwrap();
    let mut batch = Batch::new();
    (11..=14).for_each(|n| batch.event("shop", event(n, "more")));
    store.write(&batch).unwrap();
    let kept = store.last_events("shop", 99).unwrap();
    assert_eq!(kept.iter().map(|event| event.seq).collect::<Vec<_>>(), [13, 14]);
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
    drop(store);

    let store = open(&path).unwrap();
    let again = store.backend_ids("shop", &["s3", "s2", "s1"]).unwrap();
    assert_eq!((again[2], again[1]), (first[0], first[1]));
    assert!(!first.contains(&again[0]) && !other.contains(&again[0]), "s3 is new");
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

/// Earlier versions kept samples, which nothing read.
#[test]
fn samples_of_an_earlier_version_go_and_all_else_stays() {
    const SAMPLES: redb::TableDefinition<(&str, &str, u64), &[u8]> =
        redb::TableDefinition::new("samples");
    let (_dir, path) = place();
    let store = open(&path).unwrap();
    store.write(&numbered(1)).unwrap();
    drop(store);
    let old = redb::Database::open(&path).unwrap();
    let transaction = old.begin_write().unwrap();
    transaction.open_table(SAMPLES).unwrap().insert(("shop", "s1", 1), &[7_u8; 38][..]).unwrap();
    transaction.commit().unwrap();
    drop(old);

    drop(open(&path).unwrap());
    assert_eq!(common::last_number(&open(&path).unwrap()), Some(1));
    let now = redb::Database::open(&path).unwrap();
    let tables = redb::ReadableDatabase::begin_read(&now).unwrap();
    assert!(matches!(tables.open_table(SAMPLES), Err(redb::TableError::TableDoesNotExist(_))));
}
