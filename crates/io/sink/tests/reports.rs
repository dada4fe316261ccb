//! What a real HAProxy reports: methods, states, counters.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{Haproxy, PATIENCE, free_port, plan, serve, until};
use plimsoll_model::{MethodKind, ServerReport, ServerStatus};
use plimsoll_sink::{
    AccessLevel, AgentState, HaproxyConfig, ReportSource, Sink, SinkErrorKind, SocketAddress,
    WeightSink,
};

#[tokio::test]
async fn every_method_is_reported_with_what_its_weights_mean() {
    use MethodKind::{InFlight, NoLiveWeights, Split};
    for (balance, name, kind) in [
        ("roundrobin", "roundrobin", Split),
        ("random", "random", Split),
        ("random(3)", "random", Split),
        ("leastconn", "leastconn", InFlight),
        ("static-rr", "static-rr", NoLiveWeights),
        ("first", "first", NoLiveWeights),
        ("source", "source", NoLiveWeights),
        ("uri", "uri", NoLiveWeights),
        ("uri\n  hash-type consistent", "uri", Split),
        ("hdr(x-user)", "hdr", NoLiveWeights),
        ("hdr(x-user)\n  hash-type consistent", "hdr", Split),
        ("url_param id\n  hash-type consistent", "url_param", Split),
        ("rdp-cookie", "rdp-cookie", NoLiveWeights),
        ("hash path\n  hash-type consistent", "hash", Split),
    ] {
        let haproxy = Haproxy::start(&format!(
            "\nbackend shop\n  balance {balance}\n  server s1 127.0.0.1:1 weight 10\n  server s2 \
             127.0.0.1:1 weight 10\n"
        ));
        let mut sink = haproxy.sink(&["s1", "s2"]);
        for _ in 0..2 {
            let method = sink.read().await.unwrap().method;
            assert_eq!((method.name.as_str(), method.kind), (name, kind), "balance {balance}");
        }
        let applied = sink.apply(&plan(&[20, 10])).await;
        if kind == NoLiveWeights {
            let error = applied.unwrap_err();
            assert_eq!(error.kind(), SinkErrorKind::NoLiveWeights, "balance {balance}");
            assert!(error.to_string().contains(&format!("`balance {name}`")), "{error}");
            let weights = ["s1", "s2"].map(|server| haproxy.weight(server));
            assert_eq!(weights, ["10", "10"], "balance {balance}: nothing was changed");
        } else {
            assert_eq!(applied.unwrap().commands, 1, "balance {balance}");
        }
    }
}

async fn first_server(sink: &mut impl ReportSource) -> ServerReport {
    sink.read().await.unwrap().servers[0]
}

/// Checks that are to succeed run every `fastinter` and have `inter` for it: the first that has not brings a server down.
#[tokio::test]
async fn an_administrators_drain_is_not_our_weight_zero() {
    let port = serve(drop);
    let haproxy = Haproxy::start(&format!(
        "
backend shop
  balance leastconn
  server s1 127.0.0.1:{port} weight 10 check inter 5s fastinter 50ms fall 100
  server s2 127.0.0.1:{port} weight 10
"
    ));
    let mut sink = haproxy.sink(&["s1", "s2"]);
    sink.apply(&plan(&[0, 10])).await.unwrap();
    let ours = first_server(&mut sink).await;
    assert_eq!((ours.weight, ours.status), (0, ServerStatus::Up));
    haproxy.ask("set server shop/s1 state drain");
    assert_eq!(first_server(&mut sink).await.status, ServerStatus::Drain);
    // A weight may still be set, and the drain stays the administrator's.
    sink.apply(&plan(&[40, 10])).await.unwrap();
    let drained = first_server(&mut sink).await;
    assert_eq!((drained.weight, drained.status), (40, ServerStatus::Drain));
    haproxy.ask("set server shop/s1 state maint");
    sink.apply(&plan(&[41, 10])).await.unwrap();
    let out = first_server(&mut sink).await;
    assert_eq!((out.weight, out.status), (41, ServerStatus::Maintenance));
    haproxy.ask("set server shop/s1 state ready");
    let back = first_server(&mut sink).await;
    assert_eq!((back.weight, back.status), (41, ServerStatus::Up));
}

#[tokio::test]
async fn health_tracking_and_slowstart_show_in_the_status() {
    let (alive, dead) = (serve(drop), free_port());
    let haproxy = Haproxy::start(&format!(
        "
backend shop
  balance roundrobin
  server slow 127.0.0.1:{alive} weight 100 check inter 5s fastinter 20ms fall 100 slowstart 60s
  server dead 127.0.0.1:{dead} weight 10 check inter 20ms fall 1
  server tracks 127.0.0.1:{alive} weight 10 track shop/dead
  server off 127.0.0.1:{alive} weight 10 disabled
"
    ));
    let mut sink = haproxy.sink(&["slow", "dead", "tracks", "off"]);
    until("the dead one to be seen", || {
        haproxy.ask("show stat -1 4 -1").contains("dead,0,0,0,0,,0,0,0,,0,,0,0,0,0,DOWN")
    });
    let statuses = |servers: &[ServerReport]| servers.iter().map(|s| s.status).collect::<Vec<_>>();
    let report = sink.read().await.unwrap();
    assert_eq!(
        statuses(&report.servers),
        [ServerStatus::Up, ServerStatus::Down, ServerStatus::Down, ServerStatus::Maintenance]
    );
    haproxy.ask("set server shop/slow state maint");
    haproxy.ask("set server shop/slow state ready");
    until("the slowstart", || {
        haproxy.ask("show servers state shop").contains("slow 127.0.0.1 1 0")
    });
    let slow = first_server(&mut sink).await;
    assert_eq!((slow.status, slow.weight), (ServerStatus::Starting, 100), "the weight as set");
    let inspection = sink.inspect().await.unwrap();
    assert!(inspection.servers[0].effective_weight < 100, "{:?}", inspection.servers[0]);
}

fn get(port: u16, path: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("HAProxy's frontend");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("send");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 "), "no answer to {path}");
}

fn http(answer: &'static str) -> u16 {
    serve(move |mut stream| {
        let mut request = [0; 4096];
        if stream.read(&mut request).is_ok_and(|n| n > 0) {
            let _ = stream.write_all(answer.as_bytes());
        }
    })
}

#[tokio::test]
async fn every_failed_attempt_counts_once_and_no_success_does() {
    let web = free_port();
    let ok = http("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let servers = [
        ("ok", ok),
        ("notfound", http("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")),
        ("fivehundred", http("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")),
        ("garbage", http("garbage\r\n\r\n")),
        ("closes", http("")),
        ("half", http("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")),
        ("refuses", free_port()),
        // Closing with the request unread resets the connection; HAProxy counts that error twice.
        ("resets", serve(|stream| drop(stream.peek(&mut [0])))),
        ("silent", serve(|_stream| std::thread::sleep(Duration::from_secs(60)))),
    ];
    let lines: String = servers
        .iter()
        .map(|(name, port)| {
            format!("  use-server {name} if {{ path /{name} }}\n  server {name} 127.0.0.1:{port}\n")
        })
        .collect();
    let haproxy = Haproxy::start(&format!(
        "
frontend web
  bind 127.0.0.1:{web}
  default_backend shop
backend shop
  balance leastconn
  retries 1
  http-request set-timeout server 200ms if {{ path /silent }}
{lines}"
    ));
    let names = servers.map(|(name, _)| name);
    let mut sink = haproxy.sink(&names);
    tokio::task::spawn_blocking(move || {
        for name in names {
            (0..3).for_each(|_| get(web, &format!("/{name}")));
        }
    })
    .await
    .unwrap();
    let report = sink.read().await.unwrap();
    let counts: Vec<(u64, u64)> =
        report.servers.iter().map(|s| (s.started_total, s.errors_total)).collect();
    let answered: Vec<Option<u64>> = report.servers.iter().map(|s| s.answered_total).collect();
    // A head that came is an answer, whatever follows; what HAProxy itself answers for a server is none.
    let expected = [3, 3, 3, 0, 0, 3, 0, 0, 0].map(Some);
    assert_eq!(answered, expected, "of {names:?}");
    // HAProxy tries a refusing server twice for each request: six attempts, six failures.
    let expected = [(3, 0), (3, 0), (3, 3), (3, 3), (3, 3), (3, 3), (6, 6), (3, 3), (3, 3)];
    assert_eq!(counts, expected, "of {names:?}");
    assert!(report.servers.iter().all(|s| s.in_flight == 0 && s.queued == 0));
}

#[tokio::test]
async fn an_attempt_that_another_server_saved_is_an_error_of_the_first() {
    let web = free_port();
    // Bound and never listening: it refuses, and no other test can have it.
    let refusing = tokio::net::TcpSocket::new_v4().unwrap();
    refusing.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let dead = refusing.local_addr().unwrap().port();
    let ok = http("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let haproxy = Haproxy::start(&format!(
        "
frontend web
  bind 127.0.0.1:{web}
  default_backend shop
backend shop
  balance roundrobin
  retries 2
  option redispatch 1
  server dead 127.0.0.1:{dead} weight 10
  server ok 127.0.0.1:{ok} weight 10
"
    ));
    let mut sink = haproxy.sink(&["dead", "ok"]);
    tokio::task::spawn_blocking(move || (0..6).for_each(|_| get(web, "/"))).await.unwrap();
    let [dead, ok] = sink.read().await.unwrap().servers[..] else { panic!("two servers") };
    assert!(dead.started_total > 0 && dead.errors_total == dead.started_total, "{dead:?}");
    assert_eq!((ok.started_total, ok.errors_total), (6, 0));
}

#[tokio::test]
async fn answers_count_while_the_server_gives_them_and_fall_with_the_counters() {
    let web = free_port();
    let port = serve(|mut stream| {
        let mut request = [0; 4096];
        if stream.read(&mut request).is_ok_and(|n| n > 0) {
            if request.starts_with(b"GET /silent ") {
                // HAProxy gives up first, and answers 504.
                let _ = stream.read(&mut request);
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let haproxy = Haproxy::start(&format!(
        "
frontend web
  bind 127.0.0.1:{web}
  default_backend shop
backend shop
  balance leastconn
  http-request set-timeout server 200ms if {{ path /silent }}
  server s1 127.0.0.1:{port}
"
    ));
    let mut sink = haproxy.sink(&["s1"]);
    let gets = |count: usize, path: &'static str| async move {
        let all = move || (0..count).for_each(|_| get(web, path));
        tokio::task::spawn_blocking(all).await.unwrap();
    };
    assert_eq!(first_server(&mut sink).await.answered_total, Some(0));
    gets(4, "/").await;
    assert_eq!(first_server(&mut sink).await.answered_total, Some(4));
    gets(2, "/silent").await;
    let hanging = first_server(&mut sink).await;
    assert_eq!((hanging.answered_total, hanging.errors_total), (Some(4), 2));
    gets(1, "/").await;
    assert_eq!(first_server(&mut sink).await.answered_total, Some(5));
    haproxy.ask("clear counters all");
    gets(1, "/").await;
    assert_eq!(first_server(&mut sink).await.answered_total, Some(1));
}

#[tokio::test]
async fn in_tcp_mode_connections_are_counted_and_no_answers() {
    let (web, port) = (free_port(), serve(|_| {}));
    let haproxy = Haproxy::start(&format!(
        "
frontend web
  mode tcp
  bind 127.0.0.1:{web}
  default_backend shop
backend shop
  mode tcp
  balance leastconn
  server s1 127.0.0.1:{port}
"
    ));
    let mut sink = haproxy.sink(&["s1"]);
    assert_eq!(first_server(&mut sink).await.answered_total, None);
}

#[tokio::test]
async fn a_server_that_asks_for_no_new_traffic_is_drained() {
    let leaving = http("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let haproxy = Haproxy::start(&format!(
        "
backend shop
  balance roundrobin
  option httpchk GET /
  http-check disable-on-404
  server s1 127.0.0.1:{leaving} check inter 5s fastinter 20ms
"
    ));
    let mut sink = haproxy.sink(&["s1"]);
    until("NOLB", || haproxy.ask("show stat -1 4 -1").contains(",NOLB,"));
    assert_eq!(first_server(&mut sink).await.status, ServerStatus::Drain);
}

#[tokio::test]
async fn what_is_in_flight_and_what_waits_is_counted_apart() {
    let web = free_port();
    let slow = serve(|_stream| std::thread::sleep(Duration::from_secs(3)));
    // One thread: two may both see room for one more, and pass `maxconn` by one.
    let haproxy = Haproxy::start(&format!(
        "
global
  nbthread 1
frontend web
  bind 127.0.0.1:{web}
  default_backend shop
backend shop
  balance leastconn
  timeout server 5s
  timeout queue 5s
  use-server s1 if TRUE
  server s1 127.0.0.1:{slow} maxconn 2
"
    ));
    let mut sink = haproxy.sink(&["s1"]);
    let clients: Vec<TcpStream> = (0..5)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", web)).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            stream
        })
        .collect();
    for _ in 0..200 {
        let s1 = first_server(&mut sink).await;
        if s1.in_flight == 2 && s1.in_flight + s1.queued == 5 {
            drop(clients);
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never saw 2 in flight and 3 queued: {:?}", first_server(&mut sink).await);
}

#[tokio::test]
async fn an_active_agent_check_is_a_conflict_until_it_is_switched_off() {
    let agent = serve(|mut stream| {
        let _ = stream.write_all(b"up 50%\n");
    });
    let haproxy = Haproxy::start(&format!(
        "
backend shop
  balance leastconn
  server s1 127.0.0.1:1 weight 40
  server s2 127.0.0.1:1 weight 40 agent-check agent-port {agent} agent-inter 50ms
"
    ));
    let mut sink = haproxy.sink(&["s1", "s2"]);
    until("the agent to halve the weight", || haproxy.weight("s2") == "20");
    assert_eq!(sink.read().await.unwrap().servers[1].weight, 20, "reading goes on");
    assert_eq!(sink.inspect().await.unwrap().servers[1].agent, AgentState::Active);
    let error = sink.apply(&plan(&[10, 10])).await.unwrap_err();
    assert_eq!(error.kind(), SinkErrorKind::Conflict);
    assert!(error.to_string().contains("disable agent shop/s2"), "{error}");
    assert_eq!(haproxy.weight("s1"), "40", "nothing was sent");
    let socket = SocketAddress::Unix(haproxy.socket("admin"));
    let config = HaproxyConfig { timeout: PATIENCE, ..HaproxyConfig::new(socket, "shop") };
    let pools = Sink::Haproxy(config).look().await.unwrap();
    let why = pools[0].out_of_reach().expect("a reason");
    assert!(why.contains("on 1 of its servers (s2): "), "{why}");
    haproxy.ask("disable agent shop/s2");
    sink.apply(&plan(&[10, 10])).await.unwrap();
    let inspection = sink.inspect().await.unwrap();
    assert_eq!(inspection.servers[1].agent, AgentState::Disabled);
    assert_eq!(inspection.servers[0].agent, AgentState::Absent);
}

#[tokio::test]
async fn an_inspection_tells_the_raw_facts_at_every_level() {
    let haproxy = Haproxy::start(
        "
backend shop
  balance leastconn
  server s1 127.0.0.1:4321 weight 10 maxconn 20
  server foreign 127.0.0.1:4322 weight 30
",
    );
    for (level, expected) in [
        ("admin", AccessLevel::Admin),
        ("operator", AccessLevel::Operator),
        ("user", AccessLevel::User),
    ] {
        let mut sink = haproxy.sink_on(level, &["s1", "sX"]);
        let found = sink.inspect().await.unwrap();
        assert_eq!(found.level, Some(expected));
        assert!(found.version.starts_with(|c: char| c.is_ascii_digit()), "{}", found.version);
        assert!(found.pid > 0 && found.started_at > 0 && found.threads > 0);
        assert_eq!(found.maxconn, 200);
        assert_eq!(found.missing, ["sX"]);
        let [s1, foreign] = &found.servers[..] else { panic!("{:?}", found.servers) };
        assert_eq!((s1.weight, s1.initial_weight, s1.maxconn), (10, 10, Some(20)));
        assert_eq!((foreign.backend, foreign.weight, foreign.maxconn), (None, 30, None));
        assert!(!s1.checked && s1.backend.is_some());
        let told = level != "user";
        assert_eq!(found.method.name, if told { "leastconn" } else { "" });
        assert_eq!(s1.address, if told { "127.0.0.1:4321" } else { "" });
    }
}
