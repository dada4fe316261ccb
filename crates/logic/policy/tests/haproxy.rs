//! Picks against those of a real HAProxy 2.6.12: the same five servers of weights 3, 1, 5, 2, 4, the same
//! forty requests, one after the other, recorded once (each backend answered with its own number).

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
}

impl RequestView for Sent {
    fn source(&self) -> Option<IpAddr> {
        Some(self.source)
    }

    fn target(&self) -> Option<&[u8]> {
        Some(self.uri.as_bytes())
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
    };
    (0..40).map(request).collect()
}

/// Who serves each request, as digits.
fn served(kind: PolicyKind, key: Option<&HashKey>) -> String {
    let mut policy: Box<dyn Policy> = kind.build(&WEIGHTS, &Settings::default()).unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut pick = |sent: &Sent| {
        let key = key.and_then(|k| k.key(sent));
        let request = key.map_or_else(Request::default, Request::with_key);
        policy.pick(&request, Nanos::ZERO, &mut rng).unwrap()
    };
    sent().iter().map(|s| pick(s).to_string()).collect()
}

#[test]
fn the_fixed_round_of_static_rr() {
    let recorded = "0124022340242340124022340242340124022340";
    assert_eq!(served(PolicyKind::StaticRoundRobin, None), recorded);
    assert_eq!(served(PolicyKind::First, None), "0".repeat(40), "without maxconn");
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
