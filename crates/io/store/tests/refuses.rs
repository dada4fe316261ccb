//! What is not a good store of this format is an error that names the file, and is left as it is.

mod common;

use std::fs;
use std::path::Path;

use common::{event, last_number, numbered, open, place};
use plimsoll_store::StoreError;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use redb::{Database, TableDefinition};

const META: TableDefinition<&str, u64> = TableDefinition::new("plimsoll_meta");

/// Opens the file, which must fail and leave every byte in place; returns the message.
fn refused(path: &Path) -> String {
    let before = fs::read(path).unwrap();
    let error = open(path).unwrap_err();
    assert!(fs::read(path).unwrap() == before, "{error}: the file was changed");
    let text = error.to_string();
    assert!(text.starts_with(path.to_str().unwrap()), "{text}: the file is not named");
    text
}

#[test]
fn foreign_files_are_left_alone() {
    let (_dir, path) = place();
    for (bytes, part) in [
        (&b""[..], "it is empty"),
        (b"a text\n", "it begins with a text\\n"),
        (b"SQLite format 3\0and more", "an SQLite database"),
        (b"redb", "it begins with redb"),
        (&[0; 100_000], "it begins with \\x00"),
    ] {
        fs::write(&path, bytes).unwrap();
        let text = refused(&path);
        assert!(text.contains("is not a Plimsoll store") && text.contains(part), "{text}");
        let beside: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(beside.len(), 1, "nothing was put beside it");
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(open(&path), Err(StoreError::NotAFile { found: "a directory", .. })));
    assert!(matches!(open(Path::new("/dev/null")), Err(StoreError::NotAFile { .. })));
    assert!(matches!(open(Path::new("/")), Err(StoreError::NotAFile { .. })));
}

#[test]
fn another_programs_database_is_foreign_and_a_newer_format_is_named() {
    let (_dir, path) = place();
    let db = Database::create(&path).unwrap();
    let transaction = db.begin_write().unwrap();
    let theirs: TableDefinition<u64, u64> = TableDefinition::new("theirs");
    transaction.open_table(theirs).unwrap().insert(1, 2).unwrap();
    transaction.commit().unwrap();
    drop(db);
    assert!(refused(&path).contains("another program's redb database"));

    fs::remove_file(&path).unwrap();
    drop(open(&path).unwrap());
    for (format, part) in
        [(2, "has format 2, but this Plimsoll knows formats up to 1"), (0, "damaged")]
    {
        let db = Database::open(&path).unwrap();
        let transaction = db.begin_write().unwrap();
        transaction.open_table(META).unwrap().insert("format", format).unwrap();
        transaction.commit().unwrap();
        drop(db);
        let text = refused(&path);
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_file_that_stands_where_the_lock_or_a_new_store_would_be_is_left_alone() {
    let (_dir, path) = place();
    for suffix in ["state.lock", "state.new"] {
        let other = path.with_file_name(suffix);
        fs::write(&other, "dear diary").unwrap();
        assert!(matches!(open(&path), Err(StoreError::Foreign { .. })), "{suffix}");
        assert_eq!(fs::read(&other).unwrap(), b"dear diary");
        assert!(!path.exists());
        fs::remove_file(&other).unwrap();
    }
    // What a crash leaves there is no obstacle.
    for unfinished in [&b""[..], &[0; 4_096], b"redb\x1A\x0A\xA9\x0D\x0A and half a header"] {
        fs::write(path.with_file_name("state.new"), unfinished).unwrap();
        fs::write(path.with_file_name("state.lock"), [0; 80]).unwrap();
        drop(open(&path).unwrap());
        assert!(!path.with_file_name("state.new").exists());
        fs::remove_file(&path).unwrap();
    }
}

/// A store with some history, closed.
fn good_store(path: &Path) -> Vec<u8> {
    let store = open(path).unwrap();
    for n in 1..=30 {
        let mut batch = numbered(n);
        // So that most of the file holds something.
        (0..60).for_each(|_| batch.event("shop", event(n, &"x".repeat(200))));
        store.write(&batch).unwrap();
    }
    drop(store);
    fs::read(path).unwrap()
}

#[test]
fn truncated_stores_are_damaged_and_left_alone() {
    let (_dir, path) = place();
    let good = good_store(&path);
    for len in
        [9, 10, 63, 320, 4_095, 4_096, 8_192, good.len() / 2, good.len() - 4_096, good.len() - 1]
    {
        fs::write(&path, &good[..len]).unwrap();
        let text = refused(&path);
        assert!(text.contains("damaged"), "{len}: {text}");
    }
    fs::write(&path, &good).unwrap();
    assert_eq!(last_number(&open(&path).unwrap()), Some(30));
}

#[test]
fn a_corrupted_store_is_either_refused_untouched_or_whole() {
    let (_dir, path) = place();
    let good = good_store(&path);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let (mut refusals, mut opened) = (0, 0);
    for round in 0..300 {
        let mut bytes = good.clone();
        for _ in 0..random.random_range(1..=3) {
            // Half of them in the header and the first pages, where most is decided.
            let bound = if random.random_bool(0.5) { 8_192 } else { bytes.len() };
            let at = random.random_range(9..bound);
            let end = (at + random.random_range(1..=64)).min(bytes.len());
            bytes[at..end].fill(random.random());
        }
        fs::write(&path, &bytes).unwrap();
        match open(&path) {
            Ok(store) => {
                opened += 1;
                // The damage is where nothing is kept.
                assert_eq!(last_number(&store), Some(30), "round {round}");
                store.write(&numbered(31)).unwrap();
                assert_eq!(last_number(&store), Some(31), "round {round}");
            }
            Err(error) => {
                refusals += 1;
                assert!(fs::read(&path).unwrap() == bytes, "round {round}: changed: {error}");
            }
        }
    }
    assert!(refusals > 30 && opened > 30, "{refusals} refused, {opened} opened");
}
