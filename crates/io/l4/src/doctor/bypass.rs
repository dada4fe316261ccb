//! Replies that do not pass the balancer, so that no cookie is written into them: the client's next segment could go
//! to any server. So it is where a server has a route of its own to clients, as to those on one of its links.

use super::Finding;
use crate::config::L4Config;
use crate::status::{BackendStatus, VipStatus, status};

/// Fewer connections tell nothing.
const ENOUGH: u64 = 10;
/// One segment in so many without a known cookie is more than scans and lost keys make.
const MANY: u64 = 100;

/// All services that a balancer has served here so far.
pub fn examine(config: &L4Config) -> Vec<Finding> {
    let Ok(status) = status(&config.pin_dir) else { return Vec::new() };
    let mut findings = Vec::new();
    for vip in &config.vips {
        let Some(seen) = status.vips.iter().find(|seen| seen.name == vip.name) else { continue };
        let agents = vip.backends.iter().filter(|one| one.agent).map(|one| one.name.as_str());
        let agents: Vec<&str> = agents.collect();
        let restored = |one: &&BackendStatus| !agents.contains(&one.name.as_str());
        findings.extend(seen.backends.iter().filter(restored).map(|one| of_server(seen, one)));
        findings.push(of_service(seen));
    }
    findings
}

fn foreign(vip: &VipStatus) -> u64 {
    vip.fallbacks["foreign_cookie"]
}

fn advice(vip: &VipStatus) -> String {
    let address = vip.address.map_or_else(|| "VIP".to_owned(), |at| at.ip().to_string());
    format!(
        "on the server: `ip rule add from {address} lookup 100` and `ip route add default via BALANCER table 100` \
         (docs/l4.md)"
    )
}

/// Each connection is answered by one segment at the least.
fn of_server(vip: &VipStatus, server: &BackendStatus) -> Finding {
    let about = format!("{}/{}", vip.name, server.name);
    let why = "a reply that does not pass the balancer has no cookie, and its connection breaks";
    let finding = Finding::new("replies", &about, why);
    let (begun, out) = (server.new_connections, server.packets_out);
    let found = format!("{begun} connections begun, {out} packets back");
    if begun < ENOUGH || out >= begun {
        return finding.ok(found);
    }
    if foreign(vip) < begun - out {
        let advice = format!("see whether it is down; if not, {}", advice(vip));
        return finding.warn(found, advice);
    }
    finding.fail(format!("{found}, {} segments without a known cookie", foreign(vip)), advice(vip))
}

/// Where some clients' replies pass and others' do not.
fn of_service(vip: &VipStatus) -> Finding {
    let why = "a segment without a known cookie goes to a server by hash, which may be another's";
    let finding = Finding::new("cookies", &vip.name, why);
    let segments: u64 = vip.backends.iter().map(|one| one.packets_in).sum();
    let found = format!("{} of {segments} segments without a known cookie", foreign(vip));
    if foreign(vip) < ENOUGH || foreign(vip) * MANY < segments {
        return finding.ok(found);
    }
    finding.warn(
        found,
        format!(
            "compare the key files of balancers and agents; for clients on servers' links, {}",
            advice(vip)
        ),
    )
}
