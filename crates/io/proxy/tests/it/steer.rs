//! A controller steers the proxy through its socket, by the sink that `plimsoll run` uses.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use plimsoll_model::{BackendId, MethodKind, ServerStatus};
use plimsoll_proxy::{Handle, Socket};
use plimsoll_sink::{OwnSink, ProxySinkConfig, ReportSource, SinkErrorKind, WeightSink};

use crate::contract::{Bed, goes_on_without_a_server, holds, plan};
use crate::support::*;

/// A proxy that answers at a socket, until it is dropped.
struct Place {
    section: String,
    proxy: Option<Running>,
    directory: tempfile::TempDir,
    end: Option<mpsc::Sender<()>>,
    server: Option<thread::JoinHandle<()>>,
}

impl Place {
    fn new(section: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut place =
            Place { section: String::new(), proxy: None, directory, end: None, server: None };
        place.restart(section);
        place
    }

    fn restart(&mut self, section: &str) {
        self.halt();
        section.clone_into(&mut self.section);
        let proxy = start(section);
        let (handle, path) = (proxy.proxy.handle(), self.path());
        let (bound, is_bound) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        self.server = Some(thread::spawn(move || serve(&path, &handle, &bound, &ended)));
        is_bound.recv_timeout(PATIENCE).expect("a socket");
        (self.proxy, self.end) = (Some(proxy), Some(end));
    }

    fn halt(&mut self) {
        self.proxy = None;
        self.end = None;
        if let Some(server) = self.server.take() {
            server.join().expect("an end");
        }
    }

    fn proxy(&self) -> &Running {
        self.proxy.as_ref().expect("a proxy")
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("proxy.sock")
    }

    fn of(&self, pool: &str, servers: &[&str]) -> OwnSink {
        let timeout = Duration::from_secs(10);
        let config = ProxySinkConfig { timeout, ..ProxySinkConfig::new(self.path(), pool) };
        let names = servers.iter().map(|name| (*name).to_owned());
        config.sink((1..).map(BackendId).zip(names).collect()).expect("good names")
    }

    /// What the proxy says to a line.
    fn say(&self, line: &str) -> String {
        let mut stream = UnixStream::connect(self.path()).expect("connects");
        stream.write_all(format!("{line}\n").as_bytes()).expect("sent");
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).expect("answered");
        answer
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.halt();
    }
}

fn serve(path: &Path, handle: &Handle, bound: &mpsc::Sender<()>, ended: &mpsc::Receiver<()>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let socket = Socket::bind(path).expect("a socket");
        bound.send(()).expect("a test");
        let over = async {
            while ended.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let refuse = || Err("F:1:1: proxy: wrong\nF:2:1: proxy.pools: wrong, too".to_owned());
        tokio::select! {
            () = socket.serve(handle, refuse) => {}
            () = over => {}
        }
    });
}

fn section(policy: &str, backends: &[&Backend]) -> String {
    let backend = |(i, backend): (usize, &&Backend)| {
        let (n, address) = (i + 1, backend.address);
        format!("{{ name: s{n}, address: \"{address}\", weight: {} }}", 10 * n)
    };
    let backends: Vec<String> = backends.iter().enumerate().map(backend).collect();
    format!(
        "  threads: 2
  egress: [ {{ name: out, listen: \"127.0.0.1:1\" }} ]
  pools: [ {{ name: shop, policy: {policy}, backends: [ {} ] }} ]
",
        backends.join(", ")
    )
}

impl Bed for Place {
    type Sink = OwnSink;
    const KEEPS_WEIGHTS: bool = false;

    fn sink(&self, servers: &[&str]) -> OwnSink {
        self.of("shop", servers)
    }

    fn weight(&self, server: &str) -> u32 {
        let status = self.proxy().proxy.status();
        let backends = &status.egress[0].pools[0].backends;
        backends.iter().find(|one| one.name == server).expect("there").weight
    }

    fn meddle(&self, weight: u32) {
        let answer = self.say(&format!(
            "{{\"apply\":{{\"vip\":\"shop\",\"epoch\":1,\"who\":\"me\",\"weights\":{{\"s2\":{weight}}}}}}}"
        ));
        assert!(answer.contains("\"changed\":1"), "{answer}");
    }

    fn stop(&mut self) {
        self.halt();
    }

    fn start_again(&mut self) {
        let section = self.section.clone();
        self.restart(&section);
    }

    fn take_away(&mut self, server: &str) {
        let (before, rest) =
            self.section.split_once(&format!("{{ name: {server},")).expect("there");
        let (_, after) = rest.split_once("}, ").expect("another follows");
        let section = format!("{before}{after}");
        self.restart(&section);
    }
}

#[tokio::test]
async fn the_proxy_keeps_what_every_sink_promises() {
    let backends = [Backend::ok("1"), Backend::ok("2"), Backend::ok("3")];
    let mut place =
        Place::new(&section("least_connections", &[&backends[0], &backends[1], &backends[2]]));
    holds(&mut place).await;
    let all = place.section.clone();
    goes_on_without_a_server(&mut place).await;
    place.restart(&all);
    place.sink(&["s1", "s2", "s3"]).apply(&plan(&[11, 22, 33])).await.expect("applied");

    let error = place.of("shoq", &["s1"]).read().await.expect_err("unknown");
    assert!(error.to_string().contains("the proxy has no pool \"shoq\"; it has shop"), "{error}");
    assert_eq!(error.kind(), SinkErrorKind::UnknownBackend);
    for nonsense in ["", "{}", "{\"read\":7}", "set server web/s1 weight 5"] {
        assert!(place.say(nonsense).contains("not_understood"), "{nonsense:?}");
    }
    // What one names that is not there changes nothing of the others.
    let answer = place.say(
        "{\"apply\":{\"vip\":\"shop\",\"epoch\":9,\"who\":\"me\",\"weights\":{\"s1\":99,\"s9\":1}}}",
    );
    assert!(answer.contains("unknown_server"), "{answer}");
    assert_eq!(place.weight("s1"), 11);

    plimsoll_proxy::release(&place.path(), "shop").expect("released");
    assert_eq!([1, 2, 3].map(|n| place.weight(&format!("s{n}"))), [10, 20, 30]);
    let refused = plimsoll_proxy::release(&place.path(), "none").expect_err("no pool");
    assert!(refused.to_string().contains("there is no pool \"none\""), "{refused}");
    let refused = plimsoll_proxy::reload(&place.path()).expect_err("refused");
    assert!(refused.to_string().contains("wrong, too"), "{refused}");
}

#[tokio::test]
async fn weights_are_in_force_and_counts_are_exact() {
    let gate = Gate::default();
    let (one, two) = (Backend::ok("one"), Backend::gated(&gate));
    let mut place = Place::new(&section("round_robin", &[&one, &two]));
    let mut sink = place.sink(&["s1", "s2"]);
    let first = sink.read().await.expect("read");
    assert_eq!((first.method.name.as_str(), first.method.kind), ("roundrobin", MethodKind::Split));

    sink.apply(&plan(&[1, 0])).await.expect("applied");
    until("all threads know", || {
        let before = two.count();
        gate.open();
        (0..20).for_each(|_| assert_eq!(place.proxy().client("out").get("/").status, 200));
        two.count() == before
    });
    gate.close();
    until("those before are counted", || place.proxy().in_flight() == 0);
    let before = sink.read().await.expect("read").servers[0];
    (0..7).for_each(|_| assert_eq!(place.proxy().client("out").get("/").body, "one"));
    until("counted", || place.proxy().in_flight() == 0);
    let after = sink.read().await.expect("read").servers[0];
    assert_eq!(after.started_total - before.started_total, 7);
    assert_eq!(after.answered_total, before.answered_total.map(|n| n + 7));
    assert_eq!((after.errors_total, after.in_flight, after.weight), (0, 0, 1));
    let times = [before, after].map(|report| report.response_times.expect("measured"));
    assert_eq!(times[1].count - times[0].count, 7);
    assert!(times[1].mean_us_since(&times[0]).is_some_and(|us| us > 0.0 && us < 30e6));
    let text = place.say("{\"read\":{\"vip\":\"shop\"}}");
    let report: plimsoll_sink::wire::Answer = serde_json::from_str(&text).expect("an answer");
    let plimsoll_sink::wire::Answer::Done(report) = report else { panic!("{text}") };
    assert!(report.steered && report.epoch == 7);
    assert!(report.servers[0].latency_us.is_some_and(|us| us > 0), "{text}");

    sink.apply(&plan(&[0, 1])).await.expect("applied");
    let mut held: Vec<Client> = Vec::new();
    until("all threads know", || {
        let mut client = place.proxy().client("out");
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let deadline = std::time::Instant::now() + Duration::from_millis(200);
        while std::time::Instant::now() < deadline && two.count() == 0 {
            thread::sleep(Duration::from_millis(2));
        }
        held.push(client);
        place.proxy().in_flight() >= 3
    });
    // The last that was sent may not have come yet.
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let in_flight = sink.read().await.expect("read").servers[1].in_flight;
        if u64::from(in_flight) == place.proxy().in_flight() {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{in_flight} were reported");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    // Drained, it takes nothing, and a controller gets to know it.
    place.proxy().proxy.handle().drain("s1", None, false).expect("drained");
    assert_eq!(sink.read().await.expect("read").servers[0].status, ServerStatus::Drain);

    // Another life: its weights and counts begin anew, which a controller must see.
    gate.open();
    place.restart(&section("round_robin", &[&one, &two]));
    let again = sink.read().await.expect("the connection is made anew");
    assert_ne!(again.generation, first.generation);
    assert_eq!((again.servers[0].weight, again.servers[0].started_total), (10, 0));
    place.stop();
    let error = sink.read().await.expect_err("gone");
    assert!(error.retryable() && error.to_string().contains("plimsoll proxy run"), "{error}");
}

#[tokio::test]
async fn a_policy_on_which_weights_set_no_shares_is_refused() {
    let one = Backend::ok("one");
    let place = Place::new(&section("expected_delay", &[&one]));
    let mut sink = place.sink(&["s1"]);
    let report = sink.read().await.expect("read");
    assert_eq!(report.method.kind, MethodKind::NoLiveWeights);
    let error = sink.apply(&plan(&[3])).await.expect_err("refused");
    assert_eq!(error.kind(), SinkErrorKind::NoLiveWeights);
    assert!(error.to_string().contains("goes by expected_delay"), "{error}");
}

#[tokio::test]
async fn a_plan_that_leaves_only_what_is_drained_is_refused() {
    let (one, two) = (Backend::ok("one"), Backend::ok("two"));
    let place = Place::new(&section("round_robin", &[&one, &two]));
    let mut sink = place.sink(&["s1", "s2"]);
    place.proxy().proxy.handle().drain("s1", None, false).expect("drained");
    let error = sink.apply(&plan(&[5, 0])).await.expect_err("refused");
    assert_eq!(error.kind(), SinkErrorKind::InvalidPlan);
    assert_eq!(place.weight("s2"), 20, "nothing has changed");
    assert_eq!(place.proxy().client("out").get("/").body, "two");
    sink.apply(&plan(&[0, 5])).await.expect("applied");
}
