//! Requests as clients send them, drawn from a seed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plimsoll_policy::RequestView;
use rand::Rng;

use super::cases::Case;

/// One request: its bytes, and what our policies read of it.
pub struct Sent {
    target: String,
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
        Some(self.target.as_bytes())
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

/// The authority of an absolute target, which the `Host` must name as well.
const HOST: &str = "shop.example";

impl Sent {
    /// The next one for this method.
    pub fn draw(case: &Case, rng: &mut impl Rng) -> Self {
        let source = if case.v6 {
            Ipv6Addr::from(rng.random::<u128>() >> 3 | 0x2 << 124).into()
        } else {
            // What begins with 0 or 224 and more is no client's address.
            Ipv4Addr::from(rng.random_range(0x0100_0000..0xe000_0000_u32)).into()
        };
        Sent {
            target: target(rng),
            agent: agent(rng),
            cookie: cookie(rng),
            source,
            payload: rdp(rng),
        }
    }

    /// What goes over the wire: the PROXY protocol's line, which says who the client is, and the request.
    pub fn bytes(&self, case: &Case) -> Vec<u8> {
        let mut bytes = match self.source {
            IpAddr::V4(v4) => format!("PROXY TCP4 {v4} 127.0.0.1 1000 80\r\n"),
            IpAddr::V6(v6) => format!("PROXY TCP6 {v6} ::1 1000 80\r\n"),
        }
        .into_bytes();
        if case.is_rdp() {
            bytes.extend_from_slice(&self.payload);
            return bytes;
        }
        let mut head =
            format!("GET {} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n", self.target);
        for (name, value) in [("User-Agent", &self.agent), ("Cookie", &self.cookie)] {
            if let Some(value) = value {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        head.push_str("\r\n");
        bytes.extend_from_slice(head.as_bytes());
        bytes
    }
}

/// One word in so many is drawn again and again; the others are new.
fn word(rng: &mut impl Rng) -> String {
    let usual = ["a", "shop", "wp-content", "img", "api", "2022", "cart", "post"];
    if rng.random_bool(0.5) {
        usual[rng.random_range(0..usual.len())].to_owned()
    } else {
        format!("{:x}", rng.random::<u32>() >> rng.random_range(0..24))
    }
}

/// A path of up to five words; one in eight as an absolute URI, half of them with a query.
fn target(rng: &mut impl Rng) -> String {
    let mut target = String::new();
    if rng.random_ratio(1, 8) {
        target.push_str("http://");
        target.push_str(HOST);
    }
    target.push('/');
    let words = rng.random_range(0..6);
    for i in 0..words {
        target.push_str(&word(rng));
        if i + 1 < words || rng.random_bool(0.5) {
            target.push('/');
        }
    }
    if rng.random_bool(0.5) {
        let names = ["id", "ID", "idx", "page", "x"];
        for i in 0..rng.random_range(1..4) {
            target.push(if i == 0 { '?' } else { '&' });
            target.push_str(names[rng.random_range(0..names.len())]);
            target.push('=');
            if rng.random_ratio(9, 10) {
                target.push_str(&word(rng));
            }
        }
    }
    target
}

fn agent(rng: &mut impl Rng) -> Option<String> {
    match rng.random_range(0..5) {
        0 => None,
        1 => Some("curl/7.88".to_owned()),
        2 => Some(format!("Mozilla/5.0 (X11, Linux) {}", word(rng))),
        3 => Some(format!("{}, \"quoted, {}\"", word(rng), word(rng))),
        _ => Some(word(rng)),
    }
}

fn cookie(rng: &mut impl Rng) -> Option<String> {
    match rng.random_range(0..5) {
        0 => None,
        1 => Some(format!("sid={}", word(rng))),
        2 => Some(format!("a=1; sid={}; b={}", word(rng), word(rng))),
        3 => Some(format!("xsid={}", word(rng))),
        _ => Some("sid=; b=2".to_owned()),
    }
}

/// A connection request of a remote desktop (MS-RDPBCGR 2.2.1.1), with a cookie or without.
fn rdp(rng: &mut impl Rng) -> Vec<u8> {
    let cookie = match rng.random_range(0..4) {
        0 => String::new(),
        1 => format!("Cookie: mstshash={}\r\n", word(rng)),
        2 => format!("Cookie: USER={}\r\n", word(rng)),
        _ => format!("Cookie: user={}\r\n", word(rng)),
    };
    let x224 = [b"\xe0\0\0\0\0\0", cookie.as_bytes()].concat();
    let length = (x224.len() + 5) as u16;
    let head = [3, 0, (length >> 8) as u8, length as u8, x224.len() as u8];
    [&head, x224.as_slice()].concat()
}
