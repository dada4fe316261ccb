//! Emulated backends as their clients see them, over real sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::common::{ask, connect, load_on, ms, one, until};
use plimsoll_testbed::load::{self, Arrivals};
use plimsoll_testbed::{
    BackendSpec, Change, Discipline, Mode, Service, SetError, StartError, Testbed, TestbedSpec,
    TestbedStats,
};

const GET: &[u8] = b"GET /work HTTP/1.1\r\nHost: x\r\n\r\n";

/// Reads until the bytes end with `end`.
fn read_to(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn serves_over_kept_connections_and_says_what_it_is() {
    let bed = one(ms(1), |s| (s.cores, s.speed) = (4, 1.1));
    let mut stream = connect(bed.address("s1").unwrap());
    // Two requests at once: the second waits its turn, and answers come in order.
    stream.write_all(GET).unwrap();
    stream.write_all(b"POST /work HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").unwrap();
    stream.write_all(b"HEAD /work HTTP/1.1\r\n\r\n").unwrap();
    for _ in 0..2 {
        let answer = read_to(&mut stream, "\r\n\r\nok\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("\r\nx-backend: s1\r\n"), "{answer}");
        assert!(answer.contains("\r\nx-plimsoll-emulated: cores=4 speed=1.1\r\n"), "{answer}");
    }
    let head = read_to(&mut stream, "\r\n\r\n");
    assert!(head.contains("Content-Length: 3\r\n"), "{head}");
    stream.write_all(b"nonsense\r\n\r\n").unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0, "no body after HEAD, then the end");
    assert_eq!(bed.stats().unwrap().backends[0].served, 3);
}

#[test]
fn answers_have_as_many_bytes_of_text_as_is_said() {
    let bed = one(ms(1), |s| s.answer_bytes = Some(300_000));
    let answer = ask(bed.address("s1").unwrap(), "GET", "/work", "");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("\r\nContent-Length: 300000"), "{head}");
    assert_eq!(body.len(), 300_000);
    // Words repeat, their order does not.
    assert!(body.matches(" balancer ").count() > 500);
    assert_eq!(body.matches(&body[..200]).count(), 1);
}

#[test]
fn light_paths_cost_no_service() {
    // A request of an hour would never come back.
    let bed = one(ms(3_600_000), |s| s.light_paths.push("/ready".into()));
    let address = bed.address("s1").unwrap();
    let mut worker = connect(address);
    worker.write_all(GET).unwrap();
    for path in ["/health", "/ready?x=1"] {
        assert!(ask(address, "GET", path, "").starts_with("HTTP/1.1 200"), "{path}");
    }
    let stats = bed.stats().unwrap();
    assert_eq!((stats.backends[0].light, stats.backends[0].in_flight), (2, 1));
}

#[test]
fn a_full_queue_rejects() {
    let bed = one(ms(3_600_000), |s| s.queue_limit = Some(1));
    let address = bed.address("s1").unwrap();
    let mut waiting: Vec<TcpStream> = (0..2).map(|_| connect(address)).collect();
    waiting.iter_mut().for_each(|s| s.write_all(GET).unwrap());
    while bed.stats().unwrap().backends[0].in_flight < 2 {
        std::thread::yield_now();
    }
    assert!(ask(address, "GET", "/work", "").starts_with("HTTP/1.1 503"));
    assert_eq!(bed.stats().unwrap().backends[0].rejected, 1);
}

/// For longer than any test needs.
fn saturate(bed: &Testbed, clients: usize) -> load::LoadHandle {
    let mut spec = load_on(bed.address("s1").unwrap(), 0.0, ms(60_000));
    spec.arrivals = Arrivals::Closed;
    spec.concurrency = Some(clients);
    load::start(spec).unwrap()
}

/// The work done is exactly that of the requests served, however late timers are.
#[test]
fn finish_times_follow_the_ideal_schedule() {
    for discipline in [Discipline::Fifo, Discipline::Ps] {
        let bed = one(ms(1), |s| s.discipline = discipline);
        let handle = saturate(&bed, 8);
        until("enough to be served", || bed.stats().unwrap().backends[0].served > 100);
        handle.stop();
        handle.join().unwrap();
        let end = &bed.stats().unwrap().backends[0];
        let ideal = end.served as f64 * 1e-3;
        let worked = end.busy_core_seconds;
        assert!((worked / ideal - 1.0).abs() < 1e-6, "{discipline:?}: {worked} s, not {ideal} s");
    }
}

/// A core that always has requests waiting does not idle between them. With finish times that follow
/// the timers, each millisecond of service would cost a tenth more.
#[test]
fn a_saturated_core_never_idles() {
    for discipline in [Discipline::Fifo, Discipline::Ps] {
        let bed = one(ms(1), |s| {
            (s.discipline, s.service) = (discipline, Service::exponential(ms(1)));
        });
        let handle = saturate(&bed, 200);
        handle.wait(ms(100));
        let busy = |s: &TestbedStats| s.backends[0].busy_core_seconds;
        let mut shares = Vec::new();
        // Not quite 1 only should the machine stand still for a fifth of a second: not five times in a row.
        let is_busy = (0..5).any(|_| {
            let early = bed.stats().unwrap();
            handle.wait(ms(400));
            let late = bed.stats().unwrap();
            let share = (busy(&late) - busy(&early)) / (late.uptime_seconds - early.uptime_seconds);
            assert!(share < 1.001, "{discipline:?}: {share}");
            shares.push(share);
            share >= 0.8
        });
        assert!(is_busy, "{discipline:?}: {shares:?}");
    }
}

#[test]
fn a_backend_that_refuses_comes_back_on_its_port() {
    let bed = one(ms(1), |_| {});
    let address = bed.address("s1").unwrap();
    for _ in 0..2 {
        let mut open = connect(address);
        open.write_all(GET).unwrap();
        read_to(&mut open, "ok\n");
        bed.set("s1", Change::mode(Mode::Refuse)).unwrap();
        let kind = TcpStream::connect(address).unwrap_err().kind();
        assert_eq!(kind, ErrorKind::ConnectionRefused);
        assert!(matches!(open.read(&mut [0; 8]), Ok(0) | Err(_)), "open connections are cut");
        bed.set("s1", Change::mode(Mode::Normal)).unwrap();
        assert!(ask(address, "GET", "/work", "").starts_with("HTTP/1.1 200"));
    }
}

#[test]
fn a_silent_backend_accepts_and_never_answers() {
    let bed = one(ms(200), |s| s.speed = 1e-6);
    let address = bed.address("s1").unwrap();
    let mut in_service = connect(address);
    in_service.write_all(GET).unwrap();
    while bed.stats().unwrap().backends[0].in_flight < 1 {
        std::thread::yield_now();
    }
    // From here on its 200 ms pass: it is done while the backend is silent, and not before.
    let silent = Change { mode: Some(Mode::Silent), ..Change::speed(1.0) };
    bed.set("s1", silent).unwrap();
    let mut fresh = connect(address);
    fresh.write_all(b"GET /health HTTP/1.1\r\n\r\n").unwrap();
    for stream in [&mut in_service, &mut fresh] {
        stream.set_read_timeout(Some(ms(400))).unwrap();
        let error = stream.read(&mut [0; 8]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    }
    bed.set("s1", Change::mode(Mode::Normal)).unwrap();
    assert!(matches!(fresh.read(&mut [0; 8]), Ok(0) | Err(_)), "its clients learn that it is over");
    assert!(ask(address, "GET", "/work", "").starts_with("HTTP/1.1 200"));
}

#[test]
fn the_other_ways_to_misbehave() {
    let bed = one(ms(1), |_| {});
    let address = bed.address("s1").unwrap();

    bed.set("s1", Change::mode(Mode::Reset)).unwrap();
    let mut stream = connect(address);
    stream.write_all(GET).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);

    bed.set("s1", Change::mode(Mode::Status(404))).unwrap();
    assert!(ask(address, "GET", "/health", "").starts_with("HTTP/1.1 404 Not Found\r\n"));

    bed.set("s1", Change::mode(Mode::HangHeaders)).unwrap();
    let mut stream = connect(address);
    stream.write_all(GET).unwrap();
    let begun = read_to(&mut stream, "x-unfin");
    assert!(begun.starts_with("HTTP/1.1 200 OK\r\n") && !begun.contains("\r\n\r\n"));
    stream.set_read_timeout(Some(ms(200))).unwrap();
    assert!(stream.read(&mut [0; 8]).is_err(), "nothing follows");

    bed.set("s1", Change::mode(Mode::Huge)).unwrap();
    let mut stream = connect(address);
    stream.write_all(GET).unwrap();
    read_to(&mut stream, "Transfer-Encoding: chunked\r\n\r\n10000\r\n");
    let mut got = 0;
    let mut space = vec![0; 1 << 16];
    while got < 64 << 20 {
        got += stream.read(&mut space).unwrap();
    }
    drop(stream);

    bed.set("s1", Change { error_rate: Some(1.0), mode: Some(Mode::Normal), ..Change::default() })
        .unwrap();
    assert!(ask(address, "GET", "/work", "").starts_with("HTTP/1.1 500"));
    assert!(ask(address, "GET", "/health", "").starts_with("HTTP/1.1 200"));
}

#[test]
fn the_admin_api_shows_and_changes() {
    let bed = one(ms(5), |_| {});
    let admin = bed.admin_address().unwrap();
    let body = |answer: &str| -> serde_json::Value {
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    ask(bed.address("s1").unwrap(), "GET", "/work", "");
    let state = body(&ask(admin, "GET", "/backends", ""));
    let s1 = &state["backends"][0];
    assert_eq!(
        (&s1["name"], &s1["emulated"], &s1["served"]),
        (&"s1".into(), &true.into(), &1.into())
    );
    assert_eq!(s1["service"]["mean"], "5ms");

    let patch = r#"{"speed":2,"cores":3,"service":{"kind":"exponential"},"mode":"status:429"}"#;
    let answer = ask(admin, "PATCH", "/backends/s1", patch);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let s1 = body(&answer);
    assert_eq!((s1["cores"].as_u64(), s1["speed"].as_f64()), (Some(3), Some(2.0)));
    assert_eq!(
        (&s1["mode"], &s1["service"]["kind"]),
        (&"status:429".into(), &"exponential".into())
    );
    let work = ask(bed.address("s1").unwrap(), "GET", "/work", "");
    assert!(work.contains("x-plimsoll-emulated: cores=3 speed=2\r\n"), "{work}");

    let answer = ask(admin, "PATCH", "/backends/s1", r#"{"speed":-1,"colour":"red"}"#);
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(body(&answer)["errors"].as_array().unwrap().len(), 2);
    for (method, path, status) in [
        ("GET", "/backends/s2", 404),
        ("PATCH", "/backends/s2", 404),
        ("GET", "/", 404),
        ("DELETE", "/backends/s1", 405),
    ] {
        let answer = ask(admin, method, path, "{}");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{method} {path}: {answer}");
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let bed = one(ms(1), |_| {});
    let taken = bed.address("s1").unwrap();
    let mut second = BackendSpec::new("s2", Service::deterministic(ms(1)));
    second.listen = taken;
    let spec = TestbedSpec { admin: None, backends: vec![second] };
    let error = Testbed::start(spec).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("backend s2: cannot listen on"), "{error}");
    let empty = TestbedSpec { admin: None, backends: Vec::new() };
    assert!(matches!(Testbed::start(empty), Err(StartError::Spec(_))));
    assert_eq!(bed.set("s9", Change::default()), Err(SetError::Unknown("s9".into())));
    assert!(matches!(bed.set("s1", Change::speed(0.0)), Err(SetError::Invalid(_))));
    bed.shutdown().unwrap();
    assert!(TcpStream::connect(taken).is_err(), "a testbed that was shut down has freed its ports");
}
