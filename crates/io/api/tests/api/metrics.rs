//! `/metrics` is parsed by the rules of the Prometheus text format.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use crate::common::{Server, shop};
use plimsoll_api::Hub;
use plimsoll_control::{Record, RecordKind};
use plimsoll_model::{FailureKind, Outcome};

/// Samples by name with labels, and the type of each family. Panics on what the format forbids.
fn parse(page: &str) -> (BTreeMap<String, f64>, BTreeMap<String, String>) {
    let (mut samples, mut types, mut helped) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    let mut family = String::new();
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect("a text");
            assert!(!text.is_empty() && helped.insert(name.to_owned()), "{line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a type");
            assert!(helped.contains(name), "{line}");
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
            family = name.to_owned();
        } else {
            let (key, value) = line.rsplit_once(' ').expect("a value");
            let name = key.split('{').next().expect("a name");
            let suffix = name.strip_prefix(&family).expect("a sample of the family above");
            let allowed: &[&str] = match types[&family].as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                "summary" => &["_sum", "_count"],
                _ => &[""],
            };
            assert!(allowed.contains(&suffix), "{line}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{line}");
            let value: f64 = value.parse().expect("a number");
            assert!(samples.insert(key.to_owned(), value).is_none(), "{line} twice");
        }
    }
    (samples, types)
}

#[tokio::test]
async fn metrics_parse_and_hold_what_was_published() {
    let hub = Hub::new("0.1.0");
    let publisher = hub.add(shop("shop"));
    let counters = publisher.counters();
    counters.polled(Duration::from_millis(4));
    counters.solved(Duration::from_micros(250));
    counters.applied(2);
    counters.sink_failed();
    counters.store_failed();
    counters.probe("s1", Outcome::Success, Duration::from_millis(20));
    counters.probe("s2", Outcome::Failure(FailureKind::Timeout), Duration::ZERO);
    for kind in [RecordKind::Plan, RecordKind::Plan, RecordKind::Rollback] {
        let record = Record { kind, backend: None, reason: "why".to_owned() };
        publisher.record(SystemTime::now(), record);
    }
    let server = Server::start(hub).await;
    let answer = server.get("/metrics").await;
    assert!(answer.head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"));
    let (samples, types) = parse(&answer.body);

    for (key, value) in [
        ("plimsoll_build_info{version=\"0.1.0\"}", 1.0),
        ("plimsoll_ready", 1.0),
        ("plimsoll_service_rate_rps{service=\"shop\"}", 400.0),
        ("plimsoll_service_latency_seconds{service=\"shop\"}", 0.0345),
        ("plimsoll_service_drain_seconds{service=\"shop\"}", 2.5),
        ("plimsoll_service_phase{service=\"shop\",phase=\"steady\"}", 1.0),
        ("plimsoll_service_phase{service=\"shop\",phase=\"exploring\"}", 0.0),
        ("plimsoll_service_epoch{service=\"shop\"}", 12.0),
        ("plimsoll_backend_weight{service=\"shop\",backend=\"s1\"}", 192.0),
        ("plimsoll_backend_programmed_weight{service=\"shop\",backend=\"s2\"}", 64.0),
        ("plimsoll_backend_share_ratio{service=\"shop\",backend=\"s2\"}", 0.25),
        ("plimsoll_backend_latency_seconds{service=\"shop\",backend=\"s1\"}", 0.03),
        ("plimsoll_backend_state{service=\"shop\",backend=\"s2\",state=\"exploring\"}", 1.0),
        ("plimsoll_backend_state{service=\"shop\",backend=\"s2\",state=\"ready\"}", 0.0),
        ("plimsoll_backend_capacity_rps{service=\"shop\",backend=\"s1\"}", 600.0),
        ("plimsoll_plans_total{service=\"shop\"}", 2.0),
        ("plimsoll_rollbacks_total{service=\"shop\"}", 1.0),
        ("plimsoll_records_total{service=\"shop\",kind=\"plan\"}", 2.0),
        ("plimsoll_probes_total{service=\"shop\",backend=\"s1\",outcome=\"success\"}", 1.0),
        ("plimsoll_probes_total{service=\"shop\",backend=\"s2\",outcome=\"timeout\"}", 1.0),
        ("plimsoll_probe_duration_seconds_bucket{service=\"shop\",le=\"0.01\"}", 0.0),
        ("plimsoll_probe_duration_seconds_bucket{service=\"shop\",le=\"0.025\"}", 1.0),
        ("plimsoll_probe_duration_seconds_bucket{service=\"shop\",le=\"+Inf\"}", 1.0),
        ("plimsoll_probe_duration_seconds_count{service=\"shop\"}", 1.0),
        ("plimsoll_sink_errors_total{service=\"shop\"}", 1.0),
        ("plimsoll_store_errors_total{service=\"shop\"}", 1.0),
        ("plimsoll_sink_commands_total{service=\"shop\"}", 2.0),
        ("plimsoll_sink_poll_duration_seconds_count{service=\"shop\"}", 1.0),
        ("plimsoll_solver_duration_seconds_sum{service=\"shop\"}", 0.00025),
    ] {
        assert_eq!(samples.get(key), Some(&value), "{key}");
    }
    // Nothing is said of what is not known.
    assert!(!samples.keys().any(|key| key.starts_with("plimsoll_backend_expected_seconds")));
    for (name, kind) in &types {
        assert!(name.starts_with("plimsoll_"), "{name}");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
    }
}

#[tokio::test]
async fn every_metric_is_documented() {
    let hub = Hub::new("0.1.0");
    hub.add(shop("shop"));
    let server = Server::start(hub).await;
    let (_, types) = parse(&server.get("/metrics").await.body);
    let document = include_str!("../../../../../docs/api.md");
    for name in types.keys() {
        assert!(document.contains(&format!("`{name}`")), "docs/api.md lacks {name}");
    }
}
