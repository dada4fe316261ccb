//! Clients that leave while their request is under way: it is cancelled, and its place is free, at once.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::*;

/// A backend that answers nothing, and counts those that leave.
fn silent() -> (Backend, Arc<AtomicUsize>) {
    let left = Arc::new(AtomicUsize::new(0));
    let count = left.clone();
    let backend = Backend::new(move |_, stream| {
        // Blocks until the proxy closes the connection.
        if matches!(stream.read(&mut [0]), Ok(0) | Err(_)) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        false
    });
    (backend, left)
}

#[test]
fn a_client_that_leaves_is_noticed_at_once() {
    let (backend, left) = silent();
    // Nothing but the client's leaving ends it: all time-outs are an hour.
    let entry = ", timeouts: { request: 1h, idle: 1h }";
    let proxy = start(&egress(2, entry, "policy: random", &[backend.address]));
    let mut clients: Vec<Client> = (0..4).map(|_| proxy.client("out")).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        match i % 2 {
            0 => client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n"),
            _ => client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc"),
        };
    }
    until("they are in flight", || backend.count() == 4 && proxy.in_flight() == 4);
    drop(clients);
    until("the backend sees them leave", || left.load(Ordering::SeqCst) == 4);
    until("none is in flight", || proxy.in_flight() == 0);
    assert_eq!(proxy.backends()[0].abandoned, 4);
}

#[test]
fn a_client_that_leaves_an_ingress_gives_its_place_back() {
    let (application, left) = silent();
    let proxy = start(&format!(
        "  threads: 1
  ingress: [ {{ name: in, listen: \"127.0.0.1:1\", upstream: \"{}\", capacity: {{ static: 1 }} }} ]
",
        application.address
    ));
    for round in 1..=3 {
        let mut client = proxy.client("in");
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        until("it is in flight", || application.count() == round);
        assert_eq!(proxy.client("in").get("/").status, 429);
        drop(client);
        until("its place is free", || {
            left.load(Ordering::SeqCst) == round && proxy.in_flight() == 0
        });
    }
}

/// Requests that are passed on without hyper once a connection is idle, and through it.
const REQUESTS: [&str; 3] = [
    "GET /last HTTP/1.1\r\nhost: a\r\n\r\n",
    "POST /last HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc",
    "POST /last HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
];

/// An egress entry, and an ingress entry, before this backend: nothing but a client's leaving ends a request.
fn patient(backend: &Backend) -> [(Running, &'static str); 2] {
    let timeouts = "timeouts: { request: 1h, idle: 1h }";
    let address = backend.address;
    let ingress = format!(
        "  ingress: [ {{ name: in, listen: \"127.0.0.1:1\", upstream: \"{address}\", {timeouts} }} ]\n"
    );
    let egress = egress(1, &format!(", {timeouts}"), "policy: random", &[address]);
    [(start(&egress), "out"), (start(&ingress), "in")]
}

/// Answers all requests but those for `/last`, at which it waits for the gate.
fn gated(gate: &Gate) -> Backend {
    let gate = gate.clone();
    Backend::new(move |request, stream| {
        if request.line().contains("/last") {
            gate.pass();
        }
        write(stream, &response("200 OK", "", "ok"));
        true
    })
}

/// The thread has seen all that was sent before.
fn others_are_served(proxy: &Running, entry: &str) {
    assert_eq!(proxy.client(entry).get("/other").status, 200);
}

#[test]
fn what_a_client_sent_ahead_does_not_hide_that_it_leaves() {
    let gate = Gate::default();
    let backend = gated(&gate);
    for (proxy, entry) in patient(&backend) {
        for request in REQUESTS {
            for ahead in ["\r\n", "GET /next HTTP/1.1\r\nhost: a\r\n\r\n"] {
                for (is_at_once, is_reset) in
                    [(false, false), (false, true), (true, false), (true, true)]
                {
                    let mut client = proxy.client(entry);
                    assert_eq!(client.get("/first").status, 200);
                    let before = backend.count();
                    match is_at_once {
                        true => drop(client.send(&format!("{request}{ahead}"))),
                        false => drop(client.send(request)),
                    }
                    until("it is in flight", || backend.count() > before);
                    if !is_at_once {
                        client.send(ahead);
                    }
                    others_are_served(&proxy, entry);
                    until("the other is counted", || proxy.in_flight() < 2);
                    assert_eq!(proxy.in_flight(), 1, "{request:?} {ahead:?}");
                    if is_reset {
                        let at_once = Some(std::time::Duration::ZERO);
                        rustix::net::sockopt::set_socket_linger(&client.stream, at_once)
                            .expect("an option");
                    }
                    drop(client);
                    until("none is in flight", || proxy.in_flight() == 0);
                }
            }
        }
    }
    assert!(backend.received.lock().expect("a list").iter().all(|r| !r.line().contains("/next")));
    gate.open();
}

#[test]
fn what_a_client_sends_ahead_is_served_in_its_turn() {
    for request in REQUESTS {
        let gate = Gate::default();
        let backend = gated(&gate);
        for (proxy, entry) in patient(&backend) {
            gate.close();
            let mut client = proxy.client(entry);
            assert_eq!(client.get("/first").status, 200);
            let before = backend.count();
            client.send(request);
            until("it is in flight", || backend.count() > before);
            // In pieces, the last of which ends in the midst of a head.
            for piece in ["GET /a HTTP/1.1\r\n", "host: a\r\n\r\nPOST /b HT"] {
                client.send(piece);
                others_are_served(&proxy, entry);
            }
            gate.open();
            assert_eq!((client.answer().status, client.answer().status), (200, 200));
            client.send("TP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n!?");
            assert_eq!(client.answer().status, 200);
            assert_eq!(
                (backend.last().line(), &backend.last().body[..]),
                ("POST /b HTTP/1.1", &b"!?"[..])
            );
        }
    }
}
