//! What goes wrong around a balancer: pinned maps of an older version, an interface that vanishes and
//! comes back, a server that cannot be found.

mod rig;

use aya::maps::{Array, Map, MapData};
use plimsoll_l4::{BackendState, Balancer, L4Error, MemberState, Policy, Vip, status};
use rig::service::{PATIENCE, Service, all_stay};
use rig::{keys, privileged};

#[test]
fn pinned_maps_of_an_older_version_are_refused_and_go_on_balancing() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    drop(service.balance(&config));
    let mut connections = service.opened(6);
    let pinned = MapData::from_pin(service.net.pins().join("maps/meta")).expect("pinned");
    let mut meta: Array<_, [u32; 4]> =
        Map::from_map_data(pinned).expect("a map").try_into().expect("an array");
    let ours = meta.get(&0, 0).expect("read");
    // The one before is understood: see pins.rs.
    let older = ours[0] - 2;
    meta.set(0, [older, ours[1], ours[2], ours[3]], 0).expect("written");

    let refused = Balancer::start_with(&config, keys()).expect_err("of another layout");
    let (old, new) = (format!("have layout {older}"), format!("expected layout {}", ours[0]));
    let text = refused.to_string();
    assert!(text.contains(&old) && text.contains(&new), "{text}");
    assert!(text.contains("plimsoll l4 detach"), "{text}");
    let unread = status(&service.net.pins()).expect_err("of another layout");
    assert!(matches!(unread, L4Error::Pinned { .. }), "{unread}");
    all_stay(&mut connections, "on the old program");

    // Other version bits are refused in the same way; the right ones are not.
    meta.set(0, ours, 0).expect("written");
    let mut other = config.clone();
    other.cookie.layout = plimsoll_cookie::Layout::new(6).expect("a layout");
    other.limits.backends = 200;
    let refused = Balancer::start_with(&other, keys()).expect_err("with other cookies");
    assert!(refused.to_string().contains("6 version bits"), "{refused}");
    let balancer = service.balance(&config);
    all_stay(&mut connections, "on the new program");
    drop(balancer);
    service.net.leave();
}

#[test]
fn what_does_not_fit_changes_nothing() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    let mut balancer = service.balance(&config);
    let mut connections = service.opened(8);
    let seen = || {
        let vips = status(&service.net.pins()).expect("status").vips;
        let servers = vips.iter().flat_map(|vip| &vip.backends);
        servers.map(|one| (one.name.clone(), one.state, one.weight)).collect::<Vec<_>>()
    };
    let before = seen();
    // No place in the table of VIPs: two have one address.
    let mut full = config.clone();
    full.vips[0].backends[0].state = BackendState::Down;
    full.vips.push(Vip { name: "twin".to_owned(), ..full.vips[0].clone() });
    let refused = balancer.apply(&full).expect_err("does not fit");
    assert!(matches!(refused, L4Error::Full { .. }), "{refused}");
    assert_eq!(seen(), before);
    all_stay(&mut connections, "after a change that did not fit");
    service.apply(&mut balancer, &config);
    connections.extend(service.opened(4));
    all_stay(&mut connections, "after one that fits");
    drop(balancer);
    service.net.leave();
}

#[test]
fn an_interface_that_vanishes_is_pending_and_taken_up_when_it_returns() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    let mut balancer = service.balance(&config);
    let mut connections = service.opened(12);
    service.net.exec("lb", "ip link del lb2");
    let pending = balancer.refresh().expect("goes on").0;
    assert!(pending.iter().any(|what| what.starts_with("interface lb2: not there")), "{pending:?}");
    let (mut lost, mut kept): (Vec<_>, Vec<_>) =
        connections.drain(..).partition(|one| one.server == "s2");
    all_stay(&mut kept, "without the other's interface");
    kept.extend(service.opened(12));
    assert!(kept.iter().all(|one| one.server == "s1"), "nobody is sent where no interface leads");
    let vip = || status(&service.net.pins()).expect("status").vips.remove(0);
    assert_eq!(vip().backends[1].state, MemberState::Lost);
    lost.iter_mut().for_each(|one| one.say().expect("says"));
    let began = std::time::Instant::now();
    while vip().fallbacks["no_port"] < lost.len() as u64 {
        assert!(began.elapsed() < PATIENCE, "what is dropped is counted");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }

    service.net.cable(
        ("lb", "lb2", "02:00:00:00:03:01", "10.0.3.1/24"),
        ("s2", "e0", "02:00:00:00:03:02", "10.0.3.2/24"),
    );
    service.net.exec("s2", "ip route add default via 10.0.3.1");
    service.net.exec("s2", "ethtool -K e0 tx off gro on");
    let began = std::time::Instant::now();
    while !balancer.refresh().expect("goes on").0.is_empty() {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    all_stay(&mut lost, "by the new interface");
    all_stay(&mut service.opened(6), "new ones");
    drop(balancer);
    service.net.leave();
}

#[test]
fn a_server_without_a_mac_address_is_reported_and_gets_nothing_until_it_is_found() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    // Down: no answer to ARP.
    service.net.exec("s2", "ip link set e0 down");
    service.net.enter("lb");
    let config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    let (mut balancer, first) = Balancer::start_with(&config, keys()).expect("starts");
    assert!(first.0.iter().any(|what| what.starts_with("shop/s2: ")), "{first:?}");
    let began = std::time::Instant::now();
    while balancer.refresh().expect("goes on").0.len() > 1 {
        assert!(began.elapsed() < PATIENCE, "the other one is found");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(service.opened(8).iter().all(|one| one.server == "s1"));
    service.net.exec("s2", "ip link set e0 up");
    service.net.exec("s2", "ip route replace default via 10.0.3.1");
    service.apply(&mut balancer, &config);
    assert!(service.opened(8).iter().any(|one| one.server == "s2"));
    drop(balancer);
    service.net.leave();
}

#[test]
fn the_connections_of_the_last_server_are_reset_when_it_is_down() {
    if !privileged() {
        return;
    }
    for v6 in [false, true] {
        let service = Service::new(1, 2, v6);
        let mut config = service.config(Policy::RoundRobin, &["s1"]);
        let mut balancer = service.balance(&config);
        let mut connections = service.opened(4);
        config.vips[0].backends[0].state = BackendState::Down;
        service.apply(&mut balancer, &config);
        for connection in &mut connections {
            let ended = connection.ask().expect_err("its server is down");
            assert!(ended.contains("reset"), "{ended}");
        }
        let fallbacks = &status(&service.net.pins()).expect("status").vips[0].fallbacks;
        assert!(fallbacks["stale_cookie"] >= 4, "{fallbacks:?}");
        drop(balancer);
        service.net.leave();
    }
}

#[test]
fn no_connection_is_sent_through_an_interface_that_another_program_holds() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    service.net.enter("lb");
    let config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    let mut other = config.clone();
    other.pin_dir = service.net.pins().join("other");
    other.interfaces.retain(|interface| interface.name == "lb2");
    other.vips =
        vec![Vip { address: "10.0.9.8:80".parse().expect("an address"), ..vip_of(&config) }];
    let (holder, _) = Balancer::start_with(&other, keys()).expect("starts");

    let (mut balancer, mut pending) = Balancer::start_with(&config, keys()).expect("starts");
    let began = std::time::Instant::now();
    let is_known = |pending: &[String]| pending.iter().all(|what| !what.starts_with("shop/s1"));
    while !is_known(&pending.0) {
        assert!(began.elapsed() < PATIENCE, "{pending:?}");
        std::thread::sleep(std::time::Duration::from_millis(50));
        pending = balancer.refresh().expect("goes on");
    }
    for what in ["lb2: ", "shop/s2: "] {
        assert!(pending.0.iter().any(|told| told.contains(what)), "{what}{pending:?}");
    }
    // Replies by that interface would leave without cookies, and the next packets go anywhere.
    let mut connections = service.opened(8);
    assert!(connections.iter().all(|one| one.server == "s1"));
    all_stay(&mut connections, "while another holds the interface");

    drop(holder);
    plimsoll_l4::detach(&other.pin_dir).expect("detaches");
    let began = std::time::Instant::now();
    while !balancer.refresh().expect("goes on").0.is_empty() {
        assert!(began.elapsed() < PATIENCE, "it is free now");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    connections.extend(service.opened(8));
    assert!(connections.iter().any(|one| one.server == "s2"));
    all_stay(&mut connections, "when all is well");
    drop(balancer);
    service.net.leave();
}

fn vip_of(config: &plimsoll_l4::L4Config) -> Vip {
    config.vips.first().expect("one").clone()
}
