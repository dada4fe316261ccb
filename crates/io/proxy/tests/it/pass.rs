//! What passes, and what does not.

use std::sync::mpsc;
use std::thread;

use crate::support::*;

#[test]
fn connections_are_kept_on_both_sides() {
    let backend = Backend::ok("hello");
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    let mut client = proxy.client("out");
    for _ in 0..5 {
        let answer = client.get("/a?b=c");
        assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
    }
    let last = backend.last();
    assert_eq!((last.connection, last.number, last.line()), (0, 4, "GET /a?b=c HTTP/1.1"));
    until("counted", || proxy.backends()[0].succeeded == 5);
    assert_eq!(proxy.in_flight(), 0);
}

#[test]
fn what_concerns_one_connection_or_us_alone_ends_here() {
    let backend = Backend::new(|_, stream| {
        let headers = "keep-alive: timeout=5\r\nplimsoll-chip: 1\r\nplimsoll-x: y\r\nx-app: z\r\n";
        write(stream, &response("200 OK", headers, "hello"));
        true
    });
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    let request = "GET / HTTP/1.1\r\nhost: shop\r\nconnection: keep-alive, x-secret\r\nx-secret: 1\r\n\
        te: trailers\r\nproxy-connection: keep-alive\r\nupgrade: websocket\r\nplimsoll-try: 9\r\n\
        plimsoll-deadline: 1\r\nx-kept: 2\r\n\r\n";
    let answer = proxy.client("out").send(request).answer();
    let received = backend.last();
    for gone in [
        "connection",
        "x-secret",
        "te",
        "proxy-connection",
        "upgrade",
        "plimsoll-try",
        "plimsoll-deadline",
    ] {
        assert_eq!(received.header(gone), None, "{gone}: {}", received.head);
    }
    assert_eq!((received.header("x-kept"), received.header("host")), (Some("2"), Some("shop")));
    for gone in ["keep-alive", "plimsoll-chip", "plimsoll-x"] {
        assert_eq!(answer.header(gone), None, "{gone}: {}", answer.head);
    }
    assert_eq!(answer.header("x-app"), Some("z"));
}

#[test]
fn bodies_pass_as_they_come_both_ways() {
    let (to_backend, from_client) = mpsc::channel::<()>();
    let from_client = std::sync::Mutex::new(from_client);
    let backend = Backend::new(move |_, stream| {
        write(stream, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n");
        // The second comes only when the client has read the first.
        let told = from_client.lock().expect("a channel").recv_timeout(PATIENCE);
        write(stream, "6\r\nsecond\r\n0\r\n\r\n");
        told.is_ok()
    });
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    let mut client = proxy.client("out");
    client.send(
        "POST /up HTTP/1.1\r\nhost: shop\r\ntransfer-encoding: chunked\r\n\r\n\
         3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n",
    );
    let mut seen = Vec::new();
    while !seen.ends_with(b"first\r\n") {
        let mut byte = [0];
        std::io::Read::read_exact(&mut client.stream, &mut byte).expect("the first chunk");
        seen.push(byte[0]);
    }
    to_backend.send(()).expect("a backend");
    let mut rest = [0; 16];
    std::io::Read::read_exact(&mut client.stream, &mut rest).expect("the second chunk");
    assert!(rest.starts_with(b"6\r\nsecond\r\n"), "{rest:?}");
    let sent = backend.last();
    let data: String = String::from_utf8_lossy(&sent.body)
        .split("\r\n")
        .enumerate()
        .filter_map(|(i, part)| (i % 2 == 1).then_some(part))
        .collect();
    assert_eq!((data.as_str(), sent.header("content-length")), ("abcdefg", None));
}

#[test]
fn large_bodies_pass_whole() {
    let backend = Backend::new(|request, stream| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        write(stream, &response("200 OK", "", &body));
        true
    });
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    let body: String = (0..300_000).map(|i| char::from(b'a' + (i % 23) as u8)).collect();
    let mut client = proxy.client("out");
    for _ in 0..2 {
        assert!(client.post("/", &body).body == body, "not the same");
    }
}

#[test]
fn responses_without_a_body_have_none() {
    let backend = Backend::new(|request, stream| {
        match request.line().split(' ').next() {
            Some("HEAD") => write(stream, "HTTP/1.1 200 OK\r\ncontent-length: 77\r\n\r\n"),
            _ => write(stream, "HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n"),
        }
        true
    });
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    let mut client = proxy.client("out");
    for _ in 0..2 {
        client.send("HEAD / HTTP/1.1\r\nhost: shop\r\n\r\n");
        let head = client.try_answer(Kind::ResponseToHead).expect("a response");
        assert_eq!((head.status, head.header("content-length")), (200, Some("77")));
        assert_eq!(client.get("/").status, 304);
    }
    assert_eq!(backend.last().connection, 0, "the connection is kept");
    until("counted", || proxy.backends()[0].succeeded == 4);
}

#[test]
fn a_client_that_waits_for_leave_to_send_gets_it() {
    let backend = Backend::ok("done");
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    let mut client = proxy.client("out");
    client
        .send("POST / HTTP/1.1\r\nhost: shop\r\ncontent-length: 3\r\nexpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer().status, 100);
    let answer = client.send("abc").answer();
    assert_eq!((answer.status, answer.body.as_str()), (200, "done"));
    assert_eq!(backend.last().body, b"abc");
}

#[test]
fn requests_go_by_host_and_path() {
    let (a, b, c) = (Backend::ok("a"), Backend::ok("b"), Backend::ok("c"));
    let pool = |name: &str, backend: &Backend| {
        let address = backend.address;
        format!(
            "{{ name: {name}, policy: random, backends: [ {{ name: b, address: \"{address}\" }} ] }}"
        )
    };
    let proxy = start(&format!(
        "  threads: 1
  egress:
    - name: out
      listen: \"127.0.0.1:1\"
      routes: [ {{ path: /a, pool: a }}, {{ path: /a/b, pool: b }}, {{ host: c.example, pool: c }} ]
  pools: [ {}, {}, {} ]
",
        pool("a", &a),
        pool("b", &b),
        pool("c", &c)
    ));
    let mut client = proxy.client("out");
    assert_eq!(client.get("/a").body, "a");
    assert_eq!(client.get("/a/x?y").body, "a");
    assert_eq!(client.get("/a/b").body, "b");
    assert_eq!(client.get("/ab").status, 404);
    let answer = client.send("GET /a HTTP/1.1\r\nHost: C.Example:80\r\n\r\n").answer();
    assert_eq!(answer.body, "c");
}

#[test]
fn options_of_the_whole_server_go_where_its_root_does() {
    let backend = Backend::ok("root");
    let address = backend.address;
    let ingress = format!(
        "  ingress: [ {{ name: out, listen: \"127.0.0.1:1\", upstream: \"{address}\" }} ]\n"
    );
    for section in [egress(1, "", "policy: random", &[address]), ingress] {
        let proxy = start(&section);
        let mut client = proxy.client("out");
        for _ in 0..2 {
            let answer = client.send("OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n").answer();
            assert_eq!((answer.status, backend.last().line()), (200, "OPTIONS * HTTP/1.1"));
        }
        let before = backend.count();
        assert_eq!(client.send("GET * HTTP/1.1\r\nhost: a\r\n\r\n").answer().status, 400);
        assert_eq!(backend.count(), before);
    }
}

#[test]
fn all_threads_balance_as_one() {
    let gate = Gate::default();
    let backends: Vec<Backend> = (0..8).map(|_| Backend::gated(&gate)).collect();
    let addresses: Vec<_> = backends.iter().map(|b| b.address).collect();
    let proxy = start(&egress(3, "", "policy: least_connections", &addresses));
    // Connections come to whichever thread; each further request finds all earlier ones in flight.
    let mut clients = Vec::new();
    for sent in 1..=16 {
        let mut client = proxy.client("out");
        client.send("GET / HTTP/1.1\r\nhost: shop\r\n\r\n");
        clients.push(client);
        until("it arrived", || backends.iter().map(Backend::count).sum::<usize>() == sent);
    }
    let counts: Vec<usize> = backends.iter().map(Backend::count).collect();
    assert_eq!(counts, [2; 8], "two in flight on each, whichever thread sent them");
    gate.open();
    let answers: Vec<u16> = clients.iter_mut().map(|client| client.answer().status).collect();
    assert_eq!(answers, [200; 16]);
    until("all ended", || proxy.in_flight() == 0);
}

#[test]
fn entries_do_not_know_of_each_others_requests() {
    let gate = Gate::default();
    let backends: Vec<Backend> = (0..2).map(|_| Backend::gated(&gate)).collect();
    let addresses: Vec<_> = backends.iter().map(|b| b.address).collect();
    // One in flight makes the first of them full, for the entry that sent it alone.
    let section = egress(1, "", "policy: first, max_in_flight: 1", &addresses);
    let proxy =
        start(&section.replace("egress: [", "egress: [ { name: other, listen: \"127.0.0.1:2\" },"));
    let send = |entry: &str| {
        let before: usize = backends.iter().map(Backend::count).sum();
        let mut client = proxy.client(entry);
        client.send("GET / HTTP/1.1\r\nhost: shop\r\n\r\n");
        until("it arrived", || backends.iter().map(Backend::count).sum::<usize>() > before);
        client
    };
    let mut clients: Vec<Client> = ["out", "other"].map(send).into();
    let counts: Vec<usize> = backends.iter().map(Backend::count).collect();
    assert_eq!(counts, [2, 0], "to each entry the first is free");
    for entry in &proxy.proxy.status().egress {
        assert_eq!(entry.pools[0].backends[0].requests.in_flight, 1, "{}", entry.name);
    }
    gate.open();
    assert!(clients.iter_mut().all(|client| client.answer().status == 200));
}

#[test]
fn a_key_keeps_requests_together_on_all_threads() {
    let backends: Vec<Backend> = ["0", "1", "2", "3"].map(Backend::ok).into();
    let addresses: Vec<_> = backends.iter().map(|b| b.address).collect();
    let pool = "policy: hash_maglev, key: { header: x-user }";
    let proxy = start(&egress(2, "", pool, &addresses));
    let asked = |user: usize| {
        let request = format!("GET / HTTP/1.1\r\nhost: shop\r\nx-user: u{user}\r\n\r\n");
        proxy.client("out").send(&request).answer().body
    };
    let first: Vec<String> = (0..12).map(asked).collect();
    assert!(first.iter().any(|backend| *backend != first[0]), "not all to one");
    assert_eq!((0..12).map(asked).collect::<Vec<_>>(), first);
}

#[test]
fn entries_of_many_clients_at_once_lose_nothing() {
    let backends: Vec<Backend> = (0..3).map(|_| Backend::ok("hello")).collect();
    let addresses: Vec<_> = backends.iter().map(|b| b.address).collect();
    let proxy = start(&egress(2, "", "policy: expected_delay", &addresses));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = proxy.client("out");
                for i in 0..50 {
                    let body = format!("body {i}");
                    assert_eq!(client.post("/", &body).body, "hello");
                }
            });
        }
    });
    until("all ended", || proxy.in_flight() == 0);
    let succeeded: u64 = proxy.backends().iter().map(|backend| backend.succeeded).sum();
    assert_eq!(succeeded, 400);
}

#[test]
fn a_connection_may_go_on_with_another_protocol() {
    let backend = Backend::new(|request, stream| {
        assert_eq!(request.header("connection"), Some("upgrade"));
        write(
            stream,
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n",
        );
        let mut bytes = [0; 5];
        while std::io::Read::read_exact(stream, &mut bytes).is_ok() {
            write(stream, &String::from_utf8_lossy(&bytes).to_uppercase());
        }
        false
    });
    let proxy = start(&egress(1, "", "policy: least_connections", &[backend.address]));
    let mut client = proxy.client("out");
    client.send(
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\nupgrade: echo\r\n\r\n",
    );
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("upgrade")), (101, Some("echo")));
    for _ in 0..3 {
        client.send("hello");
        let mut bytes = [0; 5];
        std::io::Read::read_exact(&mut client.stream, &mut bytes).expect("an echo");
        assert_eq!(&bytes, b"HELLO");
    }
    assert_eq!(proxy.in_flight(), 1, "it is in flight while it goes on");
    assert_eq!(proxy.proxy.status().egress[0].clients.connections, 1);
    drop(client);
    until("it has ended", || proxy.in_flight() == 0);
    assert_eq!(proxy.backends()[0].succeeded, 1);
    until("counted", || proxy.proxy.status().egress[0].clients.connections == 0);
}

#[test]
fn an_early_response_does_not_leave_its_connection_to_others() {
    // Answers before it has read the body.
    let early = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = early.local_addr().expect("an address");
    thread::spawn(move || {
        let mut streams = Vec::new();
        for stream in early.incoming() {
            let mut stream = stream.expect("a connection");
            let mut byte = [0];
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n")
                && std::io::Read::read(&mut stream, &mut byte).is_ok()
            {
                head.push(byte[0]);
            }
            write(&mut stream, &response("413 Content Too Large", "", "too much"));
            streams.push(stream);
        }
    });
    let proxy = start(&egress(1, "", "policy: random", &[address]));
    let mut client = proxy.client("out");
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\nabc");
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("connection")), (413, Some("close")));
    assert!(client.is_closed());
    until("it has ended", || proxy.in_flight() == 0);
    // The next is on a connection of its own, at once.
    assert_eq!(proxy.client("out").get("/").status, 413);
}

#[test]
fn a_key_that_the_proxy_itself_adds_is_the_same_for_plain_requests_and_others() {
    let backends: Vec<Backend> = (0..4).map(|_| Backend::ok("ok")).collect();
    let addresses: Vec<_> = backends.iter().map(|backend| backend.address).collect();
    let pool = "policy: hash_maglev, key: { header: X-Forwarded-For }";
    let proxy = start(&egress(1, ", x_forwarded: append", pool, &addresses));
    let mut client = proxy.client("out");
    for _ in 0..20 {
        assert_eq!(client.get("/").status, 200);
        client.send("GET / HTTP/1.1\r\nhost: a\r\nte: trailers\r\n\r\n");
        assert_eq!(client.answer().status, 200);
    }
    let mut counts: Vec<usize> = backends.iter().map(Backend::count).collect();
    counts.sort_unstable();
    assert_eq!(counts, [0, 0, 0, 40]);
}
