//! Transparent capture: nftables sends what local processes send elsewhere to an egress entry, which asks the kernel where
//! it was going (`SO_ORIGINAL_DST`). A request that no route is for goes there.
//!
//! The rules are a table of their own, which is replaced as a whole and removed as a whole. What the proxy's own user sends is
//! not captured: its connections to backends would come back to it.

use std::net::SocketAddr;

use rustix::net::sockopt;
use tokio::net::TcpStream;

use crate::config::{Capture, ProxyConfig};

/// The table that holds the rules.
pub const TABLE: &str = "inet plimsoll_proxy";

/// The rules of all entries that capture, for `nft -f`; none where no entry does. Put in force, they take the place of those
/// that were there before, in one step.
pub fn rules(config: &ProxyConfig) -> Option<String> {
    let entries = config.egress.iter().filter_map(|entry| Some((entry, entry.capture.as_ref()?)));
    let mut lines = String::new();
    for (entry, capture) in entries {
        let ports: Vec<String> = capture.ports.iter().map(u16::to_string).collect();
        let Capture { except_user, .. } = capture;
        for network in &capture.networks {
            let family = if network.is_ipv4() { "ip" } else { "ip6" };
            lines.push_str(&format!(
                "    meta skuid != {except_user} {family} daddr {network} tcp dport {{ {} }} redirect to :{} comment \"{}\"\n",
                ports.join(", "),
                entry.listen.port(),
                entry.name
            ));
        }
    }
    if lines.is_empty() {
        return None;
    }
    Some(format!(
        "{}table {TABLE} {{\n  chain output {{\n    type nat hook output priority -100; policy accept;\n{lines}  }}\n}}\n",
        removal()
    ))
}

/// What removes the rules, for `nft -f`, whether they are there or not.
pub fn removal() -> String {
    format!("table {TABLE} {{}}\ndelete table {TABLE}\n")
}

/// Where a captured connection was going. None where it was not captured: the client has connected to the entry itself.
pub(crate) fn original(stream: &TcpStream) -> Option<SocketAddr> {
    let v4 = || sockopt::ip_original_dst(stream).ok().map(SocketAddr::from);
    let v6 = || sockopt::ipv6_original_dst(stream).ok().map(SocketAddr::from);
    // One that was not redirected was going where it is: to send it there would be to send it here.
    let here = stream.local_addr().ok()?;
    v4().or_else(v6).filter(|to| !is_same(*to, here))
}

/// Also where one is written as an IPv6 address, as those of a socket that listens on `[::]`.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip().to_canonical(), one.port()) == (other.ip().to_canonical(), other.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_same_however_its_family_writes_it() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(is_same(at("10.0.0.1:15001"), at("[::ffff:10.0.0.1]:15001")));
        assert!(!is_same(at("10.0.0.1:15001"), at("10.0.0.1:80")));
        assert!(!is_same(at("10.0.0.1:15001"), at("10.0.0.2:15001")));
    }
}
