//! What `plimsoll proxy status` tells, in the Prometheus text format. docs/proxy.md lists the metrics.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

use axum::Router;
use axum::routing::get;
use plimsoll_api::{Kind, Page, serve_routes};
use plimsoll_proxy::{BackendState, ClientStatus, Handle, RequestStatus, Status};
use tokio::net::TcpListener;

use crate::run::log::lost;
use crate::run::record::unix_ms;

/// Listens where metrics are to be served.
pub async fn bind(listen: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(listen)
        .await
        .map_err(|error| format!("proxy.metrics.listen: cannot listen on {listen}: {error}"))
}

/// Serves them.
pub async fn serve(listener: TcpListener, proxy: Handle) -> Result<(), String> {
    let started_unix_ms = unix_ms(SystemTime::now()) as i64;
    let page = move || async move { render(&proxy.status(), started_unix_ms) };
    serve_routes(listener, Router::new().route("/metrics", get(page)), std::future::pending())
        .await
        .map_err(|error| format!("proxy.metrics.listen: {error}"))
}

/// The requests to one backend of one entry, and how they are labelled.
struct Series<'a> {
    labels: Vec<(&'static str, &'a str)>,
    requests: &'a RequestStatus,
}

fn render(status: &Status, started_unix_ms: i64) -> Page {
    let mut page =
        Page::of_daemon(env!("CARGO_PKG_VERSION"), started_unix_ms, lost().load(Relaxed));
    clients(&mut page, status);
    admission(&mut page, status);
    retries(&mut page, status);
    members(&mut page, status);
    backends(&mut page, &series(status));
    if let Some(log) = &status.access_log {
        page.family(
            "plimsoll_proxy_access_log_lines_total",
            Kind::Counter,
            "Lines of the access log, written, or dropped because the file did not take them.",
        );
        page.sample(&[("outcome", "written")], log.written as f64);
        page.sample(&[("outcome", "dropped")], log.dropped as f64);
    }
    page
}

fn series(status: &Status) -> Vec<Series<'_>> {
    let egress = status.egress.iter().flat_map(|entry| {
        entry.pools.iter().flat_map(move |pool| {
            pool.backends.iter().map(move |backend| Series {
                labels: vec![
                    ("entry", entry.name.as_str()),
                    ("pool", pool.name.as_str()),
                    ("policy", pool.policy.as_str()),
                    ("backend", backend.name.as_str()),
                ],
                requests: &backend.requests,
            })
        })
    });
    let ingress = status.ingress.iter().map(|entry| Series {
        labels: vec![("entry", entry.name.as_str()), ("backend", "application")],
        requests: &entry.application,
    });
    egress.chain(ingress).collect()
}

fn clients(page: &mut Page, status: &Status) {
    let of_egress = status.egress.iter().map(|entry| (entry.name.as_str(), &entry.clients));
    let of_ingress = status.ingress.iter().map(|entry| (entry.name.as_str(), &entry.clients));
    let entries: Vec<(&str, &ClientStatus)> = of_ingress.chain(of_egress).collect();
    type Of = fn(&ClientStatus) -> u64;
    let families: [(&'static str, Kind, &str, Of); 8] = [
        ("plimsoll_proxy_connections", Kind::Gauge, "Open connections of clients.", |c| {
            c.connections
        }),
        ("plimsoll_proxy_requests_total", Kind::Counter, "Requests read.", |c| c.requests),
        (
            "plimsoll_proxy_malformed_total",
            Kind::Counter,
            "Requests that could not be passed on: no host, no route.",
            |c| c.malformed,
        ),
        (
            "plimsoll_proxy_timeouts_total",
            Kind::Counter,
            "Requests without a response in time.",
            |c| c.timeouts,
        ),
        (
            "plimsoll_proxy_turned_away_total",
            Kind::Counter,
            "Connections turned away at the limit.",
            |c| c.turned_away,
        ),
        (
            "plimsoll_proxy_accept_failures_total",
            Kind::Counter,
            "Times that no connection could be accepted.",
            |c| c.accept_failures,
        ),
        (
            "plimsoll_proxy_tls_total",
            Kind::Counter,
            "Connections turned away because they began with TLS.",
            |c| c.tls,
        ),
        (
            "plimsoll_proxy_http2_total",
            Kind::Counter,
            "Connections turned away because they began with HTTP/2.",
            |c| c.http2,
        ),
    ];
    for (name, kind, help, of) in families {
        page.family(name, kind, help);
        for (entry, clients) in &entries {
            page.sample(&[("entry", entry)], of(clients) as f64);
        }
    }
}

fn admission(page: &mut Page, status: &Status) {
    page.family("plimsoll_proxy_admitted_total", Kind::Counter, "Requests admitted.");
    for entry in &status.ingress {
        page.sample(&[("entry", &entry.name)], entry.admitted as f64);
    }
    page.family("plimsoll_proxy_refused_total", Kind::Counter, "Requests refused, by reason.");
    for entry in &status.ingress {
        for (reason, count) in
            [("full", entry.full), ("queue", entry.queue), ("deadline", entry.deadline)]
        {
            page.sample(&[("entry", &entry.name), ("reason", reason)], count as f64);
        }
    }
    page.family(
        "plimsoll_proxy_chips_sent_total",
        Kind::Counter,
        "Responses that said whether there is room (chip 1) or not (chip 0).",
    );
    for entry in &status.ingress {
        page.sample(&[("entry", &entry.name), ("chip", "1")], entry.chips_sent as f64);
        page.sample(&[("entry", &entry.name), ("chip", "0")], entry.sent_without_chip as f64);
    }
    page.family(
        "plimsoll_proxy_capacity",
        Kind::Gauge,
        "The most that may be in flight; none while all is admitted.",
    );
    for entry in &status.ingress {
        if let Some(capacity) = entry.capacity {
            page.sample(&[("entry", &entry.name)], capacity);
        }
    }
}

fn retries(page: &mut Page, status: &Status) {
    let pools = || {
        status
            .egress
            .iter()
            .flat_map(|entry| entry.pools.iter().map(move |pool| (entry.name.as_str(), pool)))
    };
    page.family(
        "plimsoll_proxy_retries_total",
        Kind::Counter,
        "Requests sent once more after a refusal or a failure, and those that were not.",
    );
    for (entry, pool) in pools() {
        for (granted, count) in [("yes", pool.retried), ("no", pool.not_retried)] {
            let labels = [("entry", entry), ("pool", pool.name.as_str()), ("granted", granted)];
            page.sample(&labels, count as f64);
        }
    }
    page.family(
        "plimsoll_proxy_without_backend_total",
        Kind::Counter,
        "Requests for which no backend could be picked.",
    );
    for (entry, pool) in pools() {
        let labels = [("entry", entry), ("pool", pool.name.as_str())];
        page.sample(&labels, pool.without_backend as f64);
    }
    page.family(
        "plimsoll_proxy_ineligible_picks_total",
        Kind::Counter,
        "Picks of a backend that was not eligible, for none was: all were without a chip, or ejected.",
    );
    for (entry, pool) in pools() {
        let policy = pool.policy.as_str();
        let labels = [("entry", entry), ("pool", pool.name.as_str()), ("policy", policy)];
        page.sample(&labels, pool.ineligible as f64);
    }
    let queues = || pools().filter_map(|(entry, pool)| Some((entry, pool, pool.queue?)));
    page.family(
        "plimsoll_proxy_queue_length",
        Kind::Gauge,
        "Requests that wait for room at a backend, in pools with refusals.queue.",
    );
    for (entry, pool, queue) in queues() {
        page.sample(&[("entry", entry), ("pool", pool.name.as_str())], queue.now as f64);
    }
    page.family(
        "plimsoll_proxy_queue_entered_total",
        Kind::Counter,
        "Requests that began to wait for room.",
    );
    for (entry, pool, queue) in queues() {
        page.sample(&[("entry", entry), ("pool", pool.name.as_str())], queue.total as f64);
    }
    page.family(
        "plimsoll_proxy_queue_failures_total",
        Kind::Counter,
        "Requests that had waited for room and were refused in the end, or whose clients left while they waited.",
    );
    for (entry, pool, queue) in queues() {
        for (why, count) in [("refused", queue.refused), ("client_left", queue.client_left)] {
            let labels = [("entry", entry), ("pool", pool.name.as_str()), ("reason", why)];
            page.sample(&labels, count as f64);
        }
    }
}

/// Whether backends serve, and by which weight.
fn members(page: &mut Page, status: &Status) {
    let all = || {
        status.egress.iter().flat_map(|entry| {
            entry.pools.iter().flat_map(move |pool| {
                pool.backends.iter().map(move |backend| (entry, pool, backend))
            })
        })
    };
    page.family("plimsoll_proxy_weight", Kind::Gauge, "The weight in force.");
    for (entry, pool, backend) in all() {
        let labels = [("entry", &*entry.name), ("pool", &*pool.name), ("backend", &*backend.name)];
        page.sample(&labels, f64::from(backend.weight));
    }
    page.family(
        "plimsoll_proxy_up",
        Kind::Gauge,
        "1 where a backend serves; 0 where it is down, drained, or has left its pool.",
    );
    for (entry, pool, backend) in all() {
        let labels = [("entry", &*entry.name), ("pool", &*pool.name), ("backend", &*backend.name)];
        page.sample(&labels, if backend.state == BackendState::Up { 1.0 } else { 0.0 });
    }
}

fn backends(page: &mut Page, series: &[Series<'_>]) {
    page.family("plimsoll_proxy_in_flight", Kind::Gauge, "Requests sent and not ended.");
    for Series { labels, requests } in series {
        page.sample(labels, requests.in_flight as f64);
    }
    page.family("plimsoll_proxy_sent_total", Kind::Counter, "Requests sent, by how they ended.");
    for Series { labels, requests } in series {
        let endings = [
            ("success", requests.succeeded),
            ("failure", requests.failed),
            ("abandoned", requests.abandoned),
            ("no_socket", requests.no_socket),
            ("rejected", requests.rejected),
            ("too_late", requests.too_late),
        ];
        for (ending, count) in endings {
            let mut labels = labels.clone();
            labels.push(("ending", ending));
            page.sample(&labels, count as f64);
        }
    }
    page.family(
        "plimsoll_proxy_chips_seen_total",
        Kind::Counter,
        "Responses that said whether the backend has room (chip 1) or not (chip 0).",
    );
    for Series { labels, requests } in series {
        for (chip, count) in [("1", requests.chips), ("0", requests.responses_without_chip)] {
            let mut labels = labels.clone();
            labels.push(("chip", chip));
            page.sample(&labels, count as f64);
        }
    }
    page.family(
        "plimsoll_proxy_connections_failed_total",
        Kind::Counter,
        "Connections to a backend that could not be made.",
    );
    for Series { labels, requests } in series {
        page.sample(labels, requests.connections_failed as f64);
    }
    page.family(
        "plimsoll_proxy_latency_seconds",
        Kind::Histogram,
        "Response times of requests that succeeded, to the last byte.",
    );
    for Series { labels, requests } in series {
        let infinite = ("+Inf".to_owned(), requests.succeeded);
        let buckets = requests.latency_buckets.iter();
        for (bound, count) in buckets.map(|(le, n)| (le.to_string(), *n)).chain([infinite]) {
            let mut labels = labels.clone();
            labels.push(("le", &bound));
            page.suffixed("_bucket", &labels, count as f64);
        }
        page.suffixed("_sum", labels, requests.latency_sum_s);
        page.suffixed("_count", labels, requests.succeeded as f64);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_proxy::{
        BackendStatus, EgressStatus, IngressStatus, LogStatus, PoolStatus, QueueStatus,
    };

    use super::*;

    fn clients(from: u64) -> ClientStatus {
        ClientStatus {
            connections: from,
            requests: from + 1,
            malformed: from + 2,
            timeouts: from + 3,
            turned_away: from + 4,
            accept_failures: from + 5,
            tls: from + 6,
            http2: from + 7,
        }
    }

    fn requests(from: u64) -> RequestStatus {
        RequestStatus {
            in_flight: from,
            sent: from + 1,
            succeeded: from + 2,
            failed: from + 3,
            abandoned: from + 4,
            no_socket: from + 5,
            rejected: from + 6,
            too_late: from + 7,
            chips: from + 8,
            responses_without_chip: from + 9,
            connections_failed: from + 10,
            latency_sum_s: 0.25,
            latency_buckets: vec![(0.005, 1), (0.01, from)],
        }
    }

    fn status() -> Status {
        let address = "127.0.0.1:8080".parse().expect("an address");
        let backend = |name: &str, weight, state, from| BackendStatus {
            name: name.to_owned(),
            address,
            weight,
            state,
            requests: requests(from),
        };
        let pool = PoolStatus {
            name: "web".to_owned(),
            policy: "bloc".to_owned(),
            retried: 301,
            not_retried: 302,
            without_backend: 303,
            ineligible: 304,
            queue: Some(QueueStatus { now: 305, total: 306, refused: 307, client_left: 308 }),
            trouble: None,
            backends: vec![
                backend("b1", 7, BackendState::Up, 400),
                backend("b2", 9, BackendState::Down, 500),
            ],
        };
        let egress = EgressStatus {
            name: "shop".to_owned(),
            listen: address,
            clients: clients(100),
            pools: vec![pool],
        };
        let ingress = IngressStatus {
            name: "app".to_owned(),
            listen: address,
            upstream: address,
            clients: clients(200),
            capacity: Some(12.5),
            admitted: 601,
            full: 602,
            queue: 603,
            deadline: 604,
            chips_sent: 605,
            sent_without_chip: 606,
            application: requests(700),
        };
        Status {
            threads: 1,
            most_connections: 1_000,
            uptime_s: 1.0,
            access_log: Some(LogStatus { written: 801, dropped: 802 }),
            ingress: vec![ingress],
            egress: vec![egress],
        }
    }

    #[test]
    fn every_number_of_the_status_has_its_metric() {
        let page = render(&status(), 0);
        let b1 = "entry=\"shop\",pool=\"web\",policy=\"bloc\",backend=\"b1\"";
        let member = |name: &str| format!("entry=\"shop\",pool=\"web\",backend=\"{name}\"");
        let mut expected: Vec<(String, f64)> = Vec::new();
        for (entry, from) in [("shop", 100.0), ("app", 200.0)] {
            let names = [
                "connections",
                "requests_total",
                "malformed_total",
                "timeouts_total",
                "turned_away_total",
                "accept_failures_total",
                "tls_total",
                "http2_total",
            ];
            for (name, offset) in names.into_iter().zip(0..) {
                expected.push((format!("{name}{{entry=\"{entry}\"}}"), from + f64::from(offset)));
            }
        }
        let application = "entry=\"app\",backend=\"application\"";
        for (labels, from) in [(b1, 400.0), (application, 700.0)] {
            expected.push((format!("in_flight{{{labels}}}"), from));
            let endings = ["success", "failure", "abandoned", "no_socket", "rejected", "too_late"];
            for (ending, offset) in endings.into_iter().zip(2..) {
                let sample = format!("sent_total{{{labels},ending=\"{ending}\"}}");
                expected.push((sample, from + f64::from(offset)));
            }
            expected.extend([
                (format!("chips_seen_total{{{labels},chip=\"1\"}}"), from + 8.0),
                (format!("chips_seen_total{{{labels},chip=\"0\"}}"), from + 9.0),
                (format!("connections_failed_total{{{labels}}}"), from + 10.0),
                (format!("latency_seconds_bucket{{{labels},le=\"0.005\"}}"), 1.0),
                (format!("latency_seconds_bucket{{{labels},le=\"0.01\"}}"), from),
                (format!("latency_seconds_bucket{{{labels},le=\"+Inf\"}}"), from + 2.0),
                (format!("latency_seconds_sum{{{labels}}}"), 0.25),
                (format!("latency_seconds_count{{{labels}}}"), from + 2.0),
            ]);
        }
        let pool = "entry=\"shop\",pool=\"web\"";
        expected.extend([
            ("admitted_total{entry=\"app\"}".to_owned(), 601.0),
            ("refused_total{entry=\"app\",reason=\"full\"}".to_owned(), 602.0),
            ("refused_total{entry=\"app\",reason=\"queue\"}".to_owned(), 603.0),
            ("refused_total{entry=\"app\",reason=\"deadline\"}".to_owned(), 604.0),
            ("chips_sent_total{entry=\"app\",chip=\"1\"}".to_owned(), 605.0),
            ("chips_sent_total{entry=\"app\",chip=\"0\"}".to_owned(), 606.0),
            ("capacity{entry=\"app\"}".to_owned(), 12.5),
            (format!("retries_total{{{pool},granted=\"yes\"}}"), 301.0),
            (format!("retries_total{{{pool},granted=\"no\"}}"), 302.0),
            (format!("without_backend_total{{{pool}}}"), 303.0),
            (format!("ineligible_picks_total{{{pool},policy=\"bloc\"}}"), 304.0),
            (format!("queue_length{{{pool}}}"), 305.0),
            (format!("queue_entered_total{{{pool}}}"), 306.0),
            (format!("queue_failures_total{{{pool},reason=\"refused\"}}"), 307.0),
            (format!("queue_failures_total{{{pool},reason=\"client_left\"}}"), 308.0),
            (format!("weight{{{}}}", member("b1")), 7.0),
            (format!("weight{{{}}}", member("b2")), 9.0),
            (format!("up{{{}}}", member("b1")), 1.0),
            (format!("up{{{}}}", member("b2")), 0.0),
            ("access_log_lines_total{outcome=\"written\"}".to_owned(), 801.0),
            ("access_log_lines_total{outcome=\"dropped\"}".to_owned(), 802.0),
        ]);
        let lines: Vec<&str> = page.text().lines().collect();
        for (sample, value) in expected {
            let line = format!("plimsoll_proxy_{sample} {value}");
            assert!(lines.contains(&line.as_str()), "{line} is not on the page:\n{}", page.text());
        }
        // Nothing is on the page that docs/proxy.md does not list.
        let documented = include_str!("../../../../docs/proxy.md");
        for line in lines.iter().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let name = line.split(' ').next().unwrap_or_default();
            if let Some(name) = name.strip_prefix("plimsoll_proxy_") {
                assert!(documented.contains(&format!("`{name}`")), "docs/proxy.md lacks {name}");
            }
        }
    }
}
