//! What the doctor finds in namespaces that are wrong in one way at a time.

mod rig;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use plimsoll_l4::doctor::{Finding, Level, examine};
use plimsoll_l4::{AttachMode, Balancer, L4Config, Policy};
use plimsoll_testbed::net::{ReplyPath, SiteSpec};
use rig::service::{Service, all_stay};
use rig::{keys, privileged};

/// Two servers that listen on their own addresses, too.
fn service(timestamps: u8) -> (Service, L4Config) {
    let service = Service::new(2, timestamps, false);
    for (index, name) in service.servers.iter().enumerate() {
        let own: SocketAddr = format!("10.0.{}.2:80", index + 2).parse().expect("address");
        service.net.enter(name);
        let listener = TcpListener::bind(own).expect("listens");
        service.net.leave();
        // Ends with the process: it holds nothing but a socket of a namespace that is removed.
        std::thread::spawn(move || for _ in listener.incoming() {});
    }
    // So that both are in the neighbour table.
    service.net.enter("lb");
    for own in ["10.0.2.2:80", "10.0.3.2:80"] {
        TcpStream::connect(own).expect("connects");
    }
    service.net.leave();
    let config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    (service, config)
}

fn look(service: &Service, place: &str, config: &L4Config) -> Vec<Finding> {
    service.net.enter(place);
    let findings = examine(Some(config));
    service.net.leave();
    findings
}

/// The level of a check of something.
fn level(findings: &[Finding], check: &str, about: &str) -> Level {
    let found = findings.iter().find(|one| one.check == check && one.about.contains(about));
    found.unwrap_or_else(|| panic!("{check} of {about} in {findings:#?}")).level
}

fn fails(findings: &[Finding]) -> Vec<(&str, &str)> {
    let bad = findings.iter().filter(|one| one.level == Level::Fail);
    bad.map(|one| (one.check, one.about.as_str())).collect()
}

/// What is done to a balancer's machine, the check that must see it, of what, how badly, and how to take it
/// back.
const FAULTS: [(&str, &str, &str, Level, &str); 5] = [
    (
        "sysctl -qw net.ipv4.ip_forward=0",
        "ip_forward",
        "lbc",
        Level::Fail,
        "sysctl -qw net.ipv4.ip_forward=1",
    ),
    (
        "sysctl -qw net.ipv4.conf.lb1.rp_filter=1",
        "rp_filter",
        "lb1",
        Level::Warn,
        "sysctl -qw net.ipv4.conf.lb1.rp_filter=0",
    ),
    ("ip link set lb2 mtu 1400", "mtu", "l4.interfaces", Level::Fail, "ip link set lb2 mtu 1500"),
    ("ethtool -K lb1 gro off", "veth_gro", "lb1", Level::Warn, "ethtool -K lb1 gro on"),
    (
        "ip addr add 10.0.9.9/32 dev lo",
        "vip_address",
        "shop",
        Level::Warn,
        "ip addr del 10.0.9.9/32 dev lo",
    ),
];

#[test]
fn a_good_balancer_is_found_good_and_each_fault_is_seen() {
    if !privileged() {
        return;
    }
    let (service, config) = service(2);
    service.net.exec("lb", "ethtool -K lb1 gro on");
    service.net.exec("lb", "sysctl -qw net.ipv4.conf.lb1.rp_filter=0");
    let balancer = service.balance(&config);
    service.net.leave();
    let good = look(&service, "lb", &config);
    assert_eq!(fails(&good), []);
    assert_eq!(level(&good, "tcp_timestamps", "shop/s1"), Level::Ok);
    assert_eq!(level(&good, "tcp_timestamps", "shop/s2"), Level::Ok);
    assert_eq!(level(&good, "xdp", "lb1"), Level::Ok);
    let said = |check: &str| good.iter().any(|one| one.check == check);
    for check in
        ["kernel", "btf", "feature", "privileges", "bpffs", "memlock", "clock", "idle_limit"]
    {
        assert!(said(check), "{check}");
    }

    for (change, check, about, expected, back) in FAULTS {
        assert_eq!(level(&good, check, about), Level::Ok, "{check} before");
        service.net.exec("lb", change);
        assert_eq!(level(&look(&service, "lb", &config), check, about), expected, "{change}");
        service.net.exec("lb", back);
    }

    let mut other = config.clone();
    other.interfaces[0].name = "eth7".to_owned();
    other.interfaces[1].mode = AttachMode::Generic;
    other.vips[0].backends[0].mac = Some([2, 9, 9, 9, 9, 9]);
    other.pin_dir = service.net.pins().join("elsewhere");
    let bad = look(&service, "lb", &other);
    assert_eq!(level(&bad, "interface", "eth7"), Level::Fail);
    assert_eq!(level(&bad, "aggregation", "lb1"), Level::Fail, "generic, with GRO before it");
    assert_eq!(level(&bad, "xdp", "lb2"), Level::Fail, "the program of another balancer");
    assert_eq!(level(&bad, "backend", "shop/s1"), Level::Fail, "another MAC address");
    assert_eq!(level(&bad, "backend", "shop/s2"), Level::Ok);
    drop(balancer);
}

#[test]
fn servers_whose_timestamps_have_offsets_are_seen_from_the_balancer() {
    if !privileged() {
        return;
    }
    let (service, mut config) = service(1);
    let found = look(&service, "lb", &config);
    assert_eq!(level(&found, "tcp_timestamps", "shop/s1"), Level::Fail);
    assert_eq!(level(&found, "tcp_timestamps", "shop/s2"), Level::Fail);
    config.vips[0].backends[0].agent = true;
    service.net.exec("s2", "sysctl -qw net.ipv4.tcp_timestamps=0");
    let found = look(&service, "lb", &config);
    assert_eq!(level(&found, "tcp_timestamps", "shop/s1"), Level::Ok, "its agent knows");
    assert_eq!(level(&found, "tcp_timestamps", "shop/s2"), Level::Fail, "none at all");
    service.net.exec("s2", "sysctl -qw net.ipv4.tcp_timestamps=2");
    config.vips[0].address = "10.0.9.9:81".parse().expect("address");
    let found = look(&service, "lb", &config);
    assert_eq!(level(&found, "tcp_timestamps", "shop/s2"), Level::Warn, "nothing listens there");
}

#[test]
fn what_is_wrong_on_a_server_is_seen_there() {
    if !privileged() {
        return;
    }
    let (service, mut config) = service(2);
    for setting in ["all.arp_ignore=1", "all.rp_filter=0", "e0.rp_filter=0"] {
        service.net.exec("s1", &format!("sysctl -qw net.ipv4.conf.{setting}"));
    }
    service.net.exec("s1", "sysctl -qw net.ipv4.tcp_keepalive_time=240");
    let good = look(&service, "s1", &config);
    assert_eq!(fails(&good), []);
    assert!(good.iter().any(|one| one.check == "role" && one.found == "a server: shop/s1"));

    for (change, check, about, expected) in [
        ("sysctl -qw net.ipv4.tcp_timestamps=1", "tcp_timestamps", "", Level::Fail),
        ("ethtool -K e0 gro off", "veth_gro", "e0", Level::Fail),
        ("sysctl -qw net.ipv4.conf.e0.rp_filter=1", "rp_filter", "e0", Level::Fail),
        ("sysctl -qw net.ipv4.conf.all.arp_ignore=0", "arp_ignore", "shop", Level::Warn),
        ("sysctl -qw net.ipv4.tcp_keepalive_time=7200", "keep_alive", "", Level::Warn),
        ("ethtool -K e0 tx on", "veth_checksums", "e0", Level::Warn),
        ("ip addr del 10.0.9.9/32 dev lo", "vip_address", "shop", Level::Fail),
    ] {
        assert_eq!(level(&good, check, about), Level::Ok, "{check} before");
        service.net.exec("s1", change);
        assert_eq!(level(&look(&service, "s1", &config), check, about), expected, "{change}");
    }
    config.vips[0].backends[0].agent = true;
    let found = look(&service, "s1", &config);
    assert_eq!(level(&found, "tcp_timestamps", ""), Level::Ok, "with an agent, 1 is well");
    assert_eq!(level(&found, "agent", ""), Level::Fail, "but it does not run");
    assert_eq!(level(&found, "key_file", ""), Level::Fail, "nor has it the keys");
}

#[test]
fn another_xdp_program_is_seen_without_a_configuration() {
    if !privileged() {
        return;
    }
    let service = Service::new(1, 2, false);
    service.net.enter("lb");
    let before = examine(None);
    let config = service.config(Policy::RoundRobin, &["s1"]);
    let started = Balancer::start_with(&config, keys());
    let after = examine(None);
    service.net.leave();
    started.expect("starts");
    let said = |findings: &[Finding]| {
        let one = findings.iter().find(|one| one.check == "xdp" && one.about == "lb1");
        one.expect("looked at").found.clone()
    };
    assert_eq!(said(&before), "no program is attached");
    assert!(said(&after).starts_with("Plimsoll's own"), "{}", said(&after));
}

/// Clients begin connections and ask, whether or not anybody answers.
fn try_to_connect(service: &Service, count: usize) {
    let vip = service.vip;
    let ask = move || {
        let second = Duration::from_secs(1);
        let Ok(mut stream) = TcpStream::connect_timeout(&vip, second) else { return };
        stream.set_read_timeout(Some(second)).expect("set");
        let _ = stream.write_all(b"who\n").and_then(|()| stream.read(&mut [0; 9]));
    };
    // They are where the thread is that they begin in.
    let all = || (0..count).map(|_| std::thread::spawn(ask)).collect::<Vec<_>>();
    for one in service.net.inside("cli", all).expect("enters") {
        one.join().expect("ends");
    }
}

#[test]
fn replies_that_bypass_the_balancer_are_found_and_a_rule_on_the_servers_brings_them_back() {
    if !privileged() {
        return;
    }
    // The servers have a link of their own with the clients.
    let spec = SiteSpec { reply_path: ReplyPath::Direct, ..SiteSpec::new(2) };
    let service = Service::on(&spec);
    let config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    let balancer = service.balance(&config);
    service.net.leave();
    assert_eq!(
        level(&look(&service, "lb", &config), "replies", "shop/s1"),
        Level::Ok,
        "no traffic"
    );
    try_to_connect(&service, 60);
    let found = look(&service, "lb", &config);
    for server in ["shop/s1", "shop/s2"] {
        assert_eq!(level(&found, "replies", server), Level::Fail, "{found:#?}");
    }
    assert_eq!(level(&found, "cookies", "shop"), Level::Warn, "{found:#?}");

    for (name, gateway) in [("s1", "10.0.2.1"), ("s2", "10.0.3.1")] {
        let rule = format!(
            "ip route add default via {gateway} table 100 && ip rule add from 10.0.9.9 lookup 100"
        );
        service.net.exec(name, &rule);
    }
    let mut connections = service.opened(60);
    all_stay(&mut connections, "by the balancer");
    let found = look(&service, "lb", &config);
    for server in ["shop/s1", "shop/s2"] {
        assert_eq!(level(&found, "replies", server), Level::Ok, "{found:#?}");
    }
    drop(balancer);
}

#[test]
fn a_bypass_that_begins_after_much_good_traffic_is_found() {
    if !privileged() {
        return;
    }
    let spec = SiteSpec { reply_path: ReplyPath::Direct, ..SiteSpec::new(2) };
    let service = Service::on(&spec);
    let servers = [("s1", "10.0.2.1"), ("s2", "10.0.3.1")];
    for (name, gateway) in servers {
        let rule = format!(
            "ip route add default via {gateway} table 100 && ip rule add from 10.0.9.9 lookup 100"
        );
        service.net.exec(name, &rule);
    }
    let config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    let balancer = service.balance(&config);
    service.net.leave();
    let mut connections = service.opened(200);
    for _ in 0..10 {
        all_stay(&mut connections, "by the balancer");
    }
    drop(connections);
    for (name, _) in servers {
        service.net.exec(name, "ip rule del from 10.0.9.9 lookup 100");
    }
    let found = std::thread::scope(|scope| {
        let looking = scope.spawn(|| look(&service, "lb", &config));
        // All the while: its two readings come when they do.
        while !looking.is_finished() {
            try_to_connect(&service, 30);
            std::thread::sleep(Duration::from_millis(50));
        }
        looking.join().expect("ends")
    });
    for server in ["shop/s1", "shop/s2"] {
        assert_eq!(level(&found, "replies", server), Level::Fail, "{found:#?}");
    }
    drop(balancer);
}
