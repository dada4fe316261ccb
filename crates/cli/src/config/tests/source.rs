//! `source`: what tells of requests where the balancer does not.

use plimsoll_sink::Source;

use super::{errors, parse};

/// The least that works with a Prometheus, and these lines beside it.
pub fn with(more: &str) -> String {
    format!(
        "services:
  - name: shop
    backends: [ {{ name: s1, address: \"10.0.2.2:80\" }} ]
    sink: {{ nginx_reload: {{ file: /n }} }}
    source:
      prometheus:
        url: http://127.0.0.1:9090
        rate: rate(x[30s])
        latency: y
        {more}
"
    )
}

#[test]
fn a_prometheus_is_read_with_its_queries() {
    let config = parse("F", &with("")).expect("valid");
    let Some(Source::Prometheus(found)) = &config.services[0].source else { panic!("{config:?}") };
    assert_eq!(found.place(), "Prometheus at http://127.0.0.1:9090");
    assert_eq!(found.lag().as_secs(), 35, "the range of the query and one interval");
    let text = with("range: 2m").replace("latency: y", "in_flight: y");
    let config = parse("F", &text).expect("valid");
    let Some(Source::Prometheus(found)) = &config.services[0].source else { panic!("{config:?}") };
    assert_eq!(found.lag().as_secs(), 125);
}

#[test]
fn what_is_wrong_with_a_prometheus_is_told_with_its_place() {
    for (from, to, said) in [
        (
            "url: http://127.0.0.1:9090",
            "url: https://h:1",
            "7:14: services[0].source.prometheus.url: expected http://host:port: TLS is not supported",
        ),
        (
            "url: http://127.0.0.1:9090",
            "url: 127.0.0.1:9090",
            "7:14: services[0].source.prometheus.url: expected http://host:port",
        ),
        ("        url: http://127.0.0.1:9090\n", "", "7:9: services[0].source.prometheus"),
        ("        rate: rate(x[30s])\n", "", "services[0].source.prometheus"),
        (
            "latency: y",
            "latencys: y",
            "9:9: services[0].source.prometheus.latencys: unknown key; did you mean \"latency\"?",
        ),
        (
            "        latency: y\n",
            "",
            "expected besides rate one of latency (seconds) and in_flight",
        ),
        (
            "latency: y",
            "latency: \" \"",
            "9:18: services[0].source.prometheus.latency: expected a query in PromQL",
        ),
        (
            "latency: y",
            "latency: y\n        label: a-b",
            "10:16: services[0].source.prometheus.label: expected a label's name",
        ),
        (
            "latency: y",
            "latency: y\n        interval: 5",
            "10:19: services[0].source.prometheus.interval",
        ),
        (
            "latency: y",
            "latency: y\n        interval: 1ms",
            "10:19: services[0].source.prometheus.interval",
        ),
    ] {
        let text = with("");
        assert!(text.contains(from), "{from}");
        let found = errors(&text.replace(from, to));
        assert!(found.iter().any(|error| error.contains(said)), "{to}: {found:?}");
    }
    let both = with("").replace(
        "      prometheus:",
        "      access_log: { listen: \"127.0.0.1:5514\", format: envoy }\n      prometheus:",
    );
    let found = errors(&both);
    assert!(found.iter().any(|error| error.contains("expected one source")), "{found:?}");
}
