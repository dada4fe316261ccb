//! The load generator against backends whose behaviour is known.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use crate::common::{PATIENCE, load_on, ms, one, until};
use plimsoll_testbed::load::{self, Arrivals, ErrorKind, LoadReport, Pattern, Record};
use plimsoll_testbed::{BackendSpec, Change, Mode, Service, Testbed, TestbedSpec};

/// A backend that stands still for half a second and more keeps a quarter of the arrivals waiting. A
/// generator that waits for answers would send one request in that time, and see a p90 of a few
/// milliseconds.
#[test]
fn a_stall_is_charged_to_every_arrival_that_it_delays() {
    let bed = one(ms(1), |_| {});
    let mut spec = load_on(bed.address("s1").unwrap(), 200.0, ms(60_000));
    spec.arrivals = Arrivals::Open { pattern: Pattern::Constant, rate_rps: 200.0 };
    spec.keep_records = true;
    let handle = load::start(spec).unwrap();
    until("99 answers, most of them fast", || {
        let total = handle.snapshot().unwrap().total;
        total.requests >= 99 && total.p50_ms.is_some_and(|p50| p50 < 100.0)
    });
    bed.set("s1", Change::speed(1e-9)).unwrap();
    until("a hundred arrivals to wait, and a quarter of all", || {
        let so_far = handle.snapshot().unwrap();
        so_far.in_flight >= 100 && 3 * so_far.in_flight >= so_far.total.requests
    });
    // Stopped first: however late this test is, nothing comes that was not delayed.
    handle.stop();
    bed.set("s1", Change::speed(1.0)).unwrap();
    let report = handle.join().unwrap();
    assert_eq!(report.total.errors, 0, "{report:?}");
    let due = 200.0 * report.measured_seconds;
    assert!((report.total.requests as f64 - due).abs() < 1.01, "{due} arrivals: {report:?}");
    let slow = |r: &&Record| r.latency_us > 100_000;
    // Each of the hundred has waited 5 ms longer than the one after it: 79 of them for more than 100 ms.
    let delayed = report.records.iter().filter(slow).count();
    assert!(delayed >= 75, "{delayed}");
    assert!(report.total.p90_ms.unwrap() > 100.0, "{:?}", report.total);
    assert!(report.total.max_ms.unwrap() > 450.0, "{:?}", report.total);
    let fast = report.records.len() - delayed;
    assert!(fast >= 49, "{fast} were fast, of 99 and more before the stall");
}

#[test]
fn handles_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Testbed>();
    shared::<load::LoadHandle>();
}

#[test]
fn splits_by_backend_and_counts_errors_by_kind() {
    let reports: Vec<(Testbed, LoadReport)> = [("a", 0.0), ("b", 1.0)]
        .into_iter()
        .map(|(name, error_rate)| {
            let bed = one(ms(1), |s| (s.name, s.error_rate) = (name.into(), error_rate));
            let spec = load_on(bed.address(name).unwrap(), 300.0, ms(400));
            let report = load::run(spec, ms(50), |_| {}).unwrap();
            (bed, report)
        })
        .collect();
    let (good, bad) = (&reports[0].1, &reports[1].1);
    assert!(good.total.requests > 60 && good.total.errors == 0, "{good:?}");
    assert_eq!(good.by_backend["a"], good.total);
    assert!(good.total.mean_ms.unwrap() >= 1.0);
    assert_eq!(bad.total.errors, bad.total.requests);
    assert_eq!(bad.error_kinds[&ErrorKind::Status], bad.total.errors);
    assert_eq!((bad.total.mean_ms, bad.by_backend["b"].errors), (None, bad.total.errors));
    assert_eq!(bad.first_error.as_deref(), Some("status 500"));
    assert_eq!(reports[0].0.stats().unwrap().backends[0].served, good.total.requests);
}

#[test]
fn refused_connections_are_reported() {
    let bed = one(ms(1), |s| s.mode = Mode::Refuse);
    for arrivals in
        [Arrivals::Open { pattern: Pattern::Poisson, rate_rps: 200.0 }, Arrivals::Closed]
    {
        let mut spec = load_on(bed.address("s1").unwrap(), 200.0, ms(60_000));
        spec.arrivals = arrivals;
        spec.concurrency = Some(3);
        let handle = load::start(spec).unwrap();
        until("some refusals", || handle.snapshot().unwrap().total.requests > 5);
        handle.stop();
        let report = handle.join().unwrap();
        assert!(!report.connected);
        assert_eq!(report.error_kinds[&ErrorKind::Connect], report.total.requests);
        assert!(report.first_error.unwrap().contains("refused"));
    }
}

#[test]
fn requests_end_one_way_or_another() {
    let bed = one(ms(1), |_| {});
    for (mode, kind) in [
        (Mode::Silent, ErrorKind::Timeout),
        (Mode::HangHeaders, ErrorKind::Timeout),
        (Mode::Reset, ErrorKind::Cut),
        (Mode::Status(404), ErrorKind::Status),
    ] {
        bed.set("s1", Change::mode(mode)).unwrap();
        let mut spec = load_on(bed.address("s1").unwrap(), 100.0, ms(300));
        // It counts from the intended start: a machine that is late must not make it what ends the others.
        spec.timeout = if kind == ErrorKind::Timeout { ms(150) } else { PATIENCE };
        let report = load::run(spec, ms(50), |_| {}).unwrap();
        assert!(report.total.requests > 10, "{report:?}");
        assert_eq!(report.error_kinds[&kind], report.total.requests, "{mode}: {report:?}");
        assert_eq!(report.in_flight, 0);
    }
}

#[test]
fn waiting_for_a_connection_counts() {
    // Two connections at 20 ms a request carry 100 of the 200 requests per second.
    let bed = one(ms(20), |s| s.cores = 100);
    let mut spec = load_on(bed.address("s1").unwrap(), 200.0, ms(1000));
    spec.arrivals = Arrivals::Open { pattern: Pattern::Constant, rate_rps: 200.0 };
    spec.concurrency = Some(2);
    let mut most = 0;
    let report = load::run(spec, ms(20), |r| most = most.max(r.connections)).unwrap();
    assert_eq!((report.total.requests, report.total.errors, most), (199, 0, 2));
    // The last one waits until the 199 before it are served: a second.
    assert!(report.total.max_ms.unwrap() > 900.0, "{:?}", report.total);
}

#[test]
fn too_many_in_flight_is_an_error_and_not_a_wait() {
    let bed = one(ms(1), |s| s.mode = Mode::Silent);
    let mut spec = load_on(bed.address("s1").unwrap(), 500.0, ms(300));
    spec.max_in_flight = 10;
    spec.timeout = ms(2000);
    let report = load::run(spec, ms(50), |_| {}).unwrap();
    assert_eq!(report.error_kinds[&ErrorKind::Timeout], 10, "{report:?}");
    assert_eq!(report.error_kinds[&ErrorKind::Overflow], report.total.errors - 10);
}

#[test]
fn a_closed_loop_keeps_its_clients_busy_and_no_more() {
    let bed = one(ms(5), |s| s.cores = 2);
    let mut spec = load_on(bed.address("s1").unwrap(), 0.0, ms(60_000));
    spec.arrivals = Arrivals::Closed;
    spec.concurrency = Some(4);
    let handle = load::start(spec).unwrap();
    let mut most = 0;
    until("all clients to be busy, and many answers", || {
        let so_far = handle.snapshot().unwrap();
        most = most.max(so_far.in_flight);
        so_far.total.requests >= 150 && most >= 4
    });
    handle.stop();
    let report = handle.join().unwrap();
    assert_eq!((most, report.total.errors), (4, 0));
    // Four clients on two cores: each waits once for the other.
    let mean = report.total.mean_ms.unwrap();
    assert!(mean > 9.0, "{mean}");
    // What was under way at the end counts, too.
    let served = 400.0 * report.measured_seconds + 4.0;
    assert!(report.total.requests as f64 <= served, "two cores serve 400 per second: {report:?}");
}

#[test]
fn warm_up_rate_and_stop() {
    let bed = one(ms(1), |s| s.cores = 50);
    let mut spec = load_on(bed.address("s1").unwrap(), 500.0, ms(60_000));
    spec.warmup = ms(300);
    spec.keep_records = true;
    let handle = load::start(spec).unwrap();
    handle.wait(ms(200));
    let early = handle.snapshot().unwrap();
    assert!(early.total.requests == 0 || early.measured_seconds > 0.0, "warming up: {early:?}");
    until("requests that count", || handle.snapshot().unwrap().total.requests > 50);
    assert_eq!(handle.snapshot().unwrap().target_rps, Some(500.0));
    handle.set_rate(0.0).unwrap();
    until("none to be under way", || handle.snapshot().unwrap().in_flight == 0);
    let before = handle.snapshot().unwrap();
    handle.wait(ms(200));
    assert_eq!(handle.snapshot().unwrap().total, before.total, "paused");
    assert!(handle.set_rate(f64::NAN).is_err());
    handle.stop();
    let report = handle.join().unwrap();
    assert!(report.measured_seconds < 30.0);
    let warm = report.records.iter().filter(|r| r.start_ns >= 300_000_000).count();
    assert_eq!(warm as u64, report.total.requests);
    assert!(report.records.len() > warm);
    let sliced: u64 = report.series.iter().map(|s| s.requests).sum();
    assert_eq!(sliced, report.records.len() as u64);
}

/// Answers every connection's requests with `answer`; closes after each when told so.
fn server(answer: &'static str, close: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let mut space = [0; 4096];
                while stream.read(&mut space).is_ok_and(|n| n > 0) {
                    if stream.write_all(answer.as_bytes()).is_err() || close {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn reads_every_kind_of_body() {
    for (answer, close, fine) in [
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end", true, true),
        ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", true, true),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", false, true),
        ("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", false, true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", true, false),
        ("SSH-2.0-OpenSSH_9.2\r\n", true, false),
    ] {
        let mut spec = load_on(server(answer, close), 100.0, ms(200));
        spec.timeout = ms(3000);
        let report = load::run(spec, ms(50), |_| {}).unwrap();
        assert!(report.total.requests > 5, "{answer}: {report:?}");
        let errors = if fine { 0 } else { report.total.requests };
        assert_eq!(report.total.errors, errors, "{answer}: {report:?}");
        assert!(report.total.max_ms.is_none_or(|max| max < 2900.0), "{answer}: {report:?}");
    }
}

#[test]
fn several_testbeds_and_loads_share_a_process() {
    let backend = |name: &str| BackendSpec::new(name, Service::exponential(ms(2)));
    let lanes: Vec<_> = (0..3)
        .map(|_| {
            let backends = vec![backend("a"), backend("b")];
            let bed = Testbed::start(TestbedSpec { admin: None, backends }).unwrap();
            let mut spec = load_on(bed.address("a").unwrap(), 100.0, ms(400));
            spec.keep_records = true;
            (bed, load::start(spec).unwrap())
        })
        .collect();
    let starts: Vec<Vec<u64>> = lanes
        .into_iter()
        .map(|(bed, handle)| {
            let report = handle.join().unwrap();
            let served: Vec<u64> = bed.stats().unwrap().backends.iter().map(|b| b.served).collect();
            assert_eq!(served, [report.total.requests, 0]);
            report.records.iter().map(|r| r.start_ns).collect()
        })
        .collect();
    assert!(starts[0].len() > 10);
    assert_eq!(starts[0], starts[1], "the same seed gives the same arrivals");
    assert_eq!(starts[1], starts[2]);
}
