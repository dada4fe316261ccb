//! Interim responses of a backend, 103 Early Hints and others, come to the client before the response that they belong to.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use crate::support::*;

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n";
const GET: &str = "GET / HTTP/1.1\r\nhost: shop\r\n\r\n";

/// Sends this before a response with the request's path as its body, once `gate` lets it.
fn hints(before: &'static str, gate: &Gate) -> Backend {
    let gate = gate.clone();
    Backend::new(move |request, stream| {
        write(stream, before);
        gate.pass();
        let path = request.line().split(' ').nth(1).unwrap_or("").to_owned();
        write(stream, &response("200 OK", "", &path));
        true
    })
}

fn open_gate() -> Gate {
    let gate = Gate::default();
    gate.open();
    gate
}

fn before(backend: &Backend) -> Running {
    start(&egress(1, "", "policy: round_robin", &[backend.address]))
}

#[test]
fn a_client_has_early_hints_before_the_backend_has_its_response() {
    let gate = Gate::default();
    let backend = hints(HINTS, &gate);
    let proxy = before(&backend);
    let mut client = proxy.client("out");
    // On a new connection to the backend, and then twice on one that is idle.
    for _ in 0..3 {
        gate.close();
        let early = client.send(GET).answer();
        assert_eq!((early.status, early.head.as_str()), (103, HINTS));
        gate.open();
        let answer = client.answer();
        assert_eq!((answer.status, answer.body.as_str()), (200, "/"));
    }
    assert_eq!((backend.count(), backend.connections.load(Ordering::SeqCst)), (3, 1));
    until("all are over", || proxy.in_flight() == 0);
    assert_eq!(proxy.backends()[0].succeeded, 3);
}

#[test]
fn several_come_in_their_order_without_what_ends_here() {
    let several = "HTTP/1.1 100 Continue\r\n\r\n\
        HTTP/1.1 103 Early Hints\r\nlink: <a>\r\nconnection: x-hop\r\nx-hop: 1\r\nplimsoll-chip: 1\r\n\r\n\
        HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: <b>\r\ncontent-length: 0\r\n\r\n";
    let backend = hints(several, &open_gate());
    let proxy = before(&backend);
    let mut client = proxy.client("out");
    for _ in 0..2 {
        let answer = client.send(GET).answer();
        assert_eq!(answer.head, "HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n");
        assert_eq!(client.answer().head, "HTTP/1.1 102 Processing\r\n\r\n");
        assert_eq!(client.answer().head, "HTTP/1.1 103 Early Hints\r\nlink: <b>\r\n\r\n");
        assert_eq!(client.answer().status, 200);
    }
}

#[test]
fn none_comes_in_the_midst_of_another_response_however_slowly_a_client_reads() {
    const REQUESTS: usize = 40;
    let backend = Backend::new(|request, stream| {
        let number: usize = request.line()[5..].split(' ').next().unwrap().parse().unwrap();
        // Of sizes around those of buffers: where a response ends in them differs.
        let body = "x".repeat(number * 7_919 % 100_000);
        write(stream, &format!("HTTP/1.1 103 Early Hints\r\nx-number: {number}\r\n\r\n"));
        write(stream, &response("200 OK", &format!("x-number: {number}\r\n"), &body));
        true
    });
    let proxy = before(&backend);
    let mut client = proxy.client("out");
    let all: String =
        (0..REQUESTS).map(|i| format!("GET /{i} HTTP/1.1\r\nhost: a\r\n\r\n")).collect();
    client.send(&all);
    for number in 0..REQUESTS {
        // Buffers fill meanwhile.
        std::thread::sleep(std::time::Duration::from_millis(1));
        for status in [103, 200] {
            let answer = client.answer();
            assert_eq!(answer.status, status, "{}", answer.head);
            assert_eq!(answer.header("x-number"), Some(number.to_string().as_str()));
            assert!(answer.body.bytes().all(|byte| byte == b'x'), "{number}");
        }
    }
}

#[test]
fn a_client_of_http_1_0_gets_none() {
    let backend = hints(HINTS, &open_gate());
    let proxy = before(&backend);
    for _ in 0..2 {
        let answer = proxy.client("out").send("GET /old HTTP/1.0\r\nhost: a\r\n\r\n").answer();
        assert_eq!((answer.status, answer.body.as_str()), (200, "/old"));
    }
}

#[test]
fn a_backend_that_sends_them_without_end_is_cut_off() {
    let endless = || {
        Backend::new(|_, stream| {
            while stream.write_all(HINTS.as_bytes()).is_ok() {}
            false
        })
    };
    let backends = [endless(), endless()];
    let addresses = backends.each_ref().map(|backend| backend.address);
    let proxy = start(&egress(1, "", "policy: round_robin", &addresses));
    for request in [GET, "GET / HTTP/1.0\r\nhost: a\r\n\r\n"] {
        let mut client = proxy.client("out");
        client.send(request);
        let mut early = 0;
        let answer = loop {
            match client.answer() {
                answer if answer.status == 103 => early += 1,
                answer => break answer,
            }
        };
        assert_eq!(answer.status, 502);
        assert!(early * HINTS.len() <= 32 << 10, "{early}");
    }
    until("nothing is in flight", || proxy.in_flight() == 0);
    let sent: Vec<(u64, u64)> = proxy.backends().iter().map(|b| (b.sent, b.failed)).collect();
    assert_eq!(sent, [(1, 1), (1, 1)], "it is tried nowhere else");
}

#[test]
fn another_protocol_may_follow() {
    let backend = Backend::new(|_, stream| {
        write(stream, HINTS);
        write(
            stream,
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n",
        );
        let mut some = [0; 100];
        while let Ok(length @ 1..) = stream.read(&mut some) {
            let _ = stream.write_all(&some[..length]);
        }
        false
    });
    let proxy = before(&backend);
    let mut client = proxy.client("out");
    let upgrade = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    assert_eq!(client.send(upgrade).answer().head, HINTS);
    assert_eq!(client.answer().status, 101);
    client.send("hello");
    let mut echoed = [0; 5];
    client.stream.read_exact(&mut echoed).expect("an echo");
    assert_eq!(&echoed, b"hello");
}

#[test]
fn they_pass_from_behind_an_ingress_and_while_a_body_is_on_its_way() {
    let gate = Gate::default();
    let backend = hints(HINTS, &gate);
    let behind = start(&format!(
        "  threads: 1\n  ingress: [ {{ name: in, listen: \"127.0.0.1:1\", upstream: \"{}\" }} ]\n",
        backend.address
    ));
    let proxy = start(&egress(2, "", "policy: bloc", &[behind.address("in")]));
    let mut client = proxy.client("out");
    for _ in 0..2 {
        gate.close();
        assert_eq!(client.send(GET).answer().head, HINTS);
        gate.open();
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("plimsoll-chip")), (200, None));
    }
    let head =
        "POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n";
    assert_eq!(client.send(head).answer().status, 100);
    assert_eq!(client.send("body").answer().head, HINTS);
    let answer = client.answer();
    assert_eq!((answer.status, answer.body.as_str()), (200, "/body"));
    assert!(proxy.backends()[0].chips > 0, "of responses alone");
}

#[test]
fn a_request_under_way_when_the_proxy_is_to_end_has_its_own() {
    let gate = Gate::default();
    let backend = {
        let gate = gate.clone();
        Backend::new(move |_, stream| {
            gate.pass();
            write(stream, &format!("{HINTS}{}", response("200 OK", "", "last")));
            true
        })
    };
    let Running { proxy } = before(&backend);
    let mut client = Client::new(proxy.addresses()[0].1);
    client.send(GET);
    until("it is under way", || backend.count() == 1);
    let ended = std::thread::spawn(move || proxy.stop(PATIENCE));
    std::thread::sleep(std::time::Duration::from_millis(50));
    gate.open();
    assert_eq!(client.answer().head, HINTS);
    assert_eq!(client.answer().body, "last");
    ended.join().expect("it ends");
}

#[test]
fn what_fails_after_them_is_said_after_them() {
    let backend = Backend::new(|_, stream| {
        write(stream, HINTS);
        false
    });
    let proxy = before(&backend);
    let mut client = proxy.client("out");
    assert_eq!(client.send(GET).answer().head, HINTS);
    assert_eq!(client.answer().status, 502);
}
