//! Under load: changes, reloads, dead servers and killed workers.

use std::time::Duration;

use plimsoll_model::MethodKind;
use plimsoll_sink::{ReportSource, WeightSink};
use plimsoll_testbed::load::{LoadSpec, Target, start};
use plimsoll_testbed::{Change, Mode};

use crate::contract::plan;
use crate::rig::{Nginx, bed, pool, until};

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_changes_under_load_cost_no_client_an_error_and_the_split_follows() {
    let bed = bed(3, Duration::from_millis(1));
    let Some(nginx) = Nginx::start(&[pool(&bed, false)], "") else { return };
    let mut sink = nginx.sink(&["s1", "s2", "s3"]);
    let target = Target::resolve(&format!("http://{}/work", nginx.address)).expect("a URL");
    let clients =
        start(LoadSpec::poisson(target.clone(), 400.0, Duration::from_secs(600))).expect("clients");
    let shapes = [[20, 30, 50], [80, 10, 10], [0, 1, 1], [1_000, 1, 999], [1, 0, 0], [34, 33, 33]];
    for change in 0..500 {
        let mut plan = plan(&shapes[change % shapes.len()]);
        plan.epoch = change as u64 + 1;
        sink.apply(&plan).await.expect("applied");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    clients.stop();
    let report = clients.join().expect("a report");
    assert_eq!(report.first_error, None, "{:?}", report.error_kinds);
    assert!(report.total.requests > 500, "{:?}", report.total.requests);
    assert_eq!(nginx.errors(), Vec::<String>::new());

    // What is counted: every request once, none left in flight; the split is that of the weights.
    let read = sink.read().await.expect("read");
    assert_eq!(read.method.kind, MethodKind::Split);
    let started: u64 = read.servers.iter().map(|s| s.started_total).sum();
    assert_eq!(started, report.total.requests, "requests of clients");
    sink.apply(&plan(&[20, 30, 50])).await.expect("applied");
    let before = sink.read().await.expect("read");
    let mut spec = LoadSpec::poisson(target, 400.0, Duration::from_secs(5));
    spec.seed = 2;
    let report = start(spec).expect("clients").join().expect("a report");
    let total = report.total.requests as f64;
    until("all to have ended", || {
        nginx.column("s1", 5) + nginx.column("s2", 5) + nginx.column("s3", 5) == 0
    });
    let after = sink.read().await.expect("read");
    for ((server, was), share) in after.servers.iter().zip(&before.servers).zip([0.2, 0.3, 0.5]) {
        let got = (server.started_total - was.started_total) as f64 / total;
        assert!((got - share).abs() < 0.02, "{got:.3} of {share}");
        assert_eq!(server.errors_total, 0);
        assert_eq!(server.answered_total, Some(server.started_total));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_keeps_the_weights_and_a_dead_server_costs_no_client_an_error() {
    let bed = bed(3, Duration::from_millis(1));
    let Some(nginx) = Nginx::start(&[pool(&bed, true)], "") else { return };
    let mut sink = nginx.sink(&["s1", "s2", "s3"]);
    assert_eq!(sink.read().await.expect("read").method.kind, MethodKind::InFlight);
    sink.apply(&plan(&[7, 8, 9])).await.expect("applied");
    let before = sink.read().await.expect("read");
    nginx.signal("HUP");
    let pools = || std::fs::read_to_string(nginx.dir.join("error.log")).unwrap_or_default();
    until("the reload", || pools().contains("gracefully shutting down"));
    let after = sink.read().await.expect("read");
    assert_eq!(after.generation, before.generation, "the dictionary outlives it");
    assert_eq!(after.servers.iter().map(|s| s.weight).collect::<Vec<_>>(), [7, 8, 9]);

    // Connections to s2 are refused from now on: the other attempt of each request succeeds.
    bed.set("s2", Change::mode(Mode::Refuse)).expect("the testbed runs");
    let target = Target::resolve(&format!("http://{}/work", nginx.address)).expect("a URL");
    let spec = LoadSpec::poisson(target, 200.0, Duration::from_secs(3));
    let report = start(spec).expect("clients").join().expect("a report");
    assert_eq!(report.first_error, None, "{:?}", report.error_kinds);
    let read = sink.read().await.expect("read");
    assert!(read.servers[1].errors_total > 0, "{:?}", read.servers[1]);
    assert_eq!(read.servers[0].errors_total + read.servers[2].errors_total, 0);
    let started: u64 = read.servers.iter().map(|s| s.started_total).sum();
    assert_eq!(
        started,
        report.total.requests + read.servers[1].errors_total,
        "attempts are counted"
    );
    until("nothing to be in flight", || (1..=3).all(|i| nginx.column(&format!("s{i}"), 5) == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_leaves_nothing_in_flight() {
    let bed = bed(2, Duration::from_millis(300));
    let Some(nginx) = Nginx::start(&[pool(&bed, true)], "") else { return };
    let target = Target::resolve(&format!("http://{}/work", nginx.address)).expect("a URL");
    let clients =
        start(LoadSpec::poisson(target, 100.0, Duration::from_secs(600))).expect("clients");
    until("requests in flight", || nginx.column("s1", 5) > 3);
    nginx.kill_workers();
    clients.stop();
    drop(clients);
    until("their requests to be forgotten", || nginx.column("s1", 5) + nginx.column("s2", 5) == 0);
}
