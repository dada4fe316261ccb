//! Handshakes whose last ACK comes late, by real kernels' rules: since 6.14 Linux takes that ACK only if it
//! echoes exactly what the server sent. The server is known by the answer, and must be the one that the first
//! answer's cookie names.

mod rig;

use std::collections::BTreeSet;
use std::time::Instant;

use plimsoll_cookie::{CookieCodec, Epoch, IdState, Layout, Salt, ServerId, Tuple, Verdict};
use plimsoll_l4::doctor::{Finding, Level, examine};
use plimsoll_l4::{Policy, status};
use rig::direct::Direct;
use rig::raw::{HANDSHAKES, Served, delayed_handshakes, send_old_timestamps};
use rig::service::{PATIENCE, Service};
use rig::{at, keys, privileged};

const SERVERS: u16 = 2;

/// Each is served by the server that its cookie names, and each server serves some.
fn by_their_servers(served: &[Served]) {
    let secret = keys().salts[0].expect("a salt");
    let layout = Layout::default();
    let mut codec = CookieCodec::new(layout, Epoch::Even, Salt::derive(&secret, layout));
    for id in 1..=SERVERS {
        assert!(codec.set_id(ServerId(id), IdState::Live));
    }
    for one in served {
        let tuple = Tuple { client: at(&one.client), vip: at("10.0.9.9:80"), protocol: 6 };
        let id = one.name[1..].parse().expect("a server's name");
        assert_eq!(codec.decode(&tuple, one.wire).verdict, Verdict::Valid(ServerId(id)));
    }
    let names: BTreeSet<&str> = served.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["s1", "s2"]));
}

/// What the doctor says on a server.
fn doctor_on_server(service: &Service) -> Vec<Finding> {
    let config = service.config(Policy::RoundRobin, &["s1", "s2"]);
    service.net.inside("s1", || examine(Some(&config))).expect("enters")
}

/// Whether it finds fault with the server's timestamps.
fn doctor_fails(findings: &[Finding]) -> bool {
    findings.iter().any(|one| one.check == "tcp_timestamps" && one.level == Level::Fail)
}

/// How it judges what the server's kernel counted.
fn refused<'a>(findings: &'a [Finding], counter: &str) -> &'a Finding {
    let mut all = findings.iter().filter(|one| one.check == "timestamps_refused");
    all.find(|one| one.about == counter).expect("looked at")
}

fn without_agents(timestamps: u8) -> (Service, Vec<Served>) {
    let service = Service::new(usize::from(SERVERS), timestamps, false);
    let balancer = service.balance(&service.config(Policy::RoundRobin, &["s1", "s2"]));
    service.net.leave();
    let served = delayed_handshakes(&service);
    drop(balancer);
    (service, served)
}

#[test]
fn late_acks_are_restored_by_the_balancer_where_servers_have_one_clock() {
    if !privileged() {
        return;
    }
    let (service, served) = without_agents(2);
    assert_eq!(served.len(), HANDSHAKES);
    by_their_servers(&served);
    let found = doctor_on_server(&service);
    assert!(!doctor_fails(&found));
    assert_eq!(refused(&found, "TSEcrRejected").level, Level::Ok);
    let old = refused(&found, "PAWSEstab");
    assert!(old.level == Level::Ok && old.found.starts_with("0, beside "), "{old:?}");
    let seen = status(&service.net.pins()).expect("status");
    assert!(seen.vips[0].fallbacks.values().all(|count| *count == 0));
}

#[test]
fn segments_with_old_timestamps_are_counted_by_the_server_and_the_doctor_reads_that() {
    if !privileged() {
        return;
    }
    let (service, served) = without_agents(2);
    send_old_timestamps(&service, &served);
    let began = Instant::now();
    loop {
        let found = doctor_on_server(&service);
        let old = refused(&found, "PAWSEstab");
        if old.level == Level::Warn {
            assert_eq!(refused(&found, "TSEcrRejected").level, Level::Ok);
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{old:?}");
    }
}

#[test]
fn random_offsets_without_agents_fail_and_the_doctor_finds_them() {
    if !privileged() {
        return;
    }
    let (service, served) = without_agents(1);
    let found = doctor_on_server(&service);
    assert!(doctor_fails(&found));
    let echoes = refused(&found, "TSEcrRejected");
    let expected = if echoes.found.starts_with("not counted") { Level::Ok } else { Level::Warn };
    assert_eq!(echoes.level, expected, "{}", echoes.found);
    // One of 4,096 offsets is right by chance, and for each server the last one heard.
    assert!(served.len() < HANDSHAKES / 10, "{} of {HANDSHAKES}", served.len());
}

#[test]
fn syn_cookies_pass_the_balancer() {
    if !privileged() {
        return;
    }
    let service = Service::new(usize::from(SERVERS), 2, false);
    for server in ["s1", "s2"] {
        service.net.exec(server, "sysctl -qw net.ipv4.tcp_syncookies=2");
    }
    let balancer = service.balance(&service.config(Policy::RoundRobin, &["s1", "s2"]));
    let mut connections = service.opened(40);
    service.net.leave();
    let served = delayed_handshakes(&service);
    assert_eq!(served.len(), HANDSHAKES);
    by_their_servers(&served);
    rig::service::all_stay(&mut connections, "under SYN cookies");
    drop(balancer);
}

fn with_agents(prepare: impl Fn(&Direct)) -> Direct {
    let direct = Direct::new(usize::from(SERVERS), false);
    prepare(&direct);
    let balancer = direct.service.balance(&direct.config(&["s1", "s2"]));
    let mut connections = direct.service.opened(40);
    direct.net().leave();
    let served = delayed_handshakes(&direct.service);
    assert_eq!(served.len(), HANDSHAKES);
    by_their_servers(&served);
    for one in served {
        let n: u8 = one.name[1..].parse().expect("a server's name");
        let straight = [2, 0, 0, 1, n + 1, 2];
        assert_eq!(one.from_mac, straight, "from the server that says its name");
    }
    rig::service::all_stay(&mut connections, "after the handshakes");
    drop(balancer);
    direct
}

#[test]
fn late_acks_are_restored_by_agents_whatever_the_offsets() {
    if privileged() {
        let direct = with_agents(|_| {});
        for server in ["s1", "s2"] {
            assert_eq!(direct.agent_status(server).vips[0].counts["syn_cookie"], 0);
        }
    }
}

/// A SYN cookie's options are in the lowest six bits of the timestamp, which are not touched.
#[test]
fn syn_cookies_pass_agents_and_options_survive_in_them() {
    if !privileged() {
        return;
    }
    let direct = with_agents(|direct| {
        for server in ["s1", "s2"] {
            direct.net().exec(server, "sysctl -qw net.ipv4.tcp_syncookies=2");
        }
    });
    let counts = |name: &str| -> u64 {
        let of = |server| direct.agent_status(server).vips[0].counts[name];
        of("s1") + of("s2")
    };
    // Each last ACK, of raw clients and of connections; with the data behind it, it may be more.
    assert!(counts("syn_cookie") >= HANDSHAKES as u64 + 40, "{}", counts("syn_cookie"));
    assert_eq!(counts("foreign_cookie"), 0);
    // The window's scale was in the timestamp alone: without it there is none.
    for server in ["s1", "s2"] {
        let told = direct.net().exec(server, "ss -tinoH state established sport = :80");
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.contains(" ts sack ") && told.contains("wscale:7,"), "{told}");
    }
}
