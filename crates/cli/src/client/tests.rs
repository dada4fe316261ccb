//! The commands against a made-up daemon over real loopback sockets.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, UNIX_EPOCH};

use plimsoll_api::{Hub, Publisher};
use plimsoll_control::{
    Advice, BackendState, BackendView, CurveView, Phase, PlanView, Record, RecordKind, ServiceView,
};
use plimsoll_model::{MethodKind, Objective};
use plimsoll_terminal::{Format, Screen};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::http::Client;
use super::{Common, Failure, curves, events, plan, status, weights};

fn backend(name: &str, weight: u32, held: Option<u32>, state: BackendState) -> BackendView {
    BackendView {
        backend: name.to_owned(),
        weight,
        share: f64::from(weight) / 256.0,
        programmed: held,
        state,
        latency_ms: (weight > 0).then_some(30.25),
        expected_ms: (weight > 0).then_some(29.0),
        asked_rps: 0.0,
        asked_part: None,
        error_share: 0.0,
        check_interval_s: None,
        cause: None,
        reason: format!("packed at {weight}"),
    }
}

fn curve(name: &str) -> CurveView {
    let at = |x: f64| (x, 10.0 + 4_000.0 / (400.0 - x));
    CurveView {
        backend: name.to_owned(),
        family: "hyperbola".to_owned(),
        l0_ms: 20.0,
        capacity_rps: 400.0,
        capacity_is_lower_bound: false,
        cores: 4.0,
        capacity_error: 0.034,
        cv_error: None,
        hyperbola: None,
        points: vec![(100.0, 23.0, 500.0), (250.0, 37.0, 900.0)],
        line: (0..40).map(|i| at(f64::from(i) * 10.0)).collect(),
    }
}

pub(crate) fn view(name: &str) -> ServiceView {
    ServiceView {
        service: name.to_owned(),
        method: MethodKind::Split,
        method_name: "roundrobin".to_owned(),
        phase: Phase::Steady,
        epoch: 12,
        rate_rps: 400.0,
        latency_ms: Some(44.1),
        drain_s: Some(2.5),
        trouble: None,
        backends: vec![
            backend("s1", 192, Some(192), BackendState::Ready),
            backend("s2", 64, Some(60), BackendState::Exploring),
            backend("s3", 0, None, BackendState::Failed),
        ],
        plan: PlanView {
            probed: false,
            told_by: None,
            epoch: 12,
            reason: "curves changed".to_owned(),
            objective: Objective::Traffic,
            expected_ms: Some(44.7),
            bound_ms: Some(44.5),
            gap: Some(0.004),
            proven: false,
            rate_rps: 400.0,
            capacity_rps: 500.0,
            advice: Some(Advice {
                method: "leastconn".to_owned(),
                expected_ms: 34.6,
                present_ms: 44.7,
                gain: 0.226,
            }),
            several_cost: None,
            subsets_cost: None,
        },
        curves: vec![curve("s1")],
    }
}

/// A daemon that serves made-up views until it is dropped.
struct Daemon {
    api: String,
    hub: Hub,
    publishers: Vec<Publisher>,
    _stop: oneshot::Sender<()>,
    _runtime: tokio::runtime::Runtime,
}

impl Daemon {
    fn start(services: &[&str]) -> Self {
        let hub = Hub::new("0.1.0");
        let publishers: Vec<Publisher> = services.iter().map(|name| hub.add(view(name))).collect();
        publishers.iter().for_each(|p| p.counters().polled(Duration::from_millis(1)));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a free port");
        let api = format!("http://{}", listener.local_addr().expect("an address"));
        let (stop, stopped) = oneshot::channel::<()>();
        runtime.spawn(plimsoll_api::serve(listener, hub.clone(), async {
            let _ = stopped.await;
        }));
        Daemon { api, hub, publishers, _stop: stop, _runtime: runtime }
    }

    fn common(&self, service: Option<&str>, output: Format) -> Common {
        let service = service.map(str::to_owned);
        Common { api: Some(self.api.clone()), config: None, service, output }
    }
}

/// What a command writes, and whether it failed.
fn told(execute: impl FnOnce(&mut dyn Write) -> Result<(), Failure>) -> Result<String, Failure> {
    let mut out = Vec::new();
    execute(&mut out)?;
    Ok(String::from_utf8(out).expect("text"))
}

fn show_weights(common: Common) -> Result<String, Failure> {
    told(|out| weights::execute(&weights::Args { common }, &Screen::PLAIN, out))
}

fn show_status(common: Common) -> Result<String, Failure> {
    told(|out| status::execute(&status::Args { common }, &Screen::PLAIN, out))
}

fn read(text: Result<String, Failure>) -> Value {
    serde_json::from_str(&text.expect("an answer")).expect("JSON")
}

#[test]
fn weights_as_json_have_exactly_the_documented_shape() {
    let daemon = Daemon::start(&["shop", "blog"]);
    let answer = read(show_weights(daemon.common(Some("shop"), Format::Json)));
    let backends = json!([
        {"backend": "s1", "weight": 192, "share": 0.75, "programmed": 192, "state": "ready",
         "latency_ms": 30.25, "expected_ms": 29.0, "asked_rps": 0.0, "asked_part": null, "error_share": 0.0,
         "check_interval_s": null, "cause": null, "reason": "packed at 192"},
        {"backend": "s2", "weight": 64, "share": 0.25, "programmed": 60, "state": "exploring",
         "latency_ms": 30.25, "expected_ms": 29.0, "asked_rps": 0.0, "asked_part": null, "error_share": 0.0,
         "check_interval_s": null, "cause": null, "reason": "packed at 64"},
        {"backend": "s3", "weight": 0, "share": 0.0, "programmed": null, "state": "failed",
         "latency_ms": null, "expected_ms": null, "asked_rps": 0.0, "asked_part": null, "error_share": 0.0,
         "check_interval_s": null, "cause": null, "reason": "packed at 0"},
    ]);
    let shop = json!({"service": "shop", "method": "split", "phase": "steady", "epoch": 12,
        "backends": backends});
    assert_eq!(answer, json!({"services": [shop]}));
    let all = read(show_weights(daemon.common(None, Format::Json)));
    assert_eq!(all["services"].as_array().map(Vec::len), Some(2));
}

#[test]
fn weights_as_a_table_align() {
    let daemon = Daemon::start(&["shop"]);
    let expected = "\
shop: split, steady, epoch 12
BACKEND  STATE      WEIGHT  PROGRAMMED  SHARE (%)  LATENCY (ms)  EXPECTED (ms)  REASON
s1       ready         192         192       75.0          30.2           29.0  packed at 192
s2       exploring      64          60       25.0          30.2           29.0  packed at 64
s3       failed          0           -        0.0             -              -  packed at 0
";
    let shown = show_weights(daemon.common(None, Format::Table)).expect("a table");
    assert_eq!(shown, expected, "\n{shown}");
}

#[test]
fn status_puts_trouble_first() {
    let daemon = Daemon::start(&["shop"]);
    let calm = show_status(daemon.common(None, Format::Table)).expect("a table");
    let expected = "\
WARNING shop/s3: it has failed and gets nothing
SERVICE  METHOD              PHASE   EPOCH  IN USE  TRAFFIC (req/s)  CAPACITY (req/s)  LATENCY (ms)  EXPECTED (ms)  DRAIN (s)
shop     roundrobin (split)  steady     12     2/3            400.0             500.0          44.1           44.7       2.50

shop: backends
BACKEND  STATE      WEIGHT  SHARE (%)  TRAFFIC (req/s)  CAPACITY (req/s)  LATENCY (ms)  UNLOADED (ms)  ASKED (%)
s1       ready         192       75.0            300.0             400.0          30.2          20.0  0.0
s2       exploring  60 → 64       25.0            100.0                 -          30.2             -  0.0
s3       failed      ? → 0        0.0             0.00                 -             -             -  0.0
";
    let squeezed = |text: &str| -> Vec<Vec<String>> {
        text.lines().map(|l| l.split_whitespace().map(str::to_owned).collect()).collect()
    };
    assert_eq!(squeezed(&calm), squeezed(expected), "\n{calm}");

    daemon.publishers[0].publish(ServiceView { latency_ms: None, ..view("shop") });
    let unknown = show_status(daemon.common(None, Format::Table)).expect("a table");
    let shown = squeezed(&expected.replace("44.1", "-"));
    assert_eq!(squeezed(&unknown), shown, "\n{unknown}");

    daemon.publishers[0].plan_refused(13, "no such server\nTROUBLE forged");
    let refused = show_status(daemon.common(None, Format::Table)).expect("a table");
    let line = "NOT READY shop: plan 13 was not programmed: no such server\\nTROUBLE forged\n";
    assert!(refused.starts_with(line), "{refused}");

    let trouble = Some("socket: permission\x1b[2J denied".to_owned());
    daemon.publishers[0].publish(ServiceView { trouble, ..view("shop") });
    let upset = show_status(daemon.common(None, Format::Table)).expect("a table");
    assert!(upset.starts_with("TROUBLE shop: socket: permission\\u{1b}[2J denied\n"), "{upset}");
    let answer = read(show_status(daemon.common(None, Format::Json)));
    assert_eq!(answer["ready"], false);
    assert_eq!(answer["services"][0]["backends"][0]["backend"], "s1");
}

#[test]
fn a_plan_says_how_good_it_is_and_what_would_be_better() {
    let daemon = Daemon::start(&["shop"]);
    let args = plan::Args { common: daemon.common(None, Format::Table) };
    let shown = told(|out| plan::execute(&args, &Screen::PLAIN, out)).expect("a plan");
    let expected = "\
shop: roundrobin (split), steady
  plan        epoch 12: curves changed
  objective   traffic
  expected    44.7 ms
  measured    44.1 ms
  proof       not proven optimal (bound 44.5 ms, gap 0.40 %)
  load        400.0 of 500.0 req/s (80 %)
  learns from traffic alone (no probe): means to within 5 % after 20 s of traffic; a backend without traffic keeps the response time that was learned last, and its next clients find out if it answers wrongly by now (weight 0 some 100 ms later)
  advice      leastconn would serve better: clients would wait about 23 % less in the mean
";
    assert_eq!(shown, expected, "\n{shown}");
    let args = plan::Args { common: daemon.common(None, Format::Json) };
    let answer = read(told(|out| plan::execute(&args, &Screen::PLAIN, out)));
    assert_eq!(answer["services"][0]["plan"]["advice"]["method"], "leastconn");
}

#[test]
fn curves_are_shown_as_numbers_plots_and_a_file() {
    let daemon = Daemon::start(&["shop"]);
    let args = curves::Args::of(daemon.common(None, Format::Table), None);
    let shown = told(|out| curves::execute(&args, &Screen::PLAIN, out)).expect("curves");
    let row = "s1       hyperbola           20.0             400.0    3.4   4.00              -       2        300.0      30.2";
    assert!(shown.contains(row), "\n{shown}");
    assert!(shown.contains("30.2 ms at 300.0 of 400.0 req/s"), "\n{shown}");
    assert!(shown.contains('●') && shown.contains('┊'), "\n{shown}");

    let file = std::env::temp_dir().join(format!("plimsoll-curves-{}.svg", std::process::id()));
    let args = curves::Args::of(daemon.common(None, Format::Json), Some(file.clone()));
    let answer = read(told(|out| curves::execute(&args, &Screen::PLAIN, out)));
    let svg = std::fs::read_to_string(&file).expect("a file");
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(answer["services"][0]["curves"][0]["rate_rps"], 300.0);
    assert!(svg.contains(">\nshop / s1\n<"), "{svg}");

    let nowhere = file.join("nowhere.svg");
    let args = curves::Args::of(daemon.common(None, Format::Json), Some(nowhere));
    let failure = told(|out| curves::execute(&args, &Screen::PLAIN, out)).expect_err("no file");
    assert_eq!(failure.code(), 1);
}

fn happen(publisher: &Publisher, seconds: u64, reason: &str) {
    let (kind, backend) = (RecordKind::Failed, Some("s1".to_owned()));
    let record = Record { kind, backend, reason: reason.to_owned() };
    publisher.record(UNIX_EPOCH + Duration::from_secs(seconds), record);
}

#[test]
fn events_come_with_time_backend_kind_and_reason() {
    let daemon = Daemon::start(&["shop", "blog"]);
    happen(&daemon.publishers[0], 10, "refused");
    happen(&daemon.publishers[1], 5, "timed out");
    happen(&daemon.publishers[0], 20, "refused again");
    let args = events::Args::last(daemon.common(Some("shop"), Format::Json), 1);
    let answer = read(told(|out| events::execute(&args, &Screen::PLAIN, out)));
    let event = json!({"seq": 2, "time": "1970-01-01T00:00:20.000Z", "kind": "failed",
        "backend": "s1", "reason": "refused again"});
    assert_eq!(answer, json!({"services": [{"service": "shop", "events": [event]}]}));

    let args = events::Args::last(daemon.common(None, Format::Table), 50);
    let shown = told(|out| events::execute(&args, &Screen::PLAIN, out)).expect("events");
    let ends: Vec<&str> = shown.lines().skip(1).map(|line| line[25..].trim_end()).collect();
    assert_eq!(
        ends,
        [
            "blog     s1       failed  timed out",
            "shop     s1       failed  refused",
            "shop     s1       failed  refused again"
        ],
        "\n{shown}"
    );
}

#[test]
fn following_reads_each_event_once_even_across_a_restart() {
    let daemon = Daemon::start(&["shop"]);
    (1..=3).for_each(|second| happen(&daemon.publishers[0], second, &second.to_string()));
    let args = events::Args::last(daemon.common(None, Format::Table), 2);
    let client = Client::new(&daemon.api);
    let mut cursors = events::Cursors::new(2);
    let mut next = |client: &Client| -> Vec<String> {
        let services = cursors.next(&args, client).expect("an answer");
        services.into_iter().flat_map(|s| s.events).map(|event| event.reason).collect()
    };
    assert_eq!(next(&client), ["2", "3"]);
    assert!(next(&client).is_empty());
    happen(&daemon.publishers[0], 4, "4");
    assert_eq!(next(&client), ["4"]);

    // Another run, which counts from the start and tells of the old event once more.
    // A run is told by the millisecond in which it began.
    std::thread::sleep(Duration::from_millis(5));
    let (old, new) = (daemon.hub.clone(), Daemon::start(&["shop"]));
    drop(old);
    happen(&new.publishers[0], 4, "4");
    happen(&new.publishers[0], 5, "5");
    assert_eq!(next(&Client::new(&new.api)), ["5"]);
}

#[test]
fn an_unknown_service_is_named_with_those_there_are() {
    let daemon = Daemon::start(&["shop", "blog"]);
    for result in [
        show_weights(daemon.common(Some("nope"), Format::Json)),
        show_status(daemon.common(Some("nope"), Format::Table)),
    ] {
        let failure = result.expect_err("no such service");
        assert_eq!(failure.code(), 1);
        let message = "plimsoll: no service is named \"nope\"; there is shop, blog";
        assert_eq!(failure.message().as_deref(), Some(message));
    }
}

#[test]
fn where_nothing_answers_the_code_is_four() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let api = format!("http://{}", closed.local_addr().expect("an address"));
    drop(closed);
    let common = Common { api: Some(api.clone()), ..Common::default() };
    let failure = show_status(common).expect_err("nothing there");
    assert_eq!(failure.code(), 4);
    let message =
        format!("plimsoll: no daemon answers at {api} (connection refused); is `plimsoll run` up?");
    assert_eq!(failure.message(), Some(message));
}

/// Answers one request with these bytes.
fn impostor(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let api = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).expect("a request");
        stream.write_all(answer.as_bytes()).expect("answered");
    });
    api
}

#[test]
fn what_is_not_plimsoll_is_said_to_be_so() {
    for (answer, why) in [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope", "/v1/weights: HTTP 404"),
        (
            "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n",
            "/v1/weights: HTTP 302",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "/v1/weights: expected value"),
        ("HTTP/1.1 403 No\r\nContent-Length: 18\r\n\r\n{\"error\":\"go away\"}", "/v1/weights: "),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", "http"),
    ] {
        let common = Common { api: Some(impostor(answer)), ..Common::default() };
        let failure = show_weights(common).expect_err("an impostor");
        assert_eq!(failure.code(), 4, "{answer}");
        let message = failure.message().unwrap_or_default();
        assert!(message.contains("is no plimsoll daemon"), "{message}");
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn a_wrong_url_or_configuration_is_wrong_usage() {
    let common = Common { api: Some("ftp://x".to_owned()), ..Common::default() };
    assert_eq!(show_weights(common).expect_err("no such URL").code(), 2);
    let common = Common { config: Some("/nonexistent/f.yaml".into()), ..Common::default() };
    let failure = show_weights(common).expect_err("no such file");
    assert_eq!(failure.code(), 2);
    let message = failure.message().unwrap_or_default();
    assert!(message.starts_with("/nonexistent/f.yaml:1:1: config: cannot be read"), "{message}");
}
