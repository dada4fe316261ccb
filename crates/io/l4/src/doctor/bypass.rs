//! Replies that do not pass the balancer, so that no cookie is written into them: the client's next segment could go
//! to any server. So it is where a server has a route of its own to clients, as to those on one of its links.
//!
//! What the last seconds tell counts; where they are too quiet, all that a balancer has served here so far.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Finding;
use crate::config::{L4Config, Vip};
use crate::status::{BackendStatus, VipStatus, status};

/// Between two readings.
const APART: Duration = Duration::from_secs(2);
/// Fewer connections or segments tell nothing.
const ENOUGH: u64 = 10;
/// One segment in so many without a known cookie is more than scans and lost keys make.
const MANY: u64 = 100;

/// What a balancer has counted, and when it was read.
pub struct Reading {
    at: Instant,
    vips: Vec<VipStatus>,
}

impl Reading {
    /// `None` where no balancer has served.
    pub fn of(pin_dir: &Path) -> Option<Reading> {
        let vips = status(pin_dir).ok()?.vips;
        Some(Reading { at: Instant::now(), vips })
    }
}

/// All services, [`APART`] after the first reading.
pub fn examine(config: &L4Config, before: Option<&Reading>) -> Vec<Finding> {
    let Some(before) = before else { return Vec::new() };
    sleep((before.at + APART).saturating_duration_since(Instant::now()));
    let Some(now) = Reading::of(&config.pin_dir) else { return Vec::new() };
    let of_vip = |vip: &Vip| {
        let seen = now.vips.iter().find(|seen| seen.name == vip.name)?;
        let was = before.vips.iter().find(|was| was.name == vip.name);
        Some(of_vip(vip, seen, was))
    };
    config.vips.iter().filter_map(of_vip).flatten().collect()
}

fn of_vip(config: &Vip, seen: &VipStatus, was: Option<&VipStatus>) -> Vec<Finding> {
    let restores = |server: &&BackendStatus| {
        config.backends.iter().any(|one| one.name == server.name && one.agent)
    };
    let mut findings = Vec::new();
    for server in seen.backends.iter().filter(|server| !restores(server)) {
        let all = Counted { foreign: foreign(seen), ..Counted::of(server) };
        let before = was.and_then(|was| {
            let server = was.backends.iter().find(|before| before.id == server.id)?;
            Some(Counted { foreign: foreign(was), ..Counted::of(server) })
        });
        findings.push(of_server(seen, &server.name, all, before));
    }
    let all = Counted::of_all(seen);
    findings.push(of_service(seen, all, was.map(Counted::of_all)));
    findings
}

fn foreign(vip: &VipStatus) -> u64 {
    vip.fallbacks["foreign_cookie"]
}

#[derive(Clone, Copy, Default)]
struct Counted {
    /// Connections begun.
    begun: u64,
    /// Segments from clients.
    segments: u64,
    /// Packets to clients.
    out: u64,
    /// The service's segments without a known cookie.
    foreign: u64,
}

impl Counted {
    fn of(server: &BackendStatus) -> Counted {
        Counted {
            begun: server.new_connections,
            segments: server.packets_in,
            out: server.packets_out,
            foreign: 0,
        }
    }

    fn of_all(vip: &VipStatus) -> Counted {
        let segments = vip.backends.iter().map(|one| one.packets_in).sum();
        Counted { segments, foreign: foreign(vip), ..Counted::default() }
    }

    fn since(self, before: Counted) -> Counted {
        Counted {
            begun: self.begun.saturating_sub(before.begun),
            segments: self.segments.saturating_sub(before.segments),
            out: self.out.saturating_sub(before.out),
            foreign: self.foreign.saturating_sub(before.foreign),
        }
    }
}

/// The last seconds' counts if `enough` was begun or sent in them, else all, and the words for which it is.
fn telling(
    all: Counted,
    before: Option<Counted>,
    enough: impl Fn(Counted) -> bool,
) -> (Counted, &'static str) {
    let recent = before.map(|before| all.since(before)).filter(|recent| enough(*recent));
    recent.map_or((all, "so far"), |recent| (recent, "in the last seconds"))
}

fn advice(vip: &VipStatus) -> String {
    let address = vip.address.map_or_else(|| "VIP".to_owned(), |at| at.ip().to_string());
    format!(
        "on the server: `ip rule add from {address} lookup 100` and `ip route add default via BALANCER table 100` \
         (docs/l4.md)"
    )
}

/// Each connection is answered by one segment at the least.
fn of_server(vip: &VipStatus, name: &str, all: Counted, before: Option<Counted>) -> Finding {
    let about = format!("{}/{name}", vip.name);
    let why = "a reply that does not pass the balancer has no cookie, and its connection breaks";
    let finding = Finding::new("replies", &about, why);
    let (of, when) = telling(all, before, |recent| recent.begun >= ENOUGH);
    let found = format!("{} connections begun, {} packets back {when}", of.begun, of.out);
    if of.begun < ENOUGH || of.out >= of.begun {
        return finding.ok(found);
    }
    if of.foreign < of.begun - of.out {
        let advice = format!("see whether it is down; if not, {}", advice(vip));
        return finding.warn(found, advice);
    }
    finding.fail(format!("{found}, {} segments without a known cookie", of.foreign), advice(vip))
}

/// Where some clients' replies pass and others' do not, or those of connections that began before.
fn of_service(vip: &VipStatus, all: Counted, before: Option<Counted>) -> Finding {
    let why = "a segment without a known cookie goes to a server by hash, which may be another's";
    let finding = Finding::new("cookies", &vip.name, why);
    let (of, when) = telling(all, before, |recent| recent.segments >= ENOUGH * MANY);
    let found = format!("{} of {} segments without a known cookie {when}", of.foreign, of.segments);
    if of.foreign < ENOUGH || of.foreign * MANY < of.segments {
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
