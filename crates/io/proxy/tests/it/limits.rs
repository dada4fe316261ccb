//! Time-outs and limits.

use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::*;

#[test]
fn a_backend_that_does_not_answer_is_given_up() {
    let gate = Gate::default();
    let backend = Backend::gated(&gate);
    let entry = ", timeouts: { request: 100ms }";
    let proxy = start(&egress(1, entry, "policy: random", &[backend.address]));
    let mut client = proxy.client("out");
    let answer = client.get("/");
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (504, "the backend sent no response in time\n")
    );
    assert_eq!(proxy.proxy.status().egress[0].clients.timeouts, 1);
    until("counted", || proxy.backends()[0].failed == 1 && proxy.in_flight() == 0);
    gate.open();
    // The client's connection is kept.
    until("it is served", || client.get("/").status == 200);
}

#[test]
fn a_backend_that_stops_in_the_midst_of_its_response_is_given_up() {
    let gate = Gate::default();
    let held = gate.clone();
    let backend = Backend::new(move |_, stream| {
        write(stream, "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc");
        held.pass();
        false
    });
    let entry = ", timeouts: { idle: 3s }";
    let proxy = start(&egress(1, entry, "policy: random", &[backend.address]));
    let mut client = proxy.client("out");
    assert!(client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").try_answer(Kind::Response).is_none());
    until("counted", || proxy.backends()[0].failed == 1 && proxy.in_flight() == 0);
    gate.open();
}

#[test]
fn a_client_that_stops_in_the_midst_of_its_request_is_given_up() {
    let backend = Backend::ok("hello");
    let entry = ", timeouts: { idle: 3s }";
    let proxy = start(&egress(1, entry, "policy: random", &[backend.address]));
    let mut half_head = proxy.client("out");
    half_head.send("GET / HTTP/1.1\r\nhost: a\r\nx-");
    let mut half_body = proxy.client("out");
    half_body.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nabc");
    assert!(half_head.try_answer(Kind::Response).is_none_or(|answer| answer.status == 408));
    assert_eq!(half_body.answer().status, 408);
    until("counted", || proxy.in_flight() == 0);
    assert_eq!((proxy.backends()[0].abandoned, backend.count()), (1, 0), "not the backend's fault");
    let mut idle = proxy.client("out");
    assert_eq!(idle.get("/").status, 200);
    assert!(idle.is_closed(), "an idle connection ends");
}

#[test]
fn a_slow_upload_may_take_longer_than_a_response() {
    let backend = Backend::ok("hello");
    let entry = ", timeouts: { request: 150ms, idle: 60s }";
    let proxy = start(&egress(1, entry, "policy: random", &[backend.address]));
    until("it is served", || {
        let mut client = proxy.client("out");
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 8\r\n\r\n");
        for _ in 0..4 {
            std::thread::sleep(std::time::Duration::from_millis(100));
            client.send("ab");
        }
        client.answer().status == 200
    });
    assert_eq!(backend.last().body, b"abababab");
}

#[test]
fn connections_beyond_the_limit_are_turned_away_and_the_others_served() {
    let backend = Backend::ok("hello");
    let entry = ", limits: { connections: 2 }";
    let proxy = start(&egress(2, entry, "policy: random", &[backend.address]));
    let (mut one, mut two) = (proxy.client("out"), proxy.client("out"));
    assert_eq!((one.get("/").status, two.get("/").status), (200, 200));
    for _ in 0..20 {
        let mut more = proxy.client("out");
        // Whether it still reads the 503 depends on what it has sent.
        let answer = more.try_answer(Kind::Response);
        assert!(answer.is_none_or(|answer| answer.status == 503));
    }
    assert_eq!((one.get("/").status, two.get("/").status), (200, 200));
    assert_eq!(proxy.proxy.status().egress[0].clients.turned_away, 20);
    drop(one);
    until("one has gone", || proxy.proxy.status().egress[0].clients.connections == 1);
    assert_eq!(proxy.client("out").get("/").status, 200);
}

#[test]
fn violence_leaves_nothing_in_flight() {
    // Backends that answer, break off before and within a response, and hang; clients that leave at any time.
    let turn = AtomicUsize::new(0);
    let backends: Vec<Backend> = (0..3)
        .map(|_| {
            let turn = AtomicUsize::new(turn.fetch_add(1, Ordering::SeqCst));
            Backend::new(move |_, stream| match turn.fetch_add(1, Ordering::SeqCst) % 7 {
                0 => false,
                1 => {
                    write(stream, "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\nabc");
                    false
                }
                2 => {
                    let refusal = "plimsoll-rejected: full\r\n";
                    write(stream, &response("429 Too Many Requests", refusal, "full"));
                    true
                }
                3 => {
                    write(stream, "HTTP/1.1 20");
                    false
                }
                _ => {
                    write(stream, &response("200 OK", "plimsoll-chip: 1\r\n", &"x".repeat(50_000)));
                    true
                }
            })
        })
        .collect();
    let addresses: Vec<_> = backends.iter().map(|b| b.address).collect();
    for policy in ["bloc", "expected_delay"] {
        let proxy = start(&egress(2, "", &format!("policy: {policy}"), &addresses));
        std::thread::scope(|scope| {
            for worker in 0..8 {
                let proxy = &proxy;
                scope.spawn(move || {
                    for i in 0..60 {
                        let mut client = proxy.client("out");
                        let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nab";
                        let get = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
                        client.send(if (worker + i) % 4 == 1 { post } else { get });
                        match (worker + i) % 4 {
                            2 => drop(client.stream.read(&mut [0; 500])),
                            3 => drop(client.try_answer(Kind::Response)),
                            _ => {}
                        }
                    }
                });
            }
        });
        // Connections of clients that have left may still wait to be accepted: more requests begin.
        until("all that were sent have ended, and none is in flight", || {
            let (mut sent, mut ended) = (0, 0);
            for backend in proxy.backends() {
                sent += backend.sent;
                ended += backend.succeeded + backend.failed + backend.abandoned + backend.rejected;
            }
            sent > 0 && sent == ended && proxy.in_flight() == 0
        });
    }
}

#[test]
fn what_comes_after_the_last_request_is_none() {
    let backend = Backend::ok("ok");
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    assert_eq!(proxy.client("out").get("/").status, 200);
    for last in [
        "GET /last HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        "GET /last HTTP/1.0\r\nhost: a\r\n\r\n",
    ] {
        let before = backend.count();
        let mut client = proxy.client("out");
        assert_eq!(client.send(last).answer().status, 200);
        // While it lingers.
        client.send("GET /more HTTP/1.1\r\nhost: a\r\n\r\n");
        assert!(client.is_closed());
        until("it has ended", || proxy.proxy.status().egress[0].clients.connections == 0);
        assert_eq!((backend.count() - before, backend.last().line()), (1, "GET /last HTTP/1.1"));
    }
}
