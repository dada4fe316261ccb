//! The end of a proxy, and what it says of itself until then.

use std::net::TcpStream;
use std::thread;

use plimsoll_proxy::Socket;

use crate::support::*;

#[test]
fn requests_under_way_are_finished_and_no_more_are_taken() {
    let gate = Gate::default();
    let backend = Backend::gated(&gate);
    let proxy = start(&egress(2, "", "policy: random", &[backend.address]));
    let address = proxy.address("out");
    let mut clients: Vec<Client> = (0..4).map(|_| proxy.client("out")).collect();
    let idle = Client::new(address);
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    until("they are in flight", || backend.count() == 4);
    let ending = thread::spawn(move || proxy.proxy.stop(PATIENCE));
    until("nobody listens", || TcpStream::connect(address).is_err());
    gate.open();
    for client in &mut clients {
        let answer = client.answer();
        assert_eq!((answer.status, answer.body.as_str()), (200, "late"));
        assert!(client.is_closed());
    }
    let mut idle = idle;
    assert!(idle.is_closed());
    ending.join().expect("an end");
}

#[test]
fn new_connections_have_time_for_their_first_request() {
    let backend = Backend::ok("hello");
    let address = backend.address;
    let ingress = format!(
        "  ingress: [ {{ name: out, listen: \"127.0.0.1:1\", upstream: \"{address}\" }} ]\n"
    );
    for section in [egress(1, "", "policy: random", &[address]), ingress] {
        // Not always, where this test itself takes longer than they are given.
        until("they are served", || {
            let proxy = start(&section);
            let (mut old, mut new) = (proxy.client("out"), proxy.client("out"));
            assert_eq!(old.get("/").status, 200);
            let ending = thread::spawn(move || proxy.proxy.stop(PATIENCE));
            assert!(old.is_closed(), "one that has been served is closed at once");
            new.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
            let answer = new.try_answer(Kind::Response);
            assert!(new.is_closed());
            ending.join().expect("an end");
            answer.is_some_and(|answer| {
                answer.status == 200 && answer.header("connection") == Some("close")
            })
        });
    }
}

#[test]
fn it_does_not_wait_for_ever() {
    let gate = Gate::default();
    let backend = Backend::gated(&gate);
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    let mut client = proxy.client("out");
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    until("it is in flight", || backend.count() == 1);
    proxy.proxy.stop(std::time::Duration::from_millis(50));
    assert!(client.try_answer(Kind::Response).is_none());
    gate.open();
}

#[test]
fn two_proxies_have_different_addresses() {
    let text = egress(1, "", "policy: random", &["127.0.0.1:1".parse().expect("an address")]);
    let (one, two) = (start(&text), start(&text));
    assert_ne!(one.address("out"), two.address("out"));
}

#[test]
fn its_status_can_be_asked_for() {
    let backend = Backend::ok("hello");
    let proxy = start(&egress(2, "", "policy: bloc", &[backend.address]));
    let mut client = proxy.client("out");
    (0..3).for_each(|_| assert_eq!(client.get("/").status, 200));
    until("counted", || proxy.in_flight() == 0);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("proxy.sock");
    assert!(plimsoll_proxy::ask(&path).is_err(), "nobody listens yet");
    let handle = proxy.proxy.handle();
    let (bound, socket_path) = (std::sync::mpsc::channel(), path.clone());
    thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let socket = Socket::bind(&socket_path).expect("a socket");
            bound.0.send(()).expect("a test");
            socket.serve(&handle, || Ok(())).await;
        });
    });
    bound.1.recv_timeout(PATIENCE).expect("a socket");
    let status = plimsoll_proxy::ask(&path).expect("a status");
    let pool = &status.egress[0].pools[0];
    assert_eq!((status.threads, pool.policy.as_str(), pool.name.as_str()), (2, "bloc", "pool"));
    let requests = &pool.backends[0].requests;
    assert_eq!((requests.sent, requests.succeeded, requests.in_flight), (3, 3, 0));
    assert_eq!(requests.latency_buckets.last().map(|bucket| bucket.1), Some(3));
    assert_eq!(status.egress[0].clients.requests, 3);
}

#[test]
fn a_backend_is_drained_and_taken_up_again() {
    let gate = Gate::default();
    let (one, two) = (Backend::gated(&gate), Backend::ok("two"));
    let pool = "policy: least_connections";
    let proxy = start(&egress(3, "", pool, &[one.address, two.address]));
    let handle = proxy.proxy.handle();
    let mut held = loop {
        let mut client = proxy.client("out");
        let before = two.count();
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        until("it came", || one.count() + two.count() > before);
        if one.count() > 0 {
            break client;
        }
        assert_eq!(client.answer().body, "two");
    };
    handle.drain("b0", None, false).expect("drained");
    assert!(handle.drain("b1", None, false).is_err(), "the last stays");
    assert!(handle.drain("b9", None, false).is_err());
    // All threads know of it soon: until one does, its requests may go there, and wait.
    gate.open();
    assert_eq!(held.answer().status, 200, "what was under way is finished");
    until("all threads know", || {
        let before = one.count();
        (0..30).for_each(|_| assert_eq!(proxy.client("out").get("/").status, 200));
        one.count() == before
    });
    assert_eq!(handle.status().egress[0].pools[0].backends[0].weight, 0);
    let before = one.count();
    handle.drain("b0", Some("pool"), true).expect("taken up");
    until("it serves again", || {
        proxy.client("out").get("/");
        one.count() > before
    });
}
