//! Bad input: what a backend really receives of it.

use std::io::Write;
use std::net::Shutdown;

use crate::support::*;

/// What the client gets (nothing: the connection is closed without an answer), and what the backend got.
type Tried = fn(&str) -> (Option<u16>, Vec<Received>);

/// Through hyper, as the first request to a backend is; and as a later one, which may be passed on without.
const BOTH: [Tried; 2] = [|request| tried(request, false), |request| tried(request, true)];

fn tried(request: &str, is_later: bool) -> (Option<u16>, Vec<Received>) {
    let backend = Backend::ok("hello");
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    if is_later {
        assert_eq!(proxy.client("out").get("/before").status, 200);
    }
    let mut client = proxy.client("out");
    client.send(request);
    let status = client.try_answer(Kind::Response).map(|answer| answer.status);
    // Another client is served: what follows in the backend's list is what the first made of it.
    assert_eq!(proxy.client("out").get("/after").status, 200);
    until("all ended", || proxy.in_flight() == 0);
    let received = backend.received.lock().expect("a list").clone();
    let ours = ["GET /before HTTP/1.1", "GET /after HTTP/1.1"];
    let others = received.into_iter().filter(|request| !ours.contains(&request.line()));
    (status, others.collect())
}

#[test]
fn what_is_ambiguous_is_refused_and_no_backend_sees_it() {
    let cases = [
        (
            "two lengths",
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
            400,
        ),
        (
            "a list of lengths",
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3, 4\r\n\r\nabcd",
            400,
        ),
        ("a signed length", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +3\r\n\r\nabc", 400),
        ("a negative length", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -3\r\n\r\nabc", 400),
        (
            "chunked not last",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "an unknown coding",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "another coding within the chunks",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            501,
        ),
        (
            "another coding in a header of its own",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            501,
        ),
        (
            "chunks of chunks",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "chunks of chunks in two headers",
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "chunked in HTTP/1.0",
            "POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("a folded header", "GET / HTTP/1.1\r\nhost: a\r\nx-a: 1\r\n 2\r\n\r\n", 400),
        ("a bare CR in a value", "GET / HTTP/1.1\r\nhost: a\r\nx-a: 1\r2\r\n\r\n", 400),
        ("a NUL in a value", "GET / HTTP/1.1\r\nhost: a\r\nx-a: 1\0\r\n\r\n", 400),
        (
            "a space before the colon",
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length : 3\r\n\r\nabc",
            400,
        ),
        ("a header without a name", "GET / HTTP/1.1\r\nhost: a\r\n: 1\r\n\r\n", 400),
        ("no host", "GET / HTTP/1.1\r\n\r\n", 400),
        ("two hosts", "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        ("a host that is a list", "GET / HTTP/1.1\r\nhost: a, b\r\n\r\n", 400),
        ("a user in the target", "GET http://u@a/ HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("a method that is none", "G\x01T / HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("a control character in the target", "GET /\x01 HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("a tunnel", "CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n\r\n", 501),
    ];
    for (what, request, expected) in cases {
        for tried in BOTH {
            let (status, received) = tried(request);
            assert_eq!(status, Some(expected), "{what}");
            assert!(received.is_empty(), "{what}: {received:?}");
        }
    }
    for tried in BOTH {
        let (status, received) = tried("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        assert!(status.is_none_or(|status| status >= 400) && received.is_empty(), "{status:?}");
    }
}

#[test]
fn what_is_sloppy_arrives_in_order() {
    BOTH.into_iter().for_each(sloppy);
}

fn sloppy(tried: Tried) {
    let (status, received) = tried("GET /x HTTP/1.1\nhost: a\nx-a:1\n\n");
    assert_eq!(status, Some(200));
    let head = &received[0].head;
    assert_eq!((head.matches('\n').count(), head.matches("\r\n").count()), (4, 4), "{head:?}");

    let (status, received) = tried("GET http://b:81/x?y HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!((status, received[0].line()), (Some(200), "GET /x?y HTTP/1.1"));
    assert_eq!(received[0].header("host"), Some("b:81"));

    let (status, received) = tried("GET /x HTTP/1.0\r\nhost: a\r\n\r\n");
    assert_eq!((status, received[0].line()), (Some(200), "GET /x HTTP/1.1"));

    let same = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc";
    let (status, received) = tried(same);
    assert_eq!((status, received[0].head.matches("content-length").count()), (Some(200), 1));
}

#[test]
fn of_two_framings_one_arrives_and_nothing_is_smuggled() {
    BOTH.into_iter().for_each(smuggling);
}

fn smuggling(tried: Tried) {
    // Were the length believed, the rest of the chunks would be a request.
    let (status, received) = tried(
        "POST /one HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n\
         27\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n12345\r\n0\r\n\r\n",
    );
    match status {
        Some(200) => {
            assert_eq!(received.len(), 1, "{received:?}");
            assert_eq!(received[0].header("content-length"), None);
            assert_eq!(received[0].header("transfer-encoding"), Some("chunked"));
        }
        other => assert!(other == Some(400) && received.is_empty(), "{other:?} {received:?}"),
    }
}

#[test]
fn chunks_are_made_anew() {
    BOTH.into_iter().for_each(chunks);
}

fn chunks(tried: Tried) {
    let (status, received) = tried(
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
         3;name=\"value\"\r\nabc\r\n0;last\r\n\r\n",
    );
    assert_eq!(status, Some(200));
    let body = String::from_utf8_lossy(&received[0].body).into_owned();
    assert!(body.contains("abc") && !body.contains(';'), "{body:?}");
}

#[test]
fn chunks_of_a_get_arrive() {
    for tried in BOTH {
        let (status, received) = tried(
            "GET /_search HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        );
        assert_eq!(status, Some(200));
        assert_eq!(received[0].header("transfer-encoding"), Some("chunked"));
        let body = String::from_utf8_lossy(&received[0].body).into_owned();
        assert!(body.contains("hello"), "{body:?}");
    }
}

#[test]
fn chunks_that_are_none_end_the_request() {
    for chunk in [
        "xyz\r\nabc\r\n0\r\n\r\n",
        "-3\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcde\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nabc\r\n",
    ] {
        let request =
            format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{chunk}");
        for tried in BOTH {
            let (status, received) = tried(&request);
            assert!(matches!(status, None | Some(400)), "{chunk:?}: {status:?}");
            // The backend's own reader takes only what is complete.
            assert!(received.is_empty(), "{chunk:?}: {received:?}");
        }
    }
}

#[test]
fn a_request_that_ends_early_is_no_request() {
    let backend = Backend::ok("hello");
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    let mut client = proxy.client("out");
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nabc");
    client.stream.shutdown(Shutdown::Write).expect("a half");
    until("it is over", || proxy.proxy.status().egress[0].clients.connections == 0);
    until("counted", || proxy.in_flight() == 0);
    assert_eq!(backend.count(), 0);
}

#[test]
fn heads_have_a_limit() {
    let backend = Backend::ok("hello");
    let entry = ", limits: { headers: 16KiB }";
    let proxy = start(&egress(1, entry, "policy: random", &[backend.address]));
    let long =
        |bytes| format!("GET / HTTP/1.1\r\nhost: a\r\nx-long: {}\r\n\r\n", "y".repeat(bytes));
    assert_eq!(proxy.client("out").send(&long(8_000)).answer().status, 200);
    let too_long = proxy.client("out").send(&long(40_000)).try_answer(Kind::Response);
    assert!(too_long.is_none_or(|answer| answer.status == 431));
    let many: String = (0..200).map(|i| format!("x-{i}: 1\r\n")).collect();
    let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n");
    assert_eq!(proxy.client("out").send(&request).answer().status, 431);
    let line = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "z".repeat(70_000));
    let answer = proxy.client("out").send(&line).try_answer(Kind::Response);
    assert!(answer.is_none_or(|answer| matches!(answer.status, 414 | 431)));
    assert_eq!(backend.count(), 1);
    assert_eq!(proxy.client("out").get("/").status, 200, "others are served");
}

#[test]
fn a_head_that_has_no_end_is_cut_off() {
    let backend = Backend::ok("hello");
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    let mut client = proxy.client("out");
    let line = format!("x-a: {}\r\n", "y".repeat(1_000));
    client.send("GET / HTTP/1.1\r\nhost: a\r\n");
    let sent = (0..100_000).find(|_| client.stream.write_all(line.as_bytes()).is_err());
    assert!(sent.is_some(), "100 MB of a head were read");
    assert_eq!(backend.count(), 0);
}

/// What a client gets of a backend that answers so, and then of one that answers well.
fn answered(response: &'static str) -> (Option<Answer>, Running, Backend) {
    let backend = Backend::new(move |request, stream| {
        match request.line() {
            "GET /after HTTP/1.1" => write(stream, &crate::support::response("200 OK", "", "well")),
            _ => write(stream, response),
        }
        request.line() == "GET /after HTTP/1.1"
    });
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    let answer =
        proxy.client("out").send("GET /x HTTP/1.1\r\nhost: a\r\n\r\n").try_answer(Kind::Response);
    let after = proxy.client("out").get("/after");
    assert_eq!((after.status, after.body.as_str()), (200, "well"), "after {response:?}");
    until("all ended", || proxy.in_flight() == 0);
    (answer, proxy, backend)
}

#[test]
fn backends_that_lie_are_found_out() {
    let (answer, proxy, _) = answered("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc");
    assert!(answer.is_none(), "a response that is too short is not passed as whole: {answer:?}");
    until("counted", || proxy.backends()[0].failed == 1);

    let (answer, _, backend) = answered(
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
    );
    assert_eq!(answer.expect("a response").body, "abc");
    assert_eq!(backend.last().connection, 1, "what was too much is never taken for a response");

    for bad in [
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 3, 4\r\n\r\n",
        "HTTP/1.1 abc\r\n\r\n",
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: \0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nhello",
    ] {
        let (answer, proxy, _) = answered(bad);
        assert_eq!(answer.map(|answer| answer.status), Some(502), "{bad:?}");
        assert_eq!(proxy.backends()[0].failed, 1, "{bad:?}");
    }
}

#[test]
fn of_a_responses_two_framings_the_chunks_count() {
    for length in [3, 5, 50] {
        let backend = Backend::new(move |_, stream| {
            let chunks = "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
            write(stream, &format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n{chunks}"));
            true
        });
        for (proxy, entry) in both_entries(&backend) {
            let mut client = proxy.client(entry);
            for _ in 0..3 {
                let answer = client.get("/");
                assert_eq!(answer.header("content-length"), None, "{length}");
                assert_eq!(answer.body, "5\r\nhello\r\n0\r\n\r\n", "{length}");
            }
        }
    }
}

/// An egress entry, and an ingress entry, before this backend.
fn both_entries(backend: &Backend) -> [(Running, &'static str); 2] {
    let address = backend.address;
    let ingress = format!(
        "  ingress: [ {{ name: in, listen: \"127.0.0.1:1\", upstream: \"{address}\", trust: [\"127.0.0.0/8\"] }} ]\n"
    );
    [(start(&egress(1, "", "policy: random", &[address])), "out"), (start(&ingress), "in")]
}

#[test]
fn a_length_that_is_said_twice_is_said_once() {
    for lengths in ["content-length: 5, 5", "content-length: 5\r\ncontent-length: 5"] {
        let backend = Backend::new(move |_, stream| {
            write(stream, &format!("HTTP/1.1 200 OK\r\n{lengths}\r\n\r\nhello"));
            true
        });
        for (proxy, entry) in both_entries(&backend) {
            let mut client = proxy.client(entry);
            for _ in 0..3 {
                let answer = client.get("/");
                assert_eq!(
                    (answer.header("content-length"), &answer.body[..]),
                    (Some("5"), "hello")
                );
                assert_eq!(answer.head.matches("content-length").count(), 1, "{}", answer.head);
            }
        }
    }
}

#[test]
fn a_backends_http_1_0_ends_at_the_proxy() {
    for headers in ["content-length: 5\r\n", "connection: keep-alive\r\ncontent-length: 5\r\n", ""]
    {
        let backend = Backend::new(move |_, stream| {
            write(stream, &format!("HTTP/1.0 200 OK\r\n{headers}\r\nhello"));
            headers.contains("keep-alive")
        });
        for (proxy, entry) in both_entries(&backend) {
            let mut client = proxy.client(entry);
            for _ in 0..3 {
                let answer = client.get("/");
                assert!(answer.head.starts_with("HTTP/1.1 200"), "{headers:?}: {}", answer.head);
                assert!(answer.body.contains("hello") && answer.header("connection").is_none());
            }
        }
    }
}

#[test]
fn what_came_before_a_body_broke_off_arrives() {
    for (bad, part) in [
        ("transfer-encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n", "5\r\nhello\r\n"),
        ("transfer-encoding: chunked\r\n\r\nzz\r\n", ""),
        ("content-length: 10\r\n\r\nhello", "hello"),
    ] {
        let backend = Backend::new(move |_, stream| {
            write(stream, &format!("HTTP/1.1 200 OK\r\n{bad}"));
            false
        });
        for (proxy, entry) in both_entries(&backend) {
            for _ in 0..2 {
                let mut client = proxy.client(entry);
                client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
                let mut got = String::new();
                std::io::Read::read_to_string(&mut client.stream, &mut got).expect("closed");
                let (head, body) = got.split_once("\r\n\r\n").expect("a head");
                assert!(head.starts_with("HTTP/1.1 200 OK"), "{bad:?}: {got:?}");
                assert_eq!(body, part, "{bad:?}");
            }
        }
    }
}

#[test]
fn a_response_that_ends_with_its_connection_passes() {
    let (answer, proxy, _) = answered("HTTP/1.1 200 OK\r\n\r\nuntil the end");
    assert!(answer.expect("a response").body.contains("until the end"));
    assert_eq!(proxy.backends()[0].succeeded, 2);
}

#[test]
fn a_backends_endless_head_is_cut_off() {
    let backend = Backend::new(|_, stream| {
        let line = format!("x-a: {}\r\n", "y".repeat(1_000));
        write(stream, "HTTP/1.1 200 OK\r\n");
        while stream.write_all(line.as_bytes()).is_ok() {}
        false
    });
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    assert_eq!(proxy.client("out").get("/").status, 502);
    until("all ended", || proxy.in_flight() == 0);
}

#[test]
fn heads_that_come_whole_have_the_same_limit() {
    let backend = Backend::new(|request, stream| {
        let headers = match request.line() {
            "GET /long HTTP/1.1" => format!("x-long: {}\r\n", "y".repeat(20_000)),
            _ => String::new(),
        };
        write(stream, &response("200 OK", &headers, "ok"));
        true
    });
    let entry = ", limits: { headers: 8KiB }";
    let proxy = start(&egress(1, entry, "policy: random", &[backend.address]));
    let mut client = proxy.client("out");
    assert_eq!(client.get("/").status, 200, "a connection to the backend is idle from now on");
    let long = format!("GET / HTTP/1.1\r\nhost: a\r\nx-long: {}\r\n\r\n", "y".repeat(20_000));
    assert_eq!(client.send(&long).answer().status, 431);
    assert_eq!(backend.count(), 1);
    let mut client = proxy.client("out");
    assert_eq!(client.get("/").status, 200);
    assert_eq!(client.get("/long").status, 502);
    let body = "z".repeat(20_000);
    assert_eq!(client.post("/", &body).status, 200, "bodies are no heads");
}
