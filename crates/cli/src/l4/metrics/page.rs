//! What `plimsoll l4 status` tells, in the Prometheus text format. docs/l4.md lists the metrics.

use std::sync::atomic::Ordering::Relaxed;

use plimsoll_api::{Kind, Page, flag};
use plimsoll_l4::{BackendStatus, MemberState, RepliesBy, SetBy, Status, VipStatus};

use crate::run::log::lost;

const STATES: [(MemberState, &str); 3] =
    [(MemberState::Live, "live"), (MemberState::Gone, "gone"), (MemberState::Lost, "lost")];

const WAYS: [(RepliesBy, &str); 3] = [
    (RepliesBy::Uplink, "uplink"),
    (RepliesBy::DefaultRoute, "default_route"),
    (RepliesBy::RoutesAsked, "routes_asked"),
];

const SETTERS: [(SetBy, &str); 3] = [
    (SetBy::Configuration, "configuration"),
    (SetBy::Controller, "controller"),
    (SetBy::Load, "load"),
];

/// The page.
pub fn render(status: &Status, started_unix_ms: i64) -> Page {
    let mut page =
        Page::of_daemon(env!("CARGO_PKG_VERSION"), started_unix_ms, lost().load(Relaxed));
    of_balancer(&mut page, status);
    of_services(&mut page, &status.vips);
    traffic(&mut page, &status.vips);
    backends(&mut page, &status.vips);
    page
}

fn of_balancer(page: &mut Page, status: &Status) {
    let help = "1 when the program is on the interface, 0 when it should be and is not.";
    page.family("plimsoll_l4_attached", Kind::Gauge, help);
    for (interfaces, on) in [(&status.interfaces, true), (&status.missing, false)] {
        for interface in interfaces {
            page.sample(&[("interface", interface)], flag(on));
        }
    }
    page.family("plimsoll_l4_replies", Kind::Gauge, "1 for who says where replies go, by family.");
    for replies in &status.replies {
        for (by, name) in WAYS {
            page.sample(&[("family", replies.family), ("by", name)], flag(replies.by == by));
        }
    }
    let help = "1 while what the kernel's routes answer for a client is remembered.";
    page.family("plimsoll_l4_replies_remembered", Kind::Gauge, help);
    for replies in &status.replies {
        page.sample(&[("family", replies.family)], flag(replies.remembered));
    }
    let help = "Packets of no service that did not take the fast path.";
    page.family("plimsoll_l4_stray_packets_total", Kind::Counter, help);
    for (reason, count) in &status.stray {
        page.sample(&[("reason", reason)], *count as f64);
    }
}

fn of_services(page: &mut Page, vips: &[VipStatus]) {
    page.family("plimsoll_l4_weights_set_by", Kind::Gauge, "1 for who set the weights.");
    for vip in vips {
        for (setter, name) in SETTERS {
            let labels = [("service", vip.name.as_str()), ("by", name)];
            page.sample(&labels, flag(vip.weights.set_by == setter));
        }
    }
    page.family("plimsoll_l4_weights_epoch", Kind::Gauge, "The controller's plan in force.");
    for vip in vips {
        if let Some(epoch) = vip.weights.epoch {
            page.sample(&[("service", &vip.name)], epoch as f64);
        }
    }
    let help = "Replies for which the kernel's routes were asked.";
    page.family("plimsoll_l4_routes_asked_total", Kind::Counter, help);
    for vip in vips {
        page.sample(&[("service", &vip.name)], vip.routes_asked as f64);
    }
    page.family(
        "plimsoll_l4_fallbacks_total",
        Kind::Counter,
        "Packets that did not take the fast path.",
    );
    for vip in vips {
        for (reason, count) in &vip.fallbacks {
            page.sample(&[("service", &vip.name), ("reason", reason)], *count as f64);
        }
    }
}

/// A number that is counted for every server.
type Counted = fn(&BackendStatus) -> u64;

fn traffic(page: &mut Page, vips: &[VipStatus]) {
    let counters: [(&'static str, &str, Counted); 7] = [
        ("plimsoll_l4_backend_packets_in_total", "Packets from clients.", |b| b.packets_in),
        ("plimsoll_l4_backend_bytes_in_total", "Bytes from clients, with all headers.", |b| {
            b.bytes_in
        }),
        ("plimsoll_l4_backend_packets_out_total", "Packets to clients.", |b| b.packets_out),
        ("plimsoll_l4_backend_bytes_out_total", "Bytes to clients, with all headers.", |b| {
            b.bytes_out
        }),
        ("plimsoll_l4_backend_connections_total", "Connections begun.", |b| b.new_connections),
        (
            "plimsoll_l4_backend_clock_moved_total",
            "Replies by another clock than the server had.",
            |b| b.clock_moved,
        ),
        (
            "plimsoll_l4_backend_load_failures_total",
            "Times the server was asked for its load and did not tell.",
            |b| b.load_failures,
        ),
    ];
    for (name, help, count) in counters {
        page.family(name, Kind::Counter, help);
        each(page, vips, |backend| Some(count(backend) as f64));
    }
}

fn backends(page: &mut Page, vips: &[VipStatus]) {
    let help = "Connections begun and not ended, as far as packets tell.";
    page.family("plimsoll_l4_backend_open_connections", Kind::Gauge, help);
    each(page, vips, |backend| Some(backend.open_connections as f64));
    let help = "Share of new connections, as last programmed.";
    page.family("plimsoll_l4_backend_weight", Kind::Gauge, help);
    each(page, vips, |backend| Some(f64::from(backend.weight)));
    let help = "Part of the weight that counts: less than 1 while slow start spares the server.";
    page.family("plimsoll_l4_backend_weight_ratio", Kind::Gauge, help);
    each(page, vips, |backend| Some(backend.part));
    let help = "Busy part of the server's CPUs, as it tells.";
    page.family("plimsoll_l4_backend_load_ratio", Kind::Gauge, help);
    each(page, vips, |backend| backend.load);
    let help = "1 when the server's clock is known, as it is after its first reply.";
    page.family("plimsoll_l4_backend_clock_known", Kind::Gauge, help);
    each(page, vips, |backend| Some(flag(backend.clock_known)));
    page.family("plimsoll_l4_backend_state", Kind::Gauge, "1 for the state the server is in.");
    for vip in vips {
        for backend in &vip.backends {
            for (state, name) in STATES {
                let labels = [("service", &*vip.name), ("backend", &backend.name), ("state", name)];
                page.sample(&labels, flag(backend.state == state));
            }
        }
    }
}

/// A sample of every server; none where the value is not known.
fn each(page: &mut Page, vips: &[VipStatus], value: impl Fn(&BackendStatus) -> Option<f64>) {
    for vip in vips {
        for backend in &vip.backends {
            if let Some(value) = value(backend) {
                page.sample(&[("service", &vip.name), ("backend", &backend.name)], value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_l4::{RepliesStatus, WeightsStatus};

    fn backend(name: &str, load: Option<f64>) -> BackendStatus {
        BackendStatus {
            name: name.to_owned(),
            id: 1,
            state: MemberState::Lost,
            weight: 7,
            part: 0.4,
            load,
            load_failures: 1,
            mac: String::new(),
            packets_in: 10,
            bytes_in: 20,
            packets_out: 30,
            bytes_out: 40,
            new_connections: 50,
            open_connections: 60,
            clock_known: true,
            clock_moved: 70,
        }
    }

    fn replies(family: &'static str, by: RepliesBy) -> RepliesStatus {
        RepliesStatus {
            family,
            by,
            why: None,
            gateway: None,
            interface: None,
            mac: None,
            asked_for: Vec::new(),
            remembered: by == RepliesBy::RoutesAsked,
        }
    }

    #[test]
    fn all_of_a_status_is_on_the_page_and_what_is_not_known_is_not() {
        let weights = WeightsStatus {
            set_by: SetBy::Controller,
            who: "me".to_owned(),
            epoch: Some(12),
            unix_ms: Some(1),
        };
        let none = WeightsStatus {
            set_by: SetBy::Configuration,
            who: String::new(),
            epoch: None,
            unix_ms: None,
        };
        let vip = |name: &str, weights, backends| VipStatus {
            name: name.to_owned(),
            address: None,
            weights,
            backends,
            routes_asked: 3,
            fallbacks: [("icmp", 4)].into(),
        };
        let shop = vec![backend("s1", Some(0.25)), backend("s2", None)];
        let status = Status {
            pinned: "/sys/fs/bpf/x".into(),
            interfaces: vec!["eth0".to_owned()],
            missing: vec!["eth1".to_owned()],
            replies: [
                replies("ipv4", RepliesBy::DefaultRoute),
                replies("ipv6", RepliesBy::RoutesAsked),
            ],
            vips: vec![vip("shop", weights, shop), vip("a\"b", none, Vec::new())],
            stray: [("vlan", 5)].into(),
        };
        let page = render(&status, 1500);
        let samples: Vec<&str> = page.text().lines().filter(|l| !l.starts_with('#')).collect();
        let s1 = "service=\"shop\",backend=\"s1\"";
        for line in [
            concat!("plimsoll_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
            "plimsoll_start_time_seconds 1.5",
            "plimsoll_l4_attached{interface=\"eth0\"} 1",
            "plimsoll_l4_attached{interface=\"eth1\"} 0",
            "plimsoll_l4_replies{family=\"ipv4\",by=\"default_route\"} 1",
            "plimsoll_l4_replies{family=\"ipv6\",by=\"default_route\"} 0",
            "plimsoll_l4_replies{family=\"ipv6\",by=\"routes_asked\"} 1",
            "plimsoll_l4_replies_remembered{family=\"ipv4\"} 0",
            "plimsoll_l4_replies_remembered{family=\"ipv6\"} 1",
            "plimsoll_l4_stray_packets_total{reason=\"vlan\"} 5",
            "plimsoll_l4_weights_set_by{service=\"shop\",by=\"controller\"} 1",
            "plimsoll_l4_weights_set_by{service=\"a\\\"b\",by=\"configuration\"} 1",
            "plimsoll_l4_weights_epoch{service=\"shop\"} 12",
            "plimsoll_l4_routes_asked_total{service=\"shop\"} 3",
            "plimsoll_l4_fallbacks_total{service=\"shop\",reason=\"icmp\"} 4",
            &format!("plimsoll_l4_backend_packets_in_total{{{s1}}} 10"),
            &format!("plimsoll_l4_backend_bytes_in_total{{{s1}}} 20"),
            &format!("plimsoll_l4_backend_packets_out_total{{{s1}}} 30"),
            &format!("plimsoll_l4_backend_bytes_out_total{{{s1}}} 40"),
            &format!("plimsoll_l4_backend_connections_total{{{s1}}} 50"),
            &format!("plimsoll_l4_backend_open_connections{{{s1}}} 60"),
            &format!("plimsoll_l4_backend_clock_moved_total{{{s1}}} 70"),
            &format!("plimsoll_l4_backend_load_failures_total{{{s1}}} 1"),
            &format!("plimsoll_l4_backend_weight{{{s1}}} 7"),
            &format!("plimsoll_l4_backend_weight_ratio{{{s1}}} 0.4"),
            &format!("plimsoll_l4_backend_load_ratio{{{s1}}} 0.25"),
            &format!("plimsoll_l4_backend_clock_known{{{s1}}} 1"),
            &format!("plimsoll_l4_backend_state{{{s1},state=\"lost\"}} 1"),
            &format!("plimsoll_l4_backend_state{{{s1},state=\"live\"}} 0"),
        ] {
            assert_eq!(samples.iter().filter(|one| **one == line).count(), 1, "{line}");
        }
        let document = include_str!("../../../../../docs/l4.md");
        let families = page.text().lines().filter_map(|line| line.strip_prefix("# TYPE "));
        for family in families.filter_map(|line| line.split(' ').next()) {
            assert!(document.contains(&format!("`{family}`")), "docs/l4.md lacks {family}");
        }
        let of = |name: &str| samples.iter().filter(|one| one.starts_with(name)).count();
        assert_eq!(of("plimsoll_l4_backend_load_ratio"), 1, "the other's is not known");
        assert_eq!(of("plimsoll_l4_weights_epoch"), 1, "the other has no plan");
        assert_eq!(of("plimsoll_l4_backend_weight{"), 2);
    }
}
