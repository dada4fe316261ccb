//! Replies by the kernel's default route: they leave as if its routes were asked for each, whatever the
//! routes are; which they are for is known by the router that was asked.

use std::time::{Duration, Instant};

use plimsoll_l4::{Policy, RepliesBy, RepliesStatus, Watch, Why, status};
use plimsoll_l4bench::packet::{ACK, PASS, REDIRECT, Segment, intact, timestamps};
use plimsoll_l4bench::{CLIENT_LEG_MAC, CLIENT_MAC, Replies, VIP, VIP6, server_mac};

use super::support::Rig;
use super::support::rig::privileged;
use super::support::rig::service::PATIENCE;

/// Behind the default route.
const FAR: &str = "198.51.100.7:4000";
const FAR6: &str = "[2001:db8:7::7]:4000";
/// With routes of their own in some of the tests.
const OTHER: &str = "203.0.113.7:4000";
const OTHER6: &str = "[2001:db8:9::7]:4000";
/// On the balancer's links.
const NEAR: &str = "10.0.1.2:4000";
const NEAR6: &str = "[fd00:1::2]:4000";

/// What the program remembers of the kernel's routes, each CPU remembers for itself: tests stay on one.
fn stay_on_this_cpu() {
    let mut here = rustix::thread::CpuSet::new();
    here.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &here).expect("stays");
}

fn rig(replies: Replies) -> Rig {
    stay_on_this_cpu();
    let rig = Rig::new(Policy::RoundRobin, 2, replies);
    for hop in ["10.0.2.200", "fd00:2::200"] {
        rig.net.exec("lb", &format!("ip neigh replace {hop} lladdr 02:00:00:00:02:c8 dev lbs"));
    }
    rig
}

impl Rig {
    pub(super) fn routes(&mut self, script: &str) {
        self.net.exec("lb", script);
        self.balancer.follow_network().expect("follows");
    }

    /// A reply to a client: the verdict, and what leaves.
    pub(super) fn reply(&self, client: &str) -> (u32, Vec<u8>) {
        let vip = if client.starts_with('[') { VIP6 } else { VIP };
        let mut reply = Segment::new(vip, client, ACK, timestamps(1, 2)).sent_by(server_mac(1));
        reply.payload = vec![7; 800];
        self.by_server(&reply.bytes())
    }

    /// Whether the kernel's routes were asked for it.
    fn asks(&self, client: &str) -> bool {
        let before = self.counted("route_asked");
        self.reply(client);
        self.counted("route_asked") > before
    }

    fn told(&self) -> [RepliesStatus; 2] {
        status(self.balancer.maps().dir()).expect("status").replies
    }

    /// Both families, by the default route or not for this reason.
    fn are(&self, why: Option<Why>) {
        let by = if why.is_some() { RepliesBy::RoutesAsked } else { RepliesBy::DefaultRoute };
        for told in self.told() {
            assert_eq!((told.by, told.why), (by, why), "{told:?}");
        }
        for client in [FAR, FAR6] {
            assert_eq!(self.asks(client), why.is_some(), "{client}");
        }
    }
}

#[test]
fn the_default_routes_next_hop_is_taken_without_asking() {
    if !privileged() {
        return;
    }
    let b = rig(Replies::DefaultRoute);
    for (client, ttl) in [(FAR, 22), (FAR6, 21)] {
        let (verdict, out) = b.reply(client);
        assert_eq!(verdict, REDIRECT);
        assert_eq!((&out[..6], &out[6..12]), (&CLIENT_MAC[..], &CLIENT_LEG_MAC[..]));
        assert_eq!(out[ttl], 63, "a hop is counted");
        assert!(intact(&out));
    }
    b.are(None);
    assert_eq!(b.counted("route_asked"), 0);
    let [four, six] = b.told();
    assert_eq!(four.gateway, Some([10, 0, 1, 2].into()));
    assert_eq!(six.gateway, Some([0xfd00, 1, 0, 0, 0, 0, 0, 2].into()));
    for (told, asked) in [
        (&four, &["10.0.1.0/24", "10.0.2.0/24", "127.0.0.0/8"][..]),
        (&six, &["::/64", "fd00:1::/64", "fd00:2::/64", "fe00::/7"]),
    ] {
        assert_eq!(told.interface.as_deref(), Some("lbc"));
        assert_eq!(told.mac.as_deref(), Some("02:00:00:00:01:02"));
        let shown: Vec<String> = told.asked_for.iter().map(ToString::to_string).collect();
        assert_eq!(shown, asked);
    }
    // Those on the link are neighbours, each with an address of its own: asked for once.
    for client in [NEAR, NEAR6] {
        assert!(b.asks(client));
        assert_eq!(b.reply(client).0, REDIRECT, "{client}");
        assert!(!b.asks(client));
    }
    let seen = status(b.balancer.maps().dir()).expect("status");
    assert!(seen.vips.iter().all(|vip| vip.routes_asked == 1), "{seen:?}");
    assert!(seen.vips.iter().all(|vip| vip.fallbacks.values().all(|count| *count == 0)));
}

#[test]
fn a_gateway_that_moves_is_followed() {
    if !privileged() {
        return;
    }
    let mut b = rig(Replies::DefaultRoute);
    let watch = Watch::new().expect("watches");
    assert!(!watch.has_changed().expect("told"));
    b.net.exec(
        "lb",
        "for hop in 10.0.1.2 fd00:1::2; do
            ip neigh replace $hop lladdr 02:00:00:00:01:77 dev lbc
        done",
    );
    watch.wait().expect("told");
    b.balancer.follow_network().expect("follows");
    for client in [FAR, FAR6] {
        assert_eq!(b.reply(client).1[..6], [2, 0, 0, 0, 1, 0x77], "{client}");
    }
    b.are(None);
    // Another router, and then one that is not found.
    b.routes(
        "ip route replace default via 10.0.2.200; ip -6 route replace default via fd00:2::200",
    );
    for client in [FAR, FAR6] {
        assert_eq!(b.reply(client).1[..6], [2, 0, 0, 0, 2, 0xc8], "{client}");
    }
    b.are(None);
    b.routes("ip neigh del 10.0.2.200 dev lbs; ip neigh del fd00:2::200 dev lbs");
    b.are(Some(Why::NoNeighbour));
    assert_eq!(b.reply(FAR).0, PASS, "the kernel looks for it");
}

#[test]
fn every_kind_of_route_change_is_noticed() {
    if !privileged() {
        return;
    }
    let b = rig(Replies::DefaultRoute);
    let watch = Watch::new().expect("watches");
    for change in [
        "ip link set lbs mtu 1400",
        "ip neigh replace 10.0.2.77 lladdr 02:00:00:00:02:4d dev lbs",
        "ip neigh replace fd00:2::77 lladdr 02:00:00:00:02:4d dev lbs",
        "ip addr add 10.0.7.1/32 dev lo",
        "ip addr add fd00:7::1/128 dev lo nodad",
        "ip route add 198.51.100.0/24 via 10.0.2.200",
        "ip route add 2001:db8:9::/48 via fd00:2::200",
        "ip rule add from 10.0.9.9 lookup 77",
        "ip -6 rule add from fd00:9::9 lookup 77",
        "sysctl -qw net.ipv4.conf.lbs.forwarding=0",
        "sysctl -qw net.ipv6.conf.lbs.forwarding=0",
        "ip nexthop add id 7 via 10.0.1.2 dev lbc",
        "ip nexthop replace id 7 via 10.0.2.200 dev lbs",
    ] {
        while watch.has_changed().expect("told") {}
        b.net.exec("lb", change);
        assert!(watch.has_changed().expect("told"), "{change}");
    }
}

#[test]
fn what_is_not_the_default_route_alone_is_asked_for() {
    if !privileged() {
        return;
    }
    let mut b = rig(Replies::DefaultRoute);
    assert!(!b.asks(OTHER) && !b.asks(OTHER6));
    b.routes(
        "ip route add 203.0.113.0/24 via 10.0.2.200; ip route add 2001:db8:9::/48 via fd00:2::200",
    );
    for client in [OTHER, OTHER6] {
        assert!(b.asks(client));
        assert_eq!(b.reply(client).1[..6], [2, 0, 0, 0, 2, 0xc8], "{client}");
    }
    b.are(None);
    b.routes("ip route del 203.0.113.0/24; ip route del 2001:db8:9::/48");
    assert!(!b.asks(OTHER) && !b.asks(OTHER6));

    b.routes("sysctl -qw net.ipv4.conf.lbs.forwarding=0 net.ipv6.conf.lbs.forwarding=0");
    b.are(Some(Why::NotForwarding));
    b.routes("sysctl -qw net.ipv4.conf.lbs.forwarding=1 net.ipv6.conf.lbs.forwarding=1");
    b.are(None);
    b.routes("ip rule add from 10.0.9.9 lookup 77; ip -6 rule add from fd00:9::9 lookup 77");
    b.are(Some(Why::Rules));
    b.routes("ip rule del from 10.0.9.9; ip -6 rule del from fd00:9::9");
    b.are(None);
    b.routes(
        "for hops in '-4 route replace default nexthop via 10.0.1.2 nexthop via 10.0.2.200' \
            '-6 route replace default nexthop via fd00:1::2 nexthop via fd00:2::200'; do
            ip $hops
        done",
    );
    b.are(Some(Why::Several));
    b.routes("ip route del default; ip -6 route flush default");
    b.are(Some(Why::NoDefault));
    assert_eq!(b.reply(FAR).0, PASS, "the kernel tells that there is no way");
    b.routes("ip route add default dev lbc; ip -6 route add default dev lbc");
    b.are(Some(Why::NoGateway));
    b.routes("ip route replace default via 10.0.1.2; ip -6 route replace default via fd00:1::2");
    b.are(None);
    // What is longer than the interface takes is the kernel's to answer.
    b.routes("ip link set lbc mtu 1280");
    assert!(!b.asks(FAR) && !b.asks(FAR6));
    b.routes("ip link set lbc mtu 700");
    assert!(b.asks(FAR));
    assert_eq!(b.reply(FAR).0, PASS);
}

#[test]
fn every_reply_leaves_as_if_routes_were_asked() {
    if !privileged() {
        return;
    }
    let mut followed = rig(Replies::DefaultRoute);
    let mut asked = rig(Replies::Asked);
    let clients = [FAR, FAR6, OTHER, OTHER6, NEAR, NEAR6, "127.0.0.9:1", "10.0.1.255:9"];
    let more = ["[fe80::9]:1", "[ff02::1]:1", "[::1]:1", "10.200.1.1:1", "[fd00:2::200]:1"];
    for script in [
        "true",
        "ip route add 203.0.113.7 via 10.0.2.200; ip route add 2001:db8:9::7 via fd00:2::200",
        "ip route add blackhole 203.0.112.0/20; ip route add unreachable 2001:db8:9::/64",
        "for n in $(seq 1 40); do ip route add 10.$n.0.0/16 via 10.0.2.200; done",
        "ip route add 10.200.0.0/16 via 10.0.2.200 metric 7",
        "ip route replace default via 10.0.1.2 mtu lock 600",
        "ip route add default via 10.0.2.200 metric 50; ip -6 route add default via fd00:2::200 metric 50",
        "ip route del default metric 0",
        "ip rule add to 198.51.100.0/24 unreachable",
        "sysctl -qw net.ipv4.conf.lbs.forwarding=0",
        "sysctl -qw net.ipv4.conf.lbs.forwarding=1; ip link set lbs mtu 700",
        "ip link set lbc down",
    ] {
        for rig in [&mut followed, &mut asked] {
            rig.net.enter("lb");
            rig.routes(script);
        }
        // The second time by what was remembered of the first, where something was.
        for client in clients.iter().chain(&more).chain(&clients).chain(&more) {
            let by_route = asked.reply(client);
            followed.net.enter("lb");
            assert!(followed.reply(client) == by_route, "{script}: {client}");
        }
    }
    assert!(followed.counted("route_asked") < asked.counted("route_asked"));
}

/// Asked for when it is looked at for the first time since the daemon looked, then remembered, for each family.
fn is_remembered(b: &mut Rig, clients: [&str; 2]) -> bool {
    b.balancer.follow_network().expect("follows");
    let asked = clients.map(|client| [b.asks(client), b.asks(client)]);
    assert!(
        asked.iter().all(|[first, _]| *first),
        "{clients:?}: a generation each time the daemon looks"
    );
    assert_eq!(asked[0], asked[1], "{clients:?}");
    !asked[0][1]
}

#[test]
fn what_the_routes_said_is_remembered_while_the_destination_alone_decides() {
    if !privileged() {
        return;
    }
    let mut b = rig(Replies::DefaultRoute);
    b.routes(
        "ip route add 203.0.113.0/24 via 10.0.2.200; ip -6 route add 2001:db8:9::/48 via fd00:2::200
        ip route add blackhole 192.0.2.0/24; ip -6 route add blackhole 2001:db8:8::/48",
    );
    for clients in [[NEAR, NEAR6], [OTHER, OTHER6]] {
        assert!(is_remembered(&mut b, clients));
    }
    // Without a default route, too.
    b.routes("ip route del default; ip -6 route del default");
    assert!(is_remembered(&mut b, [NEAR, NEAR6]));
    for (begin, end) in [
        (
            "ip rule add from 10.0.9.9 lookup 77; ip -6 rule add from fd00:9::9 lookup 77",
            "ip rule del from 10.0.9.9; ip -6 rule del from fd00:9::9",
        ),
        (
            "ip route add 10.77.0.0/16 nexthop via 10.0.1.2 nexthop via 10.0.2.200
            ip -6 route add fd77::/64 nexthop via fd00:1::2 nexthop via fd00:2::200",
            "ip route del 10.77.0.0/16; ip -6 route flush fd77::/64",
        ),
        (
            "ip route add 10.77.0.0/16 tos 0x10 via 10.0.1.2
            ip -6 route add fd77::/64 from fd00:9::/64 via fd00:1::2",
            "ip route del 10.77.0.0/16 tos 0x10; ip -6 route flush fd77::/64",
        ),
        (
            "ip nexthop add id 7 via 10.0.1.2 dev lbc; ip route add 10.77.0.0/16 nhid 7
            ip nexthop add id 8 via fd00:1::2 dev lbc; ip -6 route add fd77::/64 nhid 8",
            "ip nexthop flush",
        ),
        (
            "sysctl -qw net.ipv4.conf.lbc.forwarding=0 net.ipv6.conf.lbc.forwarding=0",
            "sysctl -qw net.ipv4.conf.lbc.forwarding=1 net.ipv6.conf.lbc.forwarding=1",
        ),
    ] {
        b.routes(begin);
        assert!(!is_remembered(&mut b, [NEAR, NEAR6]), "{begin}");
        b.routes(end);
        assert!(is_remembered(&mut b, [NEAR, NEAR6]), "{end}");
    }
    // One that is longer than the hop takes is the kernel's to answer.
    assert!(is_remembered(&mut b, [NEAR, NEAR6]));
    b.routes("ip route add 10.0.1.2 dev lbc mtu lock 600");
    assert_eq!(b.reply(NEAR).0, PASS);
    let mut small = Segment::new(VIP, NEAR, ACK, timestamps(1, 2)).sent_by(server_mac(1));
    small.payload = vec![7; 500];
    let before = b.counted("route_asked");
    for _ in 0..3 {
        assert_eq!(b.by_server(&small.bytes()).0, REDIRECT);
    }
    assert_eq!(b.counted("route_asked"), before + 1);
    assert_eq!(b.reply(NEAR).0, PASS, "though a shorter one was remembered");
}

#[test]
fn a_client_that_moves_is_followed() {
    if !privileged() {
        return;
    }
    let mut b = rig(Replies::DefaultRoute);
    for client in [NEAR, NEAR6] {
        assert_eq!(b.reply(client).1[..6], CLIENT_MAC);
    }
    b.routes(
        "for hop in 10.0.1.2 fd00:1::2; do
            ip neigh replace $hop lladdr 02:00:00:00:01:77 dev lbc
        done",
    );
    for client in [NEAR, NEAR6] {
        assert_eq!(b.reply(client).1[..6], [2, 0, 0, 0, 1, 0x77], "{client}");
    }
    b.routes("ip neigh del 10.0.1.2 dev lbc; ip neigh del fd00:1::2 dev lbc");
    for client in [NEAR, NEAR6] {
        assert_eq!(b.reply(client).0, PASS, "{client}: the kernel looks for it");
    }
}

#[test]
fn clients_by_the_thousand_have_each_their_own_way() {
    if !privileged() {
        return;
    }
    stay_on_this_cpu();
    let b = Rig::with_room(Policy::RoundRobin, 2, Replies::DefaultRoute, 4000);
    // More than are remembered, and each of them twice in a row, so that some is.
    b.net.exec(
        "lb",
        "ip addr add 10.64.0.1/16 dev lbs; ip addr add fd64::1/64 dev lbs nodad
        sysctl -qw net.ipv4.neigh.default.gc_thresh3=65536 net.ipv6.neigh.default.gc_thresh3=65536
        for high in $(seq 0 19); do for low in $(seq 2 255); do
            mac=$(printf %02x:%02x $high $low)
            echo neigh replace 10.64.$high.$low lladdr 02:00:00:64:$mac dev lbs
            echo neigh replace fd64::$(printf %x $((high * 256 + low))) lladdr 02:00:00:65:$mac dev lbs
        done; done | ip -batch -",
    );
    let mut b = b;
    let before = b.counted("route_asked");
    let mut sent = 0;
    for high in 0..20u8 {
        // As the daemon does: what is remembered holds for a few seconds without it.
        b.balancer.follow_network().expect("follows");
        for low in 2..=255u8 {
            let number = u16::from_be_bytes([high, low]);
            for (client, kind) in
                [(format!("10.64.{high}.{low}:9"), 0x64), (format!("[fd64::{number:x}]:9"), 0x65)]
            {
                for _ in 0..2 {
                    let (verdict, out) = b.reply(&client);
                    assert_eq!((verdict, &out[..6]), (REDIRECT, &[2, 0, 0, kind, high, low][..]));
                    sent += 1;
                }
            }
        }
    }
    let asked = b.counted("route_asked") - before;
    assert!(asked >= sent / 2 && asked < sent * 6 / 10, "{asked} of {sent}");
}

#[test]
fn without_a_daemon_routes_are_asked_again() {
    if !privileged() {
        return;
    }
    let mut b = rig(Replies::DefaultRoute);
    b.are(None);
    let began = Instant::now();
    assert!(b.asks(NEAR) && b.asks(NEAR6));
    // The data path and the status each read the clock: one may see the end a moment before the other.
    let is_told = |b: &Rig| b.told().iter().all(|told| told.why == Some(Why::Expired));
    while !is_told(&b) || [FAR, FAR6, NEAR, NEAR6].iter().any(|client| !b.asks(client)) {
        assert!(began.elapsed() < PATIENCE, "what nobody renews ends");
        assert_eq!(b.reply(FAR).0, REDIRECT);
        std::thread::sleep(Duration::from_millis(50));
    }
    b.are(Some(Why::Expired));
    b.balancer.refresh().expect("refreshes");
    b.are(None);
    // Not asked though a daemon runs, and never, as configured.
    let mut config = b.config.clone();
    config.uplink = plimsoll_l4::UplinkMode::Ask;
    b.balancer.apply(&config).expect("applies");
    b.are(Some(Why::Configured));
}

/// Routers that are at another MAC address than the one that is known, and say nothing: replies go by the right one
/// in the end, whatever these routes and rules are beside.
fn silent_moves_are_found(replies: Replies, script: &str) -> Rig {
    let mut b = rig(replies);
    // They are the far end of the clients' leg, and the address that is known for them is no machine's any more.
    b.net.exec(
        "out",
        "for n in 2 3 4; do ip addr add 10.0.1.$n/24 dev c0; ip addr add fd00:1::$n/64 dev c0 nodad; done",
    );
    b.routes(&format!(
        "for family in 4 6; do
            sysctl -qw net.ipv$family.neigh.lbc.delay_first_probe_time=1
            sysctl -qw net.ipv$family.neigh.lbc.retrans_time_ms=100
        done
        for n in 2 3 4; do for hop in 10.0.1.$n fd00:1::$n; do
            ip neigh replace $hop lladdr 02:00:00:00:66:66 dev lbc nud stale
        done; done
        ip route add 203.0.113.0/24 via 10.0.1.3; ip route add 2001:db8:9::/48 via fd00:1::3
        {script}"
    ));
    for client in [FAR, FAR6, OTHER, OTHER6] {
        assert_eq!(b.reply(client).1[..6], [2, 0, 0, 0, 0x66, 0x66], "{client}");
    }
    let began = Instant::now();
    for client in [FAR, FAR6, OTHER, OTHER6] {
        let is_right =
            |(verdict, out): (u32, Vec<u8>)| verdict == REDIRECT && out[..6] == CLIENT_MAC;
        while !is_right(b.reply(client)) {
            assert!(began.elapsed() < PATIENCE, "{script}: {client}: {:?}", b.told());
            std::thread::sleep(Duration::from_millis(50));
            b.balancer.refresh().expect("refreshes");
        }
    }
    b.balancer.refresh().expect("refreshes");
    b
}

#[test]
fn a_gateway_that_moved_in_silence_is_looked_for() {
    if !privileged() {
        return;
    }
    silent_moves_are_found(Replies::DefaultRoute, "true").are(None);
}

#[test]
fn gateways_are_looked_for_where_routes_are_asked() {
    if !privileged() {
        return;
    }
    let rules = "ip rule add from 10.0.9.9 lookup 77; ip -6 rule add from fd00:9::9 lookup 77";
    // Each next hop takes some of the clients.
    let several = "for to in '-4 route replace 203.0.113.0/24' '-4 route replace default'; do
            ip $to nexthop via 10.0.1.3 nexthop via 10.0.1.4
        done
        for to in '-6 route replace 2001:db8:9::/48' '-6 route replace default'; do
            ip $to nexthop via fd00:1::3 nexthop via fd00:1::4
        done";
    silent_moves_are_found(Replies::Asked, "true").are(Some(Why::Configured));
    silent_moves_are_found(Replies::DefaultRoute, rules).are(Some(Why::Rules));
    silent_moves_are_found(Replies::DefaultRoute, several).are(Some(Why::Several));
}
