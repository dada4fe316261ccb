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
fn errors_in_a_prometheus_source_are_reported_with_their_place() {
    const URL: &str = "        url: http://127.0.0.1:9090\n";
    const RATE: &str = "        rate: rate(x[30s])\n";
    const LATENCY: &str = "        latency: y\n";
    const AT: &str = "services[0].source.prometheus";
    for (from, to, place, said) in [
        (
            URL,
            "        url: https://h:1\n",
            "7:14: AT.url",
            "expected http://host:port: TLS is not supported; put a local proxy between, found \"https://h:1\"",
        ),
        (
            URL,
            "        url: 127.0.0.1:9090\n",
            "7:14: AT.url",
            "expected http://host:port, with a path where Prometheus has one, found \"127.0.0.1:9090\"",
        ),
        (URL, "", "7:9: AT.url", "missing; expected where Prometheus answers"),
        (RATE, "", "7:9: AT.rate", "missing; expected a query for requests per second"),
        (
            LATENCY,
            "        in_flights: y\n",
            "9:9: AT.in_flights",
            "unknown key; did you mean \"in_flight\"? expected one of url, interval, timeout, range, label, rate, \
             latency, in_flight, errors",
        ),
        (
            LATENCY,
            "",
            "7:9: AT",
            "expected besides rate one of latency (seconds) and in_flight: response times follow from either, found a \
             mapping",
        ),
        (
            LATENCY,
            "        latency: \" \"\n",
            "9:18: AT.latency",
            "expected a query in PromQL, found \" \"",
        ),
        (
            LATENCY,
            "        latency: y\n        label: a-b\n",
            "10:16: AT.label",
            "expected a label's name: letters, digits and _, found \"a-b\"",
        ),
        (
            LATENCY,
            "        latency: y\n        interval: 5\n",
            "10:19: AT.interval",
            "expected a time from 100ms to 300s with its unit (us, ms, s, m or h), found 5",
        ),
        (
            LATENCY,
            "        latency: y\n        interval: 1ms\n",
            "10:19: AT.interval",
            "expected a time from 100ms to 300s, found \"1ms\"",
        ),
    ] {
        let text = with("");
        assert!(text.contains(from), "{from}");
        let expected = format!("F:{}: {said}", place.replace("AT", AT));
        let found = errors(&text.replace(from, to));
        // What is missing because its key is misspelt is another line.
        assert!(found.contains(&expected), "{to}: {found:?} has no {expected:?}");
    }
    let both = with("").replace(
        "      prometheus:",
        "      access_log: { listen: \"127.0.0.1:5514\", format: envoy }\n      prometheus:",
    );
    let found = errors(&both);
    assert!(found.iter().any(|error| error.contains("expected one source")), "{found:?}");
}

#[test]
fn what_tells_nothing_of_its_requests_needs_a_source() {
    let text = with("");
    let silent = &text[..text.find("    source:").expect("it has one")];
    let said = "F:2:5: services[0].source: missing; expected { access_log: { listen: …, format: … } } or { prometheus: \
                { url: …, rate: …, latency: … } }: NGINX file /n tells nothing of its requests";
    assert_eq!(errors(silent), [said]);
    let beside = "    sinks:\n      - { nginx_reload: { file: /n } }\n      - { nginx: { socket: /s, upstream: u } }\n";
    let among = silent.replace("    sink: { nginx_reload: { file: /n } }\n", beside);
    assert_eq!(errors(&among), [said], "one of several");
}
