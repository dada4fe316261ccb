//! A request's client: `PROXY` protocol, `X-Forwarded-*`, trace context; what else clients speak; the access log.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::*;

#[test]
fn backends_get_client_addresses_in_headers() {
    let backend = Backend::ok("ok");
    let section = |entry: &str| egress(1, entry, "policy: random", &[backend.address]);
    let proxy = start(&section(", x_forwarded: append, forwarded: replace"));
    let given =
        "x-forwarded-for: 1.2.3.4\r\nforwarded: for=1.2.3.4\r\nx-forwarded-proto: https\r\n";
    let ask = |proxy: &Running| {
        let mut client = proxy.client("out");
        let text = format!("GET / HTTP/1.1\r\nhost: shop:80\r\n{given}\r\n");
        assert_eq!(client.send(&text).answer().status, 200);
        backend.last()
    };
    let received = ask(&proxy);
    assert_eq!(received.header("x-forwarded-for"), Some("1.2.3.4, 127.0.0.1"));
    assert_eq!(received.header("x-forwarded-proto"), Some("https"));
    assert_eq!(received.header("x-forwarded-host"), Some("shop:80"));
    assert_eq!(received.header("forwarded"), Some("for=127.0.0.1;host=\"shop:80\";proto=http"));
    let received = ask(&start(&section(", x_forwarded: replace")));
    assert_eq!(received.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(received.header("x-forwarded-proto"), Some("http"));
    assert_eq!(received.header("forwarded"), Some("for=1.2.3.4"), "not ours to touch");
    let received = ask(&start(&section("")));
    assert_eq!(received.header("x-forwarded-for"), Some("1.2.3.4"));
}

#[test]
fn a_trace_is_passed_on_untouched() {
    let backend = Backend::ok("ok");
    for entry in ["", ", x_forwarded: append"] {
        let proxy = start(&egress(1, entry, "policy: random", &[backend.address]));
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let state = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7";
        let text = format!(
            "GET / HTTP/1.1\r\nhost: a\r\ntraceparent: {parent}\r\ntracestate: {state}\r\nbaggage: k=v\r\n\r\n"
        );
        let mut client = proxy.client("out");
        for _ in 0..3 {
            assert_eq!(client.send(&text).answer().status, 200);
            let received = backend.last();
            assert_eq!(received.header("traceparent"), Some(parent));
            assert_eq!(received.header("tracestate"), Some(state));
            assert_eq!(received.header("baggage"), Some("k=v"));
        }
    }
}

#[test]
fn a_balancer_in_front_says_whose_connection_it_is() {
    let backend = Backend::ok("ok");
    let entry = ", x_forwarded: replace, proxy_protocol: [\"127.0.0.0/8\"]";
    let proxy = start(&egress(1, entry, "policy: random", &[backend.address]));
    let mut v2 =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x0a\x01\x02\x03\x0a\0\0\x01\x13\x88\0\x50".to_vec();
    for (announced, source) in [
        (&b"PROXY TCP4 203.0.113.7 10.0.0.1 5000 80\r\n"[..], "203.0.113.7"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 5000 80\r\n", "2001:db8::7"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
        (&v2, "10.1.2.3"),
    ] {
        let mut client = proxy.client("out");
        // Byte by byte, and with the request behind it in one.
        let (first, rest) = announced.split_at(announced.len() / 2);
        client.stream.write_all(first).expect("sent");
        std::thread::sleep(std::time::Duration::from_millis(20));
        let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        client.stream.write_all(&[rest, request].concat()).expect("sent");
        assert_eq!(client.answer().status, 200);
        assert_eq!(backend.last().header("x-forwarded-for"), Some(source));
        assert_eq!(client.get("/again").status, 200, "it is announced once a connection");
        assert_eq!(backend.last().header("x-forwarded-for"), Some(source));
    }
    // A peer that must announce a client and does not is not served; others need not.
    let before = backend.count();
    for wrong in [&b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..], b"PROXY TCP4 x y 1 2\r\n"] {
        let mut client = proxy.client("out");
        client.stream.write_all(wrong).expect("sent");
        assert!(client.is_closed());
    }
    assert_eq!(backend.count(), before);
    assert_eq!(proxy.proxy.status().egress[0].clients.malformed, 2);
    let others = ", proxy_protocol: [\"10.0.0.0/8\"]";
    let others = start(&egress(1, others, "policy: random", &[backend.address]));
    assert_eq!(others.client("out").get("/").status, 200);
    v2.extend_from_slice(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    let mut client = others.client("out");
    client.stream.write_all(&v2).expect("sent");
    assert_eq!(client.answer().status, 400, "nobody is believed who is not trusted");
}

#[test]
fn backends_get_client_addresses_by_the_proxy_protocol() {
    // Two proxies in a row: the second believes the first.
    let backend = Backend::ok("ok");
    for version in ["v1", "v2"] {
        let entry = ", x_forwarded: replace, proxy_protocol: [\"127.0.0.0/8\"]";
        let second = start(&egress(1, entry, "policy: random", &[backend.address]));
        let first = start(&egress(
            1,
            ", proxy_protocol: [\"127.0.0.0/8\"]",
            &format!("policy: random, proxy_protocol: {version}"),
            &[second.address("out")],
        ));
        let mut clients = [first.client("out"), first.client("out")];
        for (i, client) in clients.iter_mut().enumerate() {
            client.send(&format!("PROXY TCP4 203.0.113.{i} 10.0.0.1 5000 80\r\n"));
        }
        for _ in 0..3 {
            for (i, client) in clients.iter_mut().enumerate() {
                assert_eq!(client.post("/", "body").status, 200);
                let source = format!("203.0.113.{i}");
                let received = backend.last();
                assert_eq!(received.header("x-forwarded-for"), Some(source.as_str()));
                assert_eq!(received.body, b"body");
            }
        }
    }
}

#[test]
fn tls_and_http_2_are_distinguished_from_nonsense() {
    let backend = Backend::ok("ok");
    let ingress = format!(
        "  threads: 1
  ingress: [ {{ name: in, listen: \"127.0.0.1:1\", upstream: \"{0}\" }} ]
  egress: [ {{ name: out, listen: \"127.0.0.1:2\" }} ]
  pools: [ {{ name: pool, policy: random, backends: [ {{ name: b, address: \"{0}\" }} ] }} ]
",
        backend.address
    );
    let proxy = start(&ingress);
    for entry in ["in", "out"] {
        let mut hello = vec![22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
        hello.extend([7; 506]);
        let mut stream = TcpStream::connect(proxy.address(entry)).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(&hello).expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("closed in order");
        assert_eq!(answer, [21, 3, 1, 0, 2, 2, 70], "a fatal alert: protocol version");

        let mut client = proxy.client(entry);
        client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        let answer = client.answer();
        assert_eq!(answer.status, 505);
        assert!(answer.body.contains("expected HTTP/1.1: HTTP/2 is not spoken here"));
        assert!(client.is_closed());
    }
    let status = proxy.proxy.status();
    for clients in [&status.ingress[0].clients, &status.egress[0].clients] {
        assert_eq!((clients.tls, clients.http2), (1, 1));
    }
    assert_eq!(backend.count(), 0);
    // In the midst of a connection it is nonsense like any other.
    let mut client = proxy.client("out");
    assert_eq!(client.get("/").status, 200);
    client.stream.write_all(&[22, 3, 1, 2, 0]).expect("sent");
    assert!(client.try_answer(Kind::Response).is_none_or(|answer| answer.status == 400));
}

#[test]
fn requests_are_logged() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("access.json");
    let (backend, gate) = (Backend::ok("ok"), Gate::default());
    let slow = Backend::gated(&gate);
    let section = |sample: f64, backend: &Backend| {
        let log = format!("  access_log: {{ file: \"{}\", sample: {sample} }}\n", file.display());
        log + &egress(2, "", "policy: random", &[backend.address])
    };
    let lines = || -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let proxy = start(&section(1.0, &backend));
    let mut client = proxy.client("out");
    let text = "POST /cart?id=7 HTTP/1.1\r\nhost: Shop\r\ntraceparent: 00-a-b-01\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(client.send(text).answer().status, 200);
    assert_eq!(client.get("/second").status, 200);
    until("they are written", || lines().len() == 2);
    let line = &lines()[0];
    for (key, value) in [
        ("entry", "out"),
        ("method", "POST"),
        ("host", "Shop"),
        ("target", "/cart?id=7"),
        ("backend", &backend.address.to_string()),
        ("client", &client.stream.local_addr().expect("an address").to_string()),
        ("traceparent", "00-a-b-01"),
    ] {
        assert_eq!(line[key], value, "{line}");
    }
    assert_eq!((&line["status"], &line["tries"]), (&200.into(), &1.into()), "{line}");
    assert!(line["total_ms"].as_f64() >= line["head_ms"].as_f64() && line["unix_ms"].is_u64());
    assert_eq!(lines()[1]["target"], "/second");
    let log = proxy.proxy.status().access_log.expect("a log");
    assert_eq!((log.written, log.dropped), (2, 0));

    // Moved away, it is opened again at a reload.
    let moved = directory.path().join("access.json.1");
    std::fs::rename(&file, moved).expect("moved");
    let mut config = read(&section(1.0, &backend));
    config.egress[0].listen.set_port(0);
    proxy.proxy.handle().reload(&config).expect("taken up");
    until("it is written anew", || {
        assert_eq!(client.get("/third").status, 200);
        !lines().is_empty()
    });
    drop(proxy);

    // A client that leaves is logged, too, without a status; of a small sample hardly anything is.
    std::fs::remove_file(&file).expect("removed");
    let proxy = start(&section(1.0, &slow));
    let mut client = proxy.client("out");
    client.send("GET /left HTTP/1.1\r\nhost: a\r\n\r\n");
    until("it is in flight", || slow.count() == 1);
    drop(client);
    until("it is logged", || lines().len() == 1);
    assert!(lines()[0].get("status").is_none() && lines()[0]["target"] == "/left");
    gate.open();
    drop(proxy);
    std::fs::remove_file(&file).expect("removed");
    let proxy = start(&section(0.000_001, &backend));
    let mut client = proxy.client("out");
    (0..200).for_each(|_| assert_eq!(client.get("/").status, 200));
    drop((client, proxy));
    assert!(lines().len() < 5, "{}", lines().len());
}

#[test]
fn a_log_that_cannot_be_written_is_said_before_anything_listens() {
    let mut config = read(&egress(1, "", "policy: random", &["127.0.0.1:1".parse().expect("it")]));
    config.egress[0].listen.set_port(0);
    let file = "/no/such/directory/access.json".into();
    config.access_log = Some(plimsoll_proxy::config::AccessLog { file, sample: 1.0 });
    let Err(error) = plimsoll_proxy::Proxy::start(&config) else { panic!("it started") };
    let said = "proxy.access_log.file: cannot write /no/such/directory/access.json";
    assert!(error.to_string().contains(said), "{error}");
}

#[test]
fn a_sample_is_the_same_share_of_what_hyper_goes_on_with() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("access.json");
    // Chunks: each request that is not logged begins without hyper, and ends with it.
    let backend = Backend::new(|_, stream| {
        write(stream, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
        true
    });
    let log = format!("  access_log: {{ file: \"{}\", sample: 0.5 }}\n", file.display());
    let proxy = start(&(log + &egress(1, "", "policy: random", &[backend.address])));
    let mut client = proxy.client("out");
    (0..1_000).for_each(|_| assert_eq!(client.get("/begun").status, 200));
    // And those that hyper has from their beginning.
    for _ in 0..1_000 {
        let request = b"GET /whole HTTP/1.1\r\nhost: a\r\nupgrade: h2c\r\n\r\n";
        client.stream.write_all(request).expect("sent");
        assert_eq!(client.answer().status, 200);
    }
    drop((client, proxy));
    let log = std::fs::read_to_string(&file).expect("a log");
    for kind in ["/begun", "/whole"] {
        let lines = log.lines().filter(|line| line.contains(kind)).count();
        // Seven standard deviations; drawn twice it would be 750.
        assert!((390..=610).contains(&lines), "{lines} of 1000 {kind} were logged");
    }
}

#[test]
fn tls_and_http_2_are_known_behind_an_announcement_in_the_same_packet() {
    let backend = Backend::ok("ok");
    let trusted = "proxy_protocol: [\"127.0.0.0/8\"]";
    let proxy = start(&format!(
        "  threads: 1
  ingress: [ {{ name: in, listen: \"127.0.0.1:1\", upstream: \"{0}\", {trusted} }} ]
  egress: [ {{ name: out, listen: \"127.0.0.1:2\", {trusted} }} ]
  pools: [ {{ name: pool, policy: random, backends: [ {{ name: b, address: \"{0}\" }} ] }} ]
",
        backend.address
    ));
    for entry in ["in", "out"] {
        let announced = b"PROXY TCP4 203.0.113.1 10.0.0.1 5000 80\r\n";
        let mut client = proxy.client(entry);
        client.stream.write_all(&[&announced[..], &[22, 3, 1, 2, 0, 1]].concat()).expect("sent");
        let mut answer = Vec::new();
        client.stream.read_to_end(&mut answer).expect("closed in order");
        assert_eq!(answer, [21, 3, 1, 0, 2, 2, 70], "{entry}");
        let mut client = proxy.client(entry);
        let preface = &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..];
        client.stream.write_all(&[announced, preface].concat()).expect("sent");
        assert_eq!(client.answer().status, 505, "{entry}");
    }
    let status = proxy.proxy.status();
    for clients in [&status.ingress[0].clients, &status.egress[0].clients] {
        assert_eq!((clients.tls, clients.http2), (1, 1));
    }
}
