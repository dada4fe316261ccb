//! What is pinned and which daemon may write it: sizes that are fixed, modes that change, layouts of another version,
//! a start that was killed, two daemons on one directory.

mod rig;

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aya::maps::{Array, Map, MapData};
use plimsoll_l4::lab::read_meta;
use plimsoll_l4::{AttachMode, Balancer, L4Error, Limits, Pending, Policy, Question, ask, status};
use rig::service::{Connection, Service, all_stay};
use rig::{keys, privileged};

fn set_meta(pins: &Path, change: impl Fn(&mut [u32; 4])) {
    let pinned = MapData::from_pin(pins.join("maps/meta")).expect("pinned");
    let mut meta: Array<_, [u32; 4]> =
        Map::from_map_data(pinned).expect("a map").try_into().expect("an array");
    let mut words = meta.get(&0, 0).expect("read");
    change(&mut words);
    meta.set(0, words, 0).expect("written");
}

#[test]
fn sizes_and_the_place_of_pins_are_fixed_while_a_daemon_runs() {
    if !privileged() {
        return;
    }
    let service = Service::new(1, 2, false);
    let config = service.config(Policy::RoundRobin, &["s1"]);
    let mut balancer = service.balance(&config);
    let mut other = config.clone();
    other.limits.fragments = 77;
    let refused = balancer.apply(&other).expect_err("other sizes").to_string();
    assert!(refused.contains("for 1024 fragmented packets"), "{refused}");
    assert!(refused.contains("77 fragmented packets"), "{refused}");
    assert!(refused.contains("start the daemon again"), "{refused}");
    other = config.clone();
    other.limits.clients = Some(5000);
    let refused = balancer.apply(&other).expect_err("other sizes").to_string();
    assert!(refused.contains("to 16384 clients, expected"), "{refused}");
    assert!(refused.contains("to 8192 clients"), "{refused}");
    let mut moved = config.clone();
    moved.pin_dir = config.pin_dir.join("elsewhere");
    let refused = balancer.apply(&moved).expect_err("another place").to_string();
    assert!(refused.starts_with("l4.pin_dir: ") && refused.contains("l4 detach"), "{refused}");
    assert!(!moved.pin_dir.exists());
    assert_eq!(balancer.config(), &config, "the one in force stays");
    assert_eq!(balancer.refresh().expect("still in charge"), Pending::default());
    service.net.leave();
}

#[test]
fn detach_removes_what_plimsoll_has_pinned_and_nothing_else() {
    if !privileged() {
        return;
    }
    let files = tempfile::tempdir().expect("a directory");
    fs::create_dir(files.path().join("maps")).expect("made");
    let refused = plimsoll_l4::detach(files.path()).expect_err("no bpffs").to_string();
    assert!(refused.contains("in a bpffs; nothing was removed"), "{refused}");
    assert!(files.path().join("maps").exists());

    let service = Service::new(1, 2, false);
    let balancer = service.balance(&service.config(Policy::RoundRobin, &["s1"]));
    let pins = balancer.config().pin_dir.clone();
    let other: Array<MapData, u32> = Array::create(1, 0).expect("made");
    other.pin(pins.join("another")).expect("pinned");
    plimsoll_l4::detach(&pins).expect("detached");
    let left: Vec<_> =
        fs::read_dir(&pins).expect("there").flatten().map(|one| one.file_name()).collect();
    assert_eq!(left, ["another"]);
    fs::remove_file(pins.join("another")).expect("removed");
    plimsoll_l4::detach(&pins).expect("detached");
    assert!(!pins.exists());
    plimsoll_l4::detach(&pins).expect("nothing to do");
    service.net.leave();
}

/// The servers push while a daemon with other sizes takes over, as all that drains goes on.
fn other_sizes_are_taken_up(v6: bool) {
    let service = Service::new(3, 2, v6);
    let mut older = service.balance(&service.config(Policy::RoundRobin, &["s1", "s2", "s3"]));
    let mut clients = service.opened(45);
    let mut config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    service.apply(&mut older, &config);
    clients.iter_mut().for_each(Connection::ask_to_rush);
    service.push.store(true, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(200));
    let pins = service.net.pins();
    let seen = || status(&pins).expect("status").vips.remove(0);
    let (before, forwarded) = (seen(), service.forwarded());

    let limits = Limits { vips: 70, backends: 500, fragments: 77, clients: Some(5000) };
    config.limits = limits;
    let mut newer = service.balance(&config);
    let meta = read_meta(&pins).expect("read").expect("there");
    assert_eq!((meta.vips, meta.stride, meta.fragments, meta.clients), (70, 512, 77, 8192));
    assert!(!pins.join("maps-next").exists());
    assert!(matches!(older.refresh(), Err(L4Error::Replaced(_))));
    std::thread::sleep(Duration::from_millis(200));
    service.push.store(false, Ordering::Relaxed);
    clients.iter_mut().for_each(|client| client.stays().expect("its own server"));
    assert_eq!(service.forwarded(), forwarded, "replies left without a cookie");

    newer.refresh().expect("in charge");
    let after = seen();
    for (was, is) in before.backends.iter().zip(&after.backends) {
        assert_eq!((&was.name, was.id), (&is.name, is.id));
        assert!(is.packets_in > was.packets_in && is.packets_out > was.packets_out, "{is:?}");
        assert_eq!(is.new_connections, was.new_connections, "{}", is.name);
        // Of two that have one place among 65,536, the first is forgotten: so it is in one run of sixty.
        let all = was.open_connections;
        assert!((all - 1..=all).contains(&is.open_connections), "{was:?}, {is:?}");
    }
    for (reason, count) in &after.fallbacks {
        assert_eq!(*count, 0, "{reason}");
    }
    assert!(service.opened(6).iter().all(|one| one.server != "s3"), "s3 drains");

    // What does not fit is refused, and all stays as it is.
    config.limits = Limits { backends: 1, ..limits };
    config.vips[0].backends.pop();
    let refused = Balancer::start_with(&config, keys()).expect_err("s3 has id 3").to_string();
    assert!(refused.contains("those that drain included: expected at most 1"), "{refused}");
    assert!(!pins.join("maps-next").exists());
    assert_eq!(newer.refresh().expect("in charge"), Pending::default());
    all_stay(&mut clients, "with the sizes of before");
    drop(newer);
    service.net.leave();
}

#[test]
fn other_sizes_are_taken_up_by_a_restart_and_connections_go_on() {
    if privileged() {
        other_sizes_are_taken_up(false);
    }
}

#[test]
fn other_sizes_are_taken_up_by_a_restart_and_ipv6_connections_go_on() {
    if privileged() {
        other_sizes_are_taken_up(true);
    }
}

/// Pins as layout 9 has them: servers' clocks in their entries.
fn as_layout_9(pins: &Path) {
    let map = |name: &str| {
        let pinned = MapData::from_pin(pins.join("maps").join(name)).expect("pinned");
        Map::from_map_data(pinned).expect("a map")
    };
    let clocks: Array<_, [u32; 2]> = map("clocks").try_into().expect("an array");
    let mut members: Array<_, [u8; 64]> = map("members").try_into().expect("an array");
    for place in 0..members.len() {
        let (mut bytes, [offset, heard]) =
            (members.get(&place, 0).expect("read"), clocks.get(&place, 0).expect("read"));
        bytes[24..28].copy_from_slice(&offset.to_le_bytes());
        bytes[28..32].copy_from_slice(&heard.to_le_bytes());
        members.set(place, bytes, 0).expect("written");
    }
    fs::remove_file(pins.join("maps/clocks")).expect("removed");
    set_meta(pins, |words| words[0] = 9);
}

#[test]
fn a_layout_of_before_is_upgraded_and_connections_go_on() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    drop(service.balance(&config));
    let mut connections = service.opened(10);
    let pins = service.net.pins();
    let layout = read_meta(&pins).expect("read").expect("there").layout;
    as_layout_9(&pins);
    // As a start leaves it that is killed on the way.
    fs::create_dir(pins.join("maps-next")).expect("made");
    drop(service.balance(&config));
    assert!(!pins.join("maps-next").exists());
    assert_eq!(read_meta(&pins).expect("read").expect("there").layout, layout);
    all_stay(&mut connections, "with the new layout");
    let seen = status(&pins).expect("status").vips.remove(0);
    for (reason, count) in &seen.fallbacks {
        assert_eq!(*count, 0, "{reason}: no clock had to be heard anew");
    }
    service.net.leave();
}

#[test]
fn the_size_of_the_client_table_stays_unless_the_configuration_sets_another() {
    if !privileged() {
        return;
    }
    let service = Service::new(1, 2, false);
    let mut config = service.config(Policy::RoundRobin, &["s1"]);
    config.limits.clients = Some(4096);
    drop(service.balance(&config));
    let mut connections = service.opened(2);
    config.limits.clients = None;
    let mut balancer = service.balance(&config);
    let room = read_meta(&service.net.pins()).expect("read").expect("there").clients;
    assert_eq!(room, 4096, "as a version before had it");
    all_stay(&mut connections, "with the next daemon");
    config.limits.clients = Some(4000);
    service.apply(&mut balancer, &config);
    service.net.leave();
}

#[test]
fn a_map_that_only_remembers_is_made_anew_where_its_pin_is_gone() {
    if !privileged() {
        return;
    }
    let service = Service::new(1, 2, false);
    let config = service.config(Policy::RoundRobin, &["s1"]);
    drop(service.balance(&config));
    let mut connections = service.opened(2);
    let pins = service.net.pins();
    let before = read_meta(&pins).expect("read").expect("there");
    for name in ["hops", "fragments", "owners"] {
        fs::remove_file(pins.join("maps").join(name)).expect("removed");
    }
    let mut balancer = service.balance(&config);
    assert_eq!(read_meta(&pins).expect("read"), Some(before));
    all_stay(&mut connections, "with the next daemon");
    service.apply(&mut balancer, &config);
    service.net.leave();
}

#[test]
fn another_mode_is_taken_up_by_a_reload_and_by_a_restart() {
    if !privileged() {
        return;
    }
    let service = Service::new(1, 2, false);
    let mut config = service.config(Policy::RoundRobin, &["s1"]);
    let at = config.interfaces.iter().position(|one| one.name == "lbc").expect("the clients' leg");
    let shown = || {
        let output = service.net.exec("lb", "ip link show lbc");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let word = text.split_whitespace().find(|word| word.starts_with("xdp"));
        word.map(str::to_owned)
    };
    let mut balancer = service.balance(&config);
    assert_eq!(shown().as_deref(), Some("xdp"));
    config.interfaces[at].mode = AttachMode::Generic;
    service.apply(&mut balancer, &config);
    assert_eq!(shown().as_deref(), Some("xdpgeneric"), "after a reload");
    drop(balancer);
    config.interfaces[at].mode = AttachMode::Native;
    let mut balancer = service.balance(&config);
    assert_eq!(shown().as_deref(), Some("xdp"), "after a restart");
    all_stay(&mut service.opened(4), "in the mode of before");

    // Taken over by a link that is pinned already, and then no longer named.
    config.interfaces.retain(|one| one.name != "lbc");
    service.apply(&mut balancer, &config);
    // The kernel lets go of a link some time after its last pin is gone.
    let gone = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        shown().is_none()
    });
    assert!(gone, "off the interface");
    service.net.leave();
}

#[test]
fn another_layout_is_refused_before_anything_is_loaded() {
    if !privileged() {
        return;
    }
    let service = Service::new(1, 2, false);
    let config = service.config(Policy::RoundRobin, &["s1"]);
    drop(service.balance(&config));
    let pins = service.net.pins();
    set_meta(&pins, |words| words[0] += 1);
    // A version without this map: a program that is loaded would make it.
    fs::remove_file(pins.join("maps/notes")).expect("removed");
    let client = "10.0.1.2:40000".parse().expect("an address");
    let question = Question { vip: service.vip, client, echo: None, timestamps: true };
    let refused = ask(&pins, question).expect_err("of another layout");
    assert!(matches!(refused, L4Error::Pinned { .. }), "{refused}");
    assert!(!pins.join("maps/notes").exists(), "nothing was made");
    service.net.leave();
}

#[test]
fn what_a_killed_start_left_is_made_anew() {
    if !privileged() {
        return;
    }
    let service = Service::new(1, 2, false);
    let mut config = service.config(Policy::RoundRobin, &["s1"]);
    drop(service.balance(&config));
    let pins = service.net.pins();
    // As far as one comes before it says what its maps are.
    fs::remove_dir_all(pins.join("links")).expect("removed");
    set_meta(&pins, |words| *words = [0; 4]);
    config.limits.backends = 500;
    drop(service.balance(&config));
    assert_eq!(read_meta(&pins).expect("read").expect("there").stride, 512);
    assert_eq!(service.opened(2).len(), 2);

    // Maps that packets go by are not thrown away.
    set_meta(&pins, |words| *words = [0; 4]);
    let refused = Balancer::start_with(&config, keys()).expect_err("in use");
    assert!(matches!(refused, L4Error::Pinned { .. }), "{refused}");
    service.net.leave();
}

#[test]
fn the_newer_daemon_takes_over_and_the_older_writes_no_more() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let config = service.config(Policy::WeightedRoundRobin, &["s1", "s2"]);
    let mut older = service.balance(&config);
    let mut connections = service.opened(6);
    // One that cannot start leaves the older one in charge.
    let mut wrong = config.clone();
    wrong.vips[0].backends[0].id = Some(200);
    Balancer::start_with(&wrong, keys()).expect_err("another id");
    assert_eq!(older.refresh().expect("in charge"), Pending::default());

    let mut newer = service.balance(&config);
    let is_over = |refused: L4Error| assert!(matches!(refused, L4Error::Replaced(_)), "{refused}");
    is_over(older.refresh().expect_err("replaced"));
    let mut without = config.clone();
    without.vips[0].backends.pop();
    is_over(older.apply(&without).expect_err("replaced"));
    let plan = [("s1".to_owned(), 0)];
    is_over(older.set_weights("shop", &plan, "test", 1).expect_err("replaced"));
    is_over(older.release("shop").expect_err("replaced"));
    is_over(older.set_keys(keys()).expect_err("replaced"));
    drop(older);
    let seen = status(&service.net.pins()).expect("status");
    assert!(seen.vips[0].backends.iter().all(|one| one.weight == 1), "{seen:?}");
    newer.set_weights("shop", &plan, "test", 2).expect("in charge");
    assert!(service.opened(4).iter().all(|one| one.server == "s2"));
    all_stay(&mut connections, "with the newer one");
    service.net.leave();
}
