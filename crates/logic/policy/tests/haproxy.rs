//! Picks against those of a real HAProxy 2.6.12: the same five servers of weights 3, 1, 5, 2, 4, the same
//! forty requests, one after the other, as `scripts/record-haproxy-picks` prints them.

use std::net::IpAddr;

use plimsoll_model::Nanos;
use plimsoll_policy::{
    HashFunction, HashKey, KeySource, Policy, PolicyKind, Request, RequestView, Settings, UriPart,
};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

const WEIGHTS: [u32; 5] = [3, 1, 5, 2, 4];

struct Sent {
    uri: String,
    agent: Option<String>,
    cookie: Option<String>,
    source: IpAddr,
    payload: Vec<u8>,
}

impl RequestView for Sent {
    fn source(&self) -> Option<IpAddr> {
        Some(self.source)
    }

    fn target(&self) -> Option<&[u8]> {
        Some(self.uri.as_bytes())
    }

    fn payload(&self) -> Option<&[u8]> {
        Some(&self.payload)
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        let value = match name.to_ascii_lowercase().as_str() {
            "user-agent" => &self.agent,
            "cookie" => &self.cookie,
            _ => return None,
        };
        value.as_deref().map(str::as_bytes)
    }
}

fn sent() -> Vec<Sent> {
    let request = |i: u32| Sent {
        uri: match i % 10 {
            0 => "/".to_owned(),
            1 => "/index.html".to_owned(),
            2 => "/a/b/c?x=1".to_owned(),
            3 => "/a/d".to_owned(),
            4 => format!("/img/{i}.png"),
            5 => format!("/api/v{}/users?id={}", i % 3, i * 37),
            6 => format!("/?id={:x}&z=1", i * 7_919),
            7 => format!("/q?a=1&id=user{i}"),
            8 => "/q?ID=3".to_owned(),
            _ => format!("/longer/path/{i}/x?id="),
        },
        agent: match i % 4 {
            0 => Some("curl/7.88".to_owned()),
            1 => Some(format!("Mozilla/5.0 (X11, Linux) {i}")),
            2 => None,
            _ => Some(format!("agent-{i}")),
        },
        cookie: match i % 5 {
            0 => None,
            1 => Some(format!("sid=user{i}")),
            2 => Some(format!("a=1; sid=s-{}", i * 37)),
            3 => Some("xsid=3".to_owned()),
            _ => Some("sid=; b=2".to_owned()),
        },
        source: [127, 0, (i * 13 % 256) as u8, (1 + i * 29 % 250) as u8].into(),
        payload: remote_desktop(i),
    };
    (0..40).map(request).collect()
}

/// What a remote desktop's client sends first.
fn remote_desktop(i: u32) -> Vec<u8> {
    let cookie = match i % 4 {
        0 => String::new(),
        1 => format!("Cookie: user=u{i}\r\n"),
        2 => format!("Cookie: mstshash=m{i}\r\n"),
        _ => format!("Cookie: USER=ann{}\r\n", i % 7),
    };
    [b"\x03\0\0\0\0\xe0\0\0\0\0\0", cookie.as_bytes()].concat()
}

/// The same from clients whose addresses are of IPv6.
fn sent_by_v6() -> Vec<Sent> {
    let address = |i: u32| {
        let (net, host) = (i * 4_099 % 65_536, 1 + i * 29 % 250);
        [0x2001, 0xdb8, net as u16, 0, 0, 0, 0, host as u16].into()
    };
    (0..).zip(sent()).map(|(i, sent)| Sent { source: address(i), ..sent }).collect()
}

/// The server of each request, as digits.
fn served(kind: PolicyKind, key: Option<&HashKey>) -> String {
    picks(kind, &Settings::default(), &sent(), key)
}

/// The same of these requests, none of which ends.
fn picks(kind: PolicyKind, settings: &Settings, sent: &[Sent], key: Option<&HashKey>) -> String {
    picks_of(kind.build(&WEIGHTS, settings).unwrap().as_mut(), sent, key)
}

fn picks_of(policy: &mut dyn Policy, sent: &[Sent], key: Option<&HashKey>) -> String {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut pick = |sent: &Sent| {
        let key = key.and_then(|k| k.key(sent));
        let request = Request::keyed(key);
        let picked = policy.pick(&request, Nanos::ZERO, &mut rng).unwrap();
        policy.on_start(picked, Nanos::ZERO);
        picked
    };
    sent.iter().map(|s| pick(s).to_string()).collect()
}

#[test]
fn the_fixed_round_of_static_rr() {
    let recorded = "0124022340242340124022340242340124022340";
    assert_eq!(served(PolicyKind::StaticRoundRobin, None), recorded);
    assert_eq!(served(PolicyKind::First, None), "0".repeat(40), "without maxconn");
}

/// `round_robin` is as smooth, but not turn by turn the same: no server is ever more than one turn ahead of
/// HAProxy's or behind, and after a round of 15 all are level. `roundrobin_haproxy` is the same.
#[test]
fn the_turns_of_roundrobin_are_spread_alike() {
    let recorded = "2402432042120432402432042120432402432042";
    assert_eq!(served(PolicyKind::RoundrobinHaproxy, None), recorded);
    let ours = served(PolicyKind::RoundRobin, None);
    let turns = |row: &str, to: usize, server: char| row[..to].matches(server).count();
    for to in 0..=40 {
        for server in '0'..='4' {
            let apart = turns(recorded, to, server).abs_diff(turns(&ours, to, server));
            let most = if to % 15 == 0 { 0 } else { 1 };
            assert!(apart <= most, "{server} after {to} turns: {ours}, recorded {recorded}");
        }
    }
}

#[test]
fn hashes_find_the_same_server() {
    use HashFunction::{Crc32, Djb2, Sdbm, Wt6};
    use PolicyKind::{HashMap, HashRing};
    let uri = |part| KeySource::Uri(part);
    let all = UriPart::default();
    let agent = KeySource::Header("User-Agent".to_owned());
    let param = KeySource::QueryParam("id".to_owned());
    let cookie = KeySource::Cookie("sid".to_owned());
    let key = |of, function, avalanche| HashKey { of, function, avalanche };
    let deep = UriPart { depth: Some(1), ..all };
    let recorded = [
        // balance source, uri, uri whole, uri depth 1, uri len 6, uri path-only
        (HashMap, key(KeySource::Source, Sdbm, false), "4224442241323013230224442201323013220240"),
        (HashMap, key(uri(all), Sdbm, false), "2223322114222323211422234221132223222111"),
        (
            HashMap,
            key(uri(UriPart { whole: true, ..all }), Sdbm, false),
            "2213324000221320200222134100022213241400",
        ),
        (HashMap, key(uri(deep), Sdbm, false), "2200042113220004211322000421132200042113"),
        (
            HashMap,
            key(uri(UriPart { len: Some(6), ..all }), Sdbm, false),
            "2023202114202340211420230021142023102114",
        ),
        (
            HashMap,
            key(uri(UriPart { path_only: true, ..all }), Sdbm, false),
            "2223322114222323211422234221132223222111",
        ),
        // balance hdr(User-Agent), url_param id: round robin where there is none
        (HashMap, key(agent.clone(), Sdbm, false), "0103011401240142010101240124013101420100"),
        (HashMap, key(param, Sdbm, false), "0124032220234022244023401303204022340440"),
        // balance hash req.cook(sid)
        (HashMap, key(cookie.clone(), Sdbm, false), "0221024240022202203041000223402233042000"),
        (HashRing, key(cookie, Sdbm, true), "2122024420224303212002000204403222024230"),
        // balance uri, hash-type map-based djb2 avalanche
        (HashMap, key(uri(all), Djb2, true), "4222404220422210422342222442204222204222"),
        // hash-type consistent: sdbm avalanche, crc32; source and header by wt6 avalanche
        (HashRing, key(uri(all), Sdbm, true), "0304100222030420022203042302240304300220"),
        (HashRing, key(uri(all), Crc32, false), "2240042442224031244022402224422240042442"),
        (HashRing, key(KeySource::Source, Wt6, true), "2222220220340000240332430012434204402431"),
        (HashRing, key(agent, Wt6, true), "2420242124202420242424332432242324022403"),
    ];
    for (kind, key, expected) in recorded {
        assert_eq!(served(kind, Some(&key)), expected, "{kind} by {key:?}");
    }
}

#[test]
fn sources_of_ipv6_and_remote_desktops_find_the_same_server() {
    use HashFunction::{Sdbm, Wt6};
    use PolicyKind::{HashMap, HashRing};
    let user = KeySource::RdpCookie("user".to_owned());
    let key = |of, function, avalanche| HashKey { of, function, avalanche };
    let recorded = [
        // balance source
        (HashMap, key(KeySource::Source, Sdbm, false), "2012214002243202234034024401320444213224"),
        (HashRing, key(KeySource::Source, Wt6, true), "3234420414412424033202300023023422022043"),
        // mode tcp, balance rdp-cookie(user): round robin where there is none
        (HashMap, key(user.clone(), Sdbm, false), "0312244000232332440420442330420210204003"),
        (HashRing, key(user, Sdbm, true), "2223242020343222000423443222243300404244"),
    ];
    for (kind, key, expected) in recorded {
        let served = picks(kind, &Settings::default(), &sent_by_v6(), Some(&key));
        assert_eq!(served, expected, "{kind} by {key:?}");
    }
}

/// `balance uri`, `hash-type consistent sdbm avalanche`, `hash-balance-factor`; no request ends.
#[test]
fn keys_of_a_server_at_its_bound_go_where_haproxy_sends_them() {
    let key = HashKey {
        of: KeySource::Uri(UriPart::default()),
        function: HashFunction::Sdbm,
        avalanche: true,
    };
    let recorded = [
        (125, "0324144222030420422203342302240204304220"),
        (200, "0324104222030420022203042302240304300220"),
    ];
    for (factor, expected) in recorded {
        let settings = Settings { hash_balance_factor: Some(factor), ..Settings::default() };
        let served = picks(PolicyKind::HashRing, &settings, &sent(), Some(&key));
        assert_eq!(served, expected, "{factor} %");
    }
}

/// `balance leastconn`, and `balance first` with a `maxconn` of 4, 9, 1, 16 and 20; no request ends.
#[test]
fn what_is_in_flight_leads_to_the_same_server() {
    let leastconn = "0123424204230422402342042130422402342042";
    assert_eq!(served(PolicyKind::LeastconnHaproxy, None), leastconn);
    let limits = [4, 9, 1, 16, 20];
    let mut first =
        PolicyKind::First.build_limited(&WEIGHTS, &Settings::default(), &limits).unwrap();
    let recorded = "0000111111111233333333333333334444444444";
    assert_eq!(picks_of(first.as_mut(), &sent(), None), recorded);
}
