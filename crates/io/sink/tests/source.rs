//! Access logs of a real HAProxy by syslog, in the place of its own counters.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use common::{Haproxy, free_port, named};
use plimsoll_model::{BackendId, BalancerReport};
use plimsoll_sink::{
    AccessLog, HaproxyConfig, LogFormat, Sink, SinkHandle, SinkReport, Sinks, SocketAddress,
    Source, Steered, Steering,
};
use plimsoll_testbed::load::{LoadSpec, Target, start};
use plimsoll_testbed::{BackendSpec, Service, Testbed, TestbedSpec};

const PATIENCE: Duration = Duration::from_secs(30);

/// A port for datagrams that was free a moment ago.
fn log_address() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port")
}

fn steer(
    haproxy: &Haproxy,
    source: Option<Source>,
    addresses: Vec<(String, BackendId)>,
) -> SinkHandle {
    let socket = SocketAddress::Unix(haproxy.socket("admin"));
    // It does not hang: that the machine has no time is no failure.
    let timeout = Duration::from_secs(10);
    let config = HaproxyConfig { timeout, ..HaproxyConfig::new(socket, "shop") };
    let sinks = Sinks::from(Sink::Haproxy(config));
    let steered = Steered {
        service: "shop".to_owned(),
        servers: named(&["s1", "s2"]),
        observe: true,
        source: source.map(|source| (source, addresses)),
    };
    sinks.start(&Steering::new(Instant::now()), steered).expect("starts")
}

async fn until<T>(handle: &mut SinkHandle, mut is_so: impl FnMut(SinkReport) -> Option<T>) -> T {
    let found = async {
        loop {
            let report = handle.reports.recv().await.expect("the task lives");
            if let Some(found) = is_so(report) {
                return found;
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("it happens")
}

fn totals(report: &BalancerReport) -> Vec<(u64, u64)> {
    report.servers.iter().map(|s| (s.started_total, s.errors_total)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_haproxys_log_tells_is_what_its_counters_say() {
    let takes = Duration::from_millis(50);
    let backend = |name: &str| BackendSpec {
        cores: 8,
        error_rate: if name == "s2" { 0.5 } else { 0.0 },
        ..BackendSpec::new(name, Service::deterministic(takes))
    };
    let bed =
        Testbed::start(TestbedSpec { admin: None, backends: ["s1", "s2"].map(backend).into() });
    let bed = bed.expect("backends");
    let (port, log) = (free_port(), log_address());
    let servers: String = bed
        .addresses()
        .iter()
        .map(|(name, at)| format!("  server {name} {at} weight 100\n"))
        .collect();
    let haproxy = Haproxy::start(&format!(
        "\nfrontend front\n  bind 127.0.0.1:{port}\n  log {log} local0\n  option httplog\n  default_backend shop\n\
         backend shop\n  balance roundrobin\n{servers}"
    ));
    let source = Source::AccessLog(AccessLog {
        listen: log,
        format: LogFormat::Haproxy,
        lag: Duration::from_millis(300),
    });
    let mut by_log = steer(&haproxy, Some(source), Vec::new());
    let mut by_counters = steer(&haproxy, None, Vec::new());
    // Noise of every kind comes to the same port, and is no reason to miss a line.
    let noise = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for bad in [
        &b"\xff\xfe\x00"[..],
        b"",
        b"] ",
        b"<134>x haproxy[1]: a [b] c d/e 1/2/3/4/5 x",
        &[b'/'; 9_000],
    ] {
        noise.send_to(bad, log).expect("sent");
    }
    let note = until(&mut by_log, |report| match report {
        SinkReport::Note(note) => Some(note),
        _ => None,
    })
    .await;
    assert!(note.contains("of the access log were not understood"), "{note}");

    let target = Target::resolve(&format!("http://127.0.0.1:{port}/")).expect("a URL");
    let load = start(LoadSpec::poisson(target, 100.0, Duration::from_secs(3))).expect("clients");
    // While requests come, about 100 × 0.05 are in flight, in both views.
    let (mut sum, mut readings) = (0.0, 0.0);
    while !load.is_finished() {
        let report = until(&mut by_log, |report| match report {
            SinkReport::Read(report, _) => Some(report),
            _ => None,
        })
        .await;
        sum += report.servers.iter().map(|s| f64::from(s.in_flight)).sum::<f64>();
        readings += 1.0;
    }
    let sent = load.join().expect("a report").total.requests;
    assert!(sum / readings > 1.0, "{:.2} in flight in the mean", sum / readings);
    let read = |report| match report {
        SinkReport::Read(report, _)
            if report.servers.iter().map(|s| s.started_total).sum::<u64>() >= sent
                && report.servers.iter().all(|s| s.in_flight == 0) =>
        {
            Some(report)
        }
        _ => None,
    };
    let counters = until(&mut by_counters, read).await;
    let logged = until(&mut by_log, read).await;
    assert_eq!(totals(&logged), totals(&counters));
    assert!(logged.servers[1].errors_total > 0 && logged.servers[0].errors_total == 0);
    assert_eq!(logged.servers[0].weight, 100, "weights are the balancer's");
    let answered = |report: &BalancerReport| {
        report.servers.iter().map(|s| s.answered_total).collect::<Vec<_>>()
    };
    assert_eq!(answered(&logged), answered(&counters));
}

/// What is told of the source's trouble next, if it is another one.
async fn trouble(handle: &mut SinkHandle) -> Option<String> {
    until(handle, |report| match report {
        SinkReport::Degraded(loss) => Some(loss.map(|loss| loss.reason)),
        _ => None,
    })
    .await
}

#[tokio::test]
async fn a_port_that_is_taken_is_said_and_listened_to_once_it_is_free() {
    let haproxy =
        Haproxy::start("\nbackend shop\n  server s1 127.0.0.1:1\n  server s2 127.0.0.1:1\n");
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let listen = taken.local_addr().expect("its address");
    let lag = Duration::from_millis(100);
    let log = AccessLog { listen, format: LogFormat::Nginx, lag };
    assert!(log.try_to_listen().is_err());
    let mut handle = steer(&haproxy, Some(Source::AccessLog(log)), Vec::new());
    let said = trouble(&mut handle).await.expect("a trouble");
    assert!(said.contains("cannot be listened to at") && said.contains("in use"), "{said}");
    drop(taken);
    assert_eq!(trouble(&mut handle).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_tells_nothing_of_requests_that_the_balancer_counts_is_a_trouble() {
    let backend = |name: &str| BackendSpec::new(name, Service::deterministic(Duration::ZERO));
    let bed =
        Testbed::start(TestbedSpec { admin: None, backends: ["s1", "s2"].map(backend).into() });
    let bed = bed.expect("backends");
    let (port, listen) = (free_port(), log_address());
    let servers: String =
        bed.addresses().iter().map(|(name, at)| format!("  server {name} {at}\n")).collect();
    let haproxy = Haproxy::start(&format!(
        "\nfrontend front\n  bind 127.0.0.1:{port}\n  default_backend shop\nbackend shop\n  balance roundrobin\n\
         {servers}"
    ));
    let lag = Duration::from_millis(100);
    let log = AccessLog { listen, format: LogFormat::Haproxy, lag };
    let mut handle = steer(&haproxy, Some(Source::AccessLog(log)), Vec::new());
    let target = Target::resolve(&format!("http://127.0.0.1:{port}/")).expect("a URL");
    let _load = start(LoadSpec::poisson(target, 50.0, Duration::from_secs(60))).expect("clients");
    let line = |server: &str| {
        format!(
            "haproxy[7]: 127.0.0.1:1234 [25/Nov/2026:09:00:00.123] front shop/{server} 0/0/0/1/1 200 1 - - ---- 1/1/0/0/0 0/0 \"x\""
        )
    };
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
    sender.send_to(line("s9").as_bytes(), listen).expect("sent");
    let said = trouble(&mut handle).await.expect("a trouble");
    assert!(said.contains("the balancer has counted") && said.contains("one names s9"), "{said}");
    sender.send_to(line("s1").as_bytes(), listen).expect("sent");
    assert_eq!(trouble(&mut handle).await, None);
}
