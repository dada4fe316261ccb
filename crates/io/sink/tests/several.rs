//! Several real HAProxys before one pool, behind one handle.

mod common;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::{Haproxy, free_port, named};
use plimsoll_config::{ConfigError, Cursor, Document, Once};
use plimsoll_model::{BackendId, BalancerReport, Nanos, Plan, PlanEntry, PlanKind};
use plimsoll_sink::{Loss, SinkHandle, SinkReport, Sinks, Steered, Steering};
use plimsoll_testbed::load::{LoadSpec, Target, start};
use plimsoll_testbed::{BackendSpec, Service, Testbed, TestbedSpec};

const PATIENCE: Duration = Duration::from_secs(30);

/// Read from a configuration, as a daemon does.
fn sinks(haproxys: &[&Haproxy]) -> Sinks {
    let sockets: Vec<PathBuf> = haproxys.iter().map(|haproxy| haproxy.socket("admin")).collect();
    sinks_at(&sockets, false).expect("valid")
}

fn sinks_at(sockets: &[PathBuf], subsets: bool) -> Result<Sinks, Vec<ConfigError>> {
    let item = |socket: &PathBuf| {
        // None of these HAProxys hangs: that the machine has no time is no failure.
        format!("{{ haproxy: {{ socket: {}, backend: shop, timeout: 10s }} }}", socket.display())
    };
    let all: Vec<String> = sockets.iter().map(item).collect();
    let text = format!("sinks: [ {} ]\nsubsets: {subsets}\n", all.join(", "));
    let document = Document::parse("F", &text).expect("YAML");
    document.read(|cursor: &Cursor<'_>| {
        let fields = cursor.fields(&["sinks", "subsets"])?;
        let mut sinks =
            fields.required("sinks", "sinks", |c| Sinks::read(c, &mut Once::default()))?;
        let at = fields.get("subsets")?;
        if at.boolean()? {
            sinks.give_subsets(at)?;
        }
        Some(sinks)
    })
}

fn steer(sinks: &Sinks) -> SinkHandle {
    steer_these(sinks, &["s1", "s2"])
}

fn steer_these(sinks: &Sinks, names: &[&str]) -> SinkHandle {
    let servers = named(names);
    let steered = Steered { service: "shop".to_owned(), servers, observe: false, source: None };
    sinks.start(&Steering::new(Instant::now()), steered).expect("starts")
}

fn plan(epoch: u64, weights: [u32; 2]) -> Plan {
    plan_of(epoch, &weights)
}

fn plan_of(epoch: u64, weights: &[u32]) -> Plan {
    let entries = (1..).map(BackendId).zip(weights.iter().copied());
    let entries = entries.map(|(backend, weight)| PlanEntry { backend, share: 0.5, weight });
    Plan {
        epoch,
        at: Nanos::ZERO,
        kind: PlanKind::Packed,
        reason: "test".to_owned(),
        entries: entries.collect(),
    }
}

/// The first report that is so.
async fn until<T>(handle: &mut SinkHandle, mut is_so: impl FnMut(SinkReport) -> Option<T>) -> T {
    let found = async {
        loop {
            let report = handle.reports.recv().await.expect("the tasks live");
            if let Some(found) = is_so(report) {
                return found;
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("it happens")
}

async fn read(handle: &mut SinkHandle, is_so: impl Fn(&BalancerReport) -> bool) -> BalancerReport {
    until(handle, |report| match report {
        SinkReport::Read(report, _) if is_so(&report) => Some(report),
        _ => None,
    })
    .await
}

/// What some of them suffer from, while others are steered.
async fn degraded(handle: &mut SinkHandle) -> Loss {
    until(handle, |report| match report {
        SinkReport::Degraded(loss) => loss,
        SinkReport::Lost(loss) => panic!("{loss:?}"),
        _ => None,
    })
    .await
}

/// All are there again.
async fn well(handle: &mut SinkHandle) {
    until(handle, |report| matches!(report, SinkReport::Degraded(None)).then_some(())).await;
}

async fn applied(handle: &mut SinkHandle) {
    until(handle, |report| match report {
        SinkReport::Applied(_) => Some(()),
        SinkReport::Failed(_, loss) => panic!("{loss:?}"),
        _ => None,
    })
    .await;
}

fn weights(report: &BalancerReport) -> Vec<u32> {
    report.servers.iter().map(|server| server.weight).collect()
}

fn proxies(bed: &Testbed, balance: &str, port: u16) -> String {
    let servers: String = bed
        .addresses()
        .iter()
        .map(|(name, address)| format!("  server {name} {address} weight 100\n"))
        .collect();
    format!(
        "\nfrontend front\n  bind 127.0.0.1:{port}\n  default_backend shop\nbackend shop\n  balance {balance}\n{servers}"
    )
}

fn bed() -> Testbed {
    bed_of(&["s1", "s2"])
}

fn bed_of(names: &[&str]) -> Testbed {
    let backend =
        |name: &str| BackendSpec::new(name, Service::deterministic(Duration::from_millis(2)));
    Testbed::start(TestbedSpec {
        admin: None,
        backends: names.iter().map(|name| backend(name)).collect(),
    })
    .expect("backends")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_they_report_is_added_up_and_plans_go_to_all() {
    let bed = bed();
    let ports = [free_port(), free_port()];
    let haproxys = ports.map(|port| Haproxy::start(&proxies(&bed, "leastconn", port)));
    let mut handle = steer(&sinks(&[&haproxys[0], &haproxys[1]]));
    // The first sum knows no plan: all weights deviate, and are reported as they are.
    assert_eq!(weights(&read(&mut handle, |_| true).await), [100, 100]);
    handle.program(plan(1, [30, 70]));
    let applied = until(&mut handle, |report| match report {
        SinkReport::Applied(applied) => Some(applied),
        SinkReport::Failed(_, loss) => panic!("{loss:?}"),
        _ => None,
    })
    .await;
    assert_eq!((applied.epoch, applied.commands), (1, 4), "two weights of two balancers");
    for haproxy in &haproxys {
        assert_eq!([haproxy.weight("s1"), haproxy.weight("s2")], ["30", "70"]);
    }
    let mut sent = 0;
    for port in ports {
        let target = Target::resolve(&format!("http://127.0.0.1:{port}/")).expect("a URL");
        let spec = LoadSpec::poisson(target, 100.0, Duration::from_secs(1));
        sent += start(spec).expect("clients").join().expect("a report").total.requests;
    }
    let total =
        |report: &BalancerReport| report.servers.iter().map(|s| s.started_total).sum::<u64>();
    let report = read(&mut handle, |report| total(report) >= sent).await;
    assert_eq!((total(&report), weights(&report)), (sent, vec![30, 70]));

    // A weight that one of them changes is reported, though it is not the first one's.
    haproxys[1].ask("set server shop/s1 weight 9");
    read(&mut handle, |report| weights(report) == [9, 70]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_gone_does_not_keep_the_others_from_being_steered() {
    let bed = bed();
    let mut haproxys =
        [free_port(), free_port()].map(|port| Haproxy::start(&proxies(&bed, "roundrobin", port)));
    let mut handle = steer(&sinks(&[&haproxys[0], &haproxys[1]]));
    let before = read(&mut handle, |_| true).await;
    haproxys[1].stop();
    let note = degraded(&mut handle).await.reason;
    assert!(note.starts_with("diverged: 1 of 2 balancers cannot be steered"), "{note}");
    let name = haproxys[1].socket("admin").display().to_string();
    assert_eq!(note.matches(&name).count(), 1, "it is named, once: {note}");
    // It is reported as long as it is so.
    assert_eq!(degraded(&mut handle).await.reason, note);
    handle.program(plan(2, [1, 2]));
    until(&mut handle, |report| match report {
        SinkReport::Applied(applied) => Some(applied),
        SinkReport::Failed(_, loss) => panic!("{loss:?}"),
        _ => None,
    })
    .await;
    assert_eq!([haproxys[0].weight("s1"), haproxys[0].weight("s2")], ["1", "2"]);
    let report = read(&mut handle, |report| weights(report) == [1, 2]).await;
    assert_eq!(report.generation, before.generation, "what was counted counts on");

    haproxys[1].start_again();
    well(&mut handle).await;
    let back = read(&mut handle, |report| report.generation != before.generation).await;
    assert_eq!(weights(&back), [100, 100], "those of the one that was restarted");
    handle.program(plan(3, [1, 2]));
    read(&mut handle, |report| weights(report) == [1, 2]).await;
    assert_eq!([haproxys[1].weight("s1"), haproxys[1].weight("s2")], ["1", "2"]);
}

/// Requests to one of them for a moment.
fn load(port: u16, rate_rps: f64, time: Duration) {
    let target = Target::resolve(&format!("http://127.0.0.1:{port}/")).expect("a URL");
    start(LoadSpec::poisson(target, rate_rps, time)).expect("clients").join().expect("a report");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_has_a_subset_that_follows_its_traffic_and_all_servers_where_that_cannot_serve() {
    const NAMES: [&str; 4] = ["s1", "s2", "s3", "s4"];
    const PLANNED: [u32; 4] = [30, 70, 60, 40];
    // Three times the plan's, as far as HAProxy's 256 allows.
    const SCALED: [u32; 4] = [90, 210, 180, 120];
    let bed = bed_of(&NAMES);
    let ports = [free_port(), free_port()];
    let mut haproxys = ports.map(|port| Haproxy::start(&proxies(&bed, "leastconn", port)));
    let sockets = haproxys.each_ref().map(|haproxy| haproxy.socket("admin"));
    let mut handle = steer_these(&sinks_at(&sockets, true).expect("valid"), &NAMES);
    let held = |haproxy: &Haproxy| -> [u32; 4] {
        NAMES.map(|server| haproxy.weight(server).parse().expect("a number"))
    };
    read(&mut handle, |_| true).await;
    handle.program(plan_of(1, &PLANNED));
    let done = until(&mut handle, |report| match report {
        SinkReport::Applied(applied) => Some(applied),
        SinkReport::Failed(_, loss) => panic!("{loss:?}"),
        _ => None,
    })
    .await;
    let of_plan: Vec<u32> = done.weights.iter().map(|(_, weight)| *weight).collect();
    assert_eq!(of_plan, PLANNED);
    // The heaviest stand together; the one on the cut is shared.
    assert_eq!(haproxys.each_ref().map(held), [[0, 210, 90, 0], [90, 0, 90, 120]]);
    read(&mut handle, |_| true).await;

    // Most traffic comes to the first: its subset grows, and no report takes that for a change by others.
    std::thread::scope(|scope| {
        scope.spawn(|| load(ports[0], 250.0, Duration::from_secs(2)));
        load(ports[1], 100.0, Duration::from_secs(2));
    });
    let begin = Instant::now();
    while held(&haproxys[0])[2] <= 90 {
        assert_eq!(weights(&read(&mut handle, |_| true).await), PLANNED);
        assert!(begin.elapsed() < PATIENCE, "{:?}", haproxys.each_ref().map(held));
    }

    // One of its servers takes no traffic there, and does at the other, which hides it.
    let is_all = |held: [u32; 4]| held == PLANNED || held == SCALED;
    haproxys[0].ask("set server shop/s2 state maint");
    let told = until(&mut handle, |report| match report {
        SinkReport::Divided(told) => Some(told).filter(|told| told.contains("no traffic")),
        _ => None,
    });
    let told = told.await;
    let expected = "it has all 4 servers: no traffic there for s2 of its subset";
    assert!(told.contains(&sockets[0].display().to_string()) && told.ends_with(expected), "{told}");
    while !is_all(held(&haproxys[0])) {
        assert_eq!(weights(&read(&mut handle, |_| true).await), PLANNED);
        assert!(begin.elapsed() < 2 * PATIENCE, "{:?}", held(&haproxys[0]));
    }
    haproxys[0].ask("set server shop/s2 state ready");
    while is_all(held(&haproxys[0])) {
        read(&mut handle, |_| true).await;
        assert!(begin.elapsed() < 2 * PATIENCE, "{:?}", held(&haproxys[0]));
    }

    // Without the second, the first serves with all.
    haproxys[1].stop();
    degraded(&mut handle).await;
    while !is_all(held(&haproxys[0])) {
        assert_eq!(weights(&read(&mut handle, |_| true).await), PLANNED);
        assert!(begin.elapsed() < 3 * PATIENCE, "{:?}", held(&haproxys[0]));
    }
    haproxys[1].start_again();
    well(&mut handle).await;
    while is_all(held(&haproxys[0])) {
        read(&mut handle, |_| true).await;
        assert!(begin.elapsed() < 4 * PATIENCE, "{:?}", haproxys.each_ref().map(held));
    }
    read(&mut handle, |report| weights(report) == PLANNED).await;

    // A weight that another sets is reported, though it is what the plan has for both together.
    haproxys[0].ask("set server shop/s2 weight 70");
    let note = until(&mut handle, |report| match report {
        SinkReport::Note(note) => Some(note),
        _ => None,
    });
    let note = note.await;
    let names = note.contains(&sockets[0].display().to_string());
    assert!(names && note.contains(": s2 has weight 70 there, and not "), "{note}");
    read(&mut handle, |report| weights(report)[1] != 70).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_with_another_method_ails_and_the_other_is_steered() {
    let bed = bed();
    let first = Haproxy::start(&proxies(&bed, "roundrobin", free_port()));
    let second = Haproxy::start(&proxies(&bed, "leastconn", free_port()));
    let mut handle = steer(&sinks(&[&first, &second]));
    let loss = until(&mut handle, |report| match report {
        SinkReport::Degraded(loss) => loss,
        SinkReport::Lost(loss) => panic!("{loss:?}"),
        _ => None,
    })
    .await;
    let says = |what: &str| loss.reason.contains(what);
    assert!(says("it balances by") && says("roundrobin") && says("leastconn"), "{loss:?}");
    assert!(!loss.retryable && says("diverged: 1 of 2 balancers cannot be steered"), "{loss:?}");
    read(&mut handle, |report| !report.servers.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_lacks_a_server_ails_and_the_other_is_steered() {
    let bed = bed();
    let whole = proxies(&bed, "roundrobin", free_port());
    let first = Haproxy::start(&whole);
    let without: String = whole
        .lines()
        .filter(|line| !line.contains("server s2"))
        .map(|l| format!("{l}\n"))
        .collect();
    let mut second = Haproxy::start_master_worker(&without);
    let mut handle = steer(&sinks(&[&first, &second]));
    let loss = degraded(&mut handle).await;
    assert!(loss.reason.contains("has no server s2") && loss.absent && !loss.retryable, "{loss:?}");
    // Each report of the other leaves it as it is.
    let mut reports = 0;
    until(&mut handle, |report| match report {
        SinkReport::Read(..) => {
            reports += 1;
            (reports > 20).then_some(())
        }
        SinkReport::Degraded(Some(again)) => {
            assert_eq!(again, loss);
            None
        }
        other => panic!("{other:?}"),
    })
    .await;
    handle.program(plan(1, [3, 4]));
    applied(&mut handle).await;
    assert_eq!([first.weight("s1"), first.weight("s2")], ["3", "4"]);
    assert_eq!(degraded(&mut handle).await, loss);

    second.reload(&whole.replace("weight 100", "weight 50"));
    well(&mut handle).await;
    read(&mut handle, |report| weights(report) == [50, 50]).await;
    handle.program(plan(2, [3, 4]));
    read(&mut handle, |report| weights(report) == [3, 4]).await;
    assert_eq!([second.weight("s1"), second.weight("s2")], ["3", "4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_are_gone_one_trouble_names_them_all() {
    let bed = bed();
    let mut haproxys =
        [free_port(), free_port()].map(|port| Haproxy::start(&proxies(&bed, "roundrobin", port)));
    let mut handle = steer(&sinks(&[&haproxys[0], &haproxys[1]]));
    read(&mut handle, |_| true).await;
    haproxys.iter_mut().for_each(Haproxy::stop);
    let names = haproxys.each_ref().map(|haproxy| haproxy.socket("admin").display().to_string());
    let is_whole = |loss: &Loss| names.iter().all(|name| loss.reason.contains(name));
    until(&mut handle, |report| match report {
        SinkReport::Lost(loss) => (is_whole(&loss) && loss.retryable).then_some(()),
        _ => None,
    })
    .await;
}

#[test]
fn one_haproxy_by_two_spellings_is_refused() {
    let bed = bed();
    let haproxy = Haproxy::start(&proxies(&bed, "roundrobin", free_port()));
    let socket = haproxy.socket("admin");
    let elsewhere = haproxy.dir.join("..").join(haproxy.dir.file_name().expect("a name"));
    let error =
        sinks_at(&[socket.clone(), elsewhere.join("admin.sock")], false).expect_err("one HAProxy");
    let [error] = &error[..] else { panic!("{error:?}") };
    assert!(error.to_string().contains("that is named once"), "{error}");
    // One that does not run yet is known by its directory.
    sinks_at(&[haproxy.dir.join("new.sock"), elsewhere.join("new.sock")], false)
        .expect_err("one HAProxy");
    sinks_at(&[socket, elsewhere.join("operator.sock")], false).expect("two sockets");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_balancer_that_stands_by_does_not_count_as_one_that_shares() {
    let bed = bed();
    let port = free_port();
    let first = Haproxy::start(&proxies(&bed, "leastconn", port));
    let second = Haproxy::start(&proxies(&bed, "leastconn", free_port()));
    let mut handle = steer(&sinks(&[&first, &second]));
    let target = Target::resolve(&format!("http://127.0.0.1:{port}/")).expect("a URL");
    let _load = start(LoadSpec::poisson(target, 100.0, Duration::from_secs(60))).expect("clients");
    let sharing = until(&mut handle, |report| match report {
        SinkReport::Sharing(number) => Some(number),
        _ => None,
    });
    assert_eq!(sharing.await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_leaves_one_of_two_is_no_weight_that_another_has_changed() {
    let bed = bed();
    let first = Haproxy::start(&proxies(&bed, "roundrobin", free_port()));
    let second = Haproxy::start(&proxies(&bed, "roundrobin", free_port()));
    let mut handle = steer(&sinks(&[&first, &second]));
    read(&mut handle, |report| weights(report) == [100, 100]).await;
    second.ask("set server shop/s2 state maint");
    assert!(second.ask("del server shop/s2").contains("deleted"));
    let planned = [60, 40];
    handle.program(plan(1, planned));
    let applied = until(&mut handle, |report| match report {
        SinkReport::Applied(applied) => Some(applied.weights),
        SinkReport::Failed(_, loss) => panic!("{loss:?}"),
        _ => None,
    });
    assert_eq!(applied.await.len(), planned.len());
    for _ in 0..10 {
        until(&mut handle, |report| match report {
            SinkReport::Note(note) => panic!("{note}"),
            SinkReport::Read(report, _) => {
                assert_eq!(weights(&report), planned);
                Some(())
            }
            _ => None,
        })
        .await;
    }
}
