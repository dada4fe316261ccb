//! What was learned, and which process holds it, is only for the user that the controller runs as.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::{last_number, numbered, open, place};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_new_store_and_its_lock_are_not_readable_by_others() {
    let (_dir, path) = place();
    let store = open(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&path.with_extension("lock")), 0o600);
    drop(store);
}

#[test]
fn files_of_an_earlier_version_are_closed_to_others_when_they_are_opened() {
    let (_dir, path) = place();
    let store = open(&path).unwrap();
    store.write(&numbered(7)).unwrap();
    drop(store);
    let lock = path.with_extension("lock");
    set_mode(&path, 0o644);
    set_mode(&lock, 0o666);
    let store = open(&path).unwrap();
    assert_eq!((mode(&path), mode(&lock)), (0o600, 0o600));
    assert_eq!(last_number(&store), Some(7));
}

#[test]
fn permissions_of_files_that_are_not_ours_stay() {
    let (_dir, path) = place();
    let lock = path.with_extension("lock");
    fs::write(&lock, "dear diary").unwrap();
    set_mode(&lock, 0o644);
    open(&path).unwrap_err();
    assert_eq!(mode(&lock), 0o644);
    fs::remove_file(&lock).unwrap();
    // It begins as a store does and is none.
    fs::write(&path, b"redb\x1A\x0A\xA9\x0D\x0Aand then something else").unwrap();
    set_mode(&path, 0o644);
    open(&path).unwrap_err();
    assert_eq!(mode(&path), 0o644);
}
