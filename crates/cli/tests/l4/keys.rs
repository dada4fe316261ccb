//! The key file is gone: for a moment, while it is replaced, or for good.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plimsoll_l4::Keys;
use rustix::process::Signal;

use crate::daemon::Daemon;
use crate::rig::privileged;
use crate::rig::service::{Service, all_stay};

/// Milliseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("later").as_millis() as u64
}

#[test]
fn connections_outlive_a_key_file_that_is_gone() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let mut daemon = Daemon::started(&service, &["s1", "s2"]);
    let mut connections = service.opened(8);
    let (file, away) = (daemon.dir.path().join("l4.key"), daemon.dir.path().join("away"));
    fs::rename(&file, &away).expect("moved");
    daemon.wait_for("l4.key: not there; the keys in force stay");
    // Once it has reloaded it has looked again.
    daemon.settle();
    assert!(!file.exists(), "no other keys are made");
    all_stay(&mut connections, "without a key file");
    assert_eq!(daemon.log().matches("the keys in force stay").count(), 1, "told once");

    // The next daemon does not know the connections' keys, and makes no others.
    daemon.signal(Signal::TERM);
    daemon.hand_over().wait().expect("ended");
    let refused = daemon.output(&["run"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("expected the keys of the connections"), "{text}");
    assert!(!file.exists(), "no other keys are made");
    all_stay(&mut connections, "without a daemon");

    fs::rename(&away, &file).expect("moved back");
    daemon.start();
    all_stay(&mut connections, "with the file back");
    connections.extend(service.opened(4));
    all_stay(&mut connections, "with new ones");
}

#[test]
fn key_file_that_others_can_read_is_refused_and_breaks_no_connection() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let mut daemon = Daemon::started(&service, &["s1", "s2"]);
    let mut connections = service.opened(8);
    let file = daemon.dir.path().join("l4.key");
    let set = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
    set(0o644);
    daemon.wait_for("others have access (mode 0644; expected 0600)");
    daemon.settle();
    all_stay(&mut connections, "by the keys in force");
    assert_eq!(daemon.log().matches("the keys in force stay").count(), 1, "told once");

    daemon.signal(Signal::TERM);
    daemon.hand_over().wait().expect("ended");
    let refused = daemon.output(&["run"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("l4.key: others have access"), "{text}");
    set(0o600);
    daemon.start();
    all_stay(&mut connections, "with its mode put right");
}

#[test]
fn a_refused_start_leaves_no_key_file() {
    if !privileged() {
        return;
    }
    let service = Service::new(1, 2, false);
    let daemon = Daemon::of(&service, &["s1"]);
    let elsewhere = daemon.dir.path().join("pins").display().to_string();
    daemon.change(&service.net.pins().display().to_string(), &elsewhere);
    let refused = daemon.output(&["run"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("expected a bpffs"), "{text}");
    assert!(!daemon.dir.path().join("l4.key").exists());
}

#[test]
fn a_clock_that_is_set_forward_rotates_no_salt_that_is_in_use() {
    if !privileged() {
        return;
    }
    let service = Service::new(1, 2, false);
    let mut daemon = Daemon::of(&service, &["s1"]);
    daemon.change("l4.key }", "l4.key, rotate: 20m }");
    // Rotated a moment ago.
    let now = now();
    let file = daemon.dir.path().join("l4.key");
    let keys = Keys::generate(now).and_then(|keys| keys.rotated(now)).expect("random");
    keys.save(&file).expect("saved");
    daemon.start();
    let mut connections = service.opened(4);

    // What a clock says that was set forward by a day, as shown by a file that is a day older.
    let older = Keys { since_unix_ms: now - 24 * 3_600_000, ..keys };
    older.save(&file).expect("saved");
    daemon.wait_for("keys read");
    daemon.settle();
    assert!(!daemon.log().contains("new salt"), "{}", daemon.log());
    assert_eq!(Keys::load(&file).expect("read"), Some(older));
    all_stay(&mut connections, "by the salt they have");
}

#[test]
fn a_change_that_was_brought_forward_is_in_force_for_whoever_reads_of_it_late() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let mut daemon = Daemon::of(&service, &["s1", "s2"]);
    daemon.change("l4.key }", "l4.key, rotate: 24h }");
    // The last change is two days ago: the next one is made now, and half a day ahead all the same.
    let file = daemon.dir.path().join("l4.key");
    let read = || Keys::load(&file).expect("read").expect("there");
    let old = Keys::generate(now() - 48 * 3_600_000).expect("random");
    old.save(&file).expect("saved");
    daemon.start();
    daemon.wait_for("new salt, to take over");
    let ready = read();
    assert!(ready.since_unix_ms > now() + 11 * 3_600_000, "{ready:?}");
    let mut connections = service.opened(8);

    // Another balancer's file, copied an hour too late, or a wall clock that was set forward.
    let late = Keys { since_unix_ms: now() - 3_600_000, ..ready };
    late.save(&file).expect("saved");
    let began = Instant::now();
    // Its own new salt was the first.
    while daemon.log().matches("keys read").count() < 2 {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", daemon.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    connections.extend(service.opened(4));
    all_stay(&mut connections, "by the new salt or by the one before");
    let refused = daemon.output(&["rotate"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("the salt before; expected another"), "it took over: {text}");
    assert_eq!(read(), late, "and is not written over");
}

#[test]
fn next_salt_is_known_long_before_it_counts_and_takes_over_by_hand() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let mut daemon = Daemon::of(&service, &["s1", "s2"]);
    daemon.change("l4.key }", "l4.key, rotate: 24h }");
    daemon.start();
    let file = daemon.dir.path().join("l4.key");
    let read = || Keys::load(&file).expect("read").expect("there");
    daemon.wait_for("new salt, to take over");
    let ready = read();
    assert!(ready.salts.iter().all(Option::is_some), "both salts are there to be copied");
    assert!(ready.since_unix_ms > now() + 23 * 3_600_000, "{ready:?}");
    let mut connections = service.opened(8);

    let rotated = daemon.output(&["rotate", "--after", "5"]);
    assert!(rotated.status.success(), "{rotated:?}");
    let forward = read();
    assert_eq!((forward.epoch, forward.salts), (ready.epoch, ready.salts), "the one that is known");
    assert!(forward.since_unix_ms <= now() + 5_000, "{forward:?}");
    while now() < forward.since_unix_ms + 1_500 {
        all_stay(&mut connections, "before and while it takes over");
    }
    connections.extend(service.opened(4));
    all_stay(&mut connections, "after");

    let refused = daemon.output(&["rotate"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("the salt before; expected another"), "{text}");
    assert_eq!(read(), forward, "nothing was written");
}
