//! Restarts, reloads, levels and addresses of a real HAProxy.

mod common;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::{Haproxy, free_port, plan, sink_at};
use plimsoll_sink::{ReportSource, SinkErrorKind, SocketAddress, WeightSink};

const SHOP: &str = "
backend shop
  balance leastconn
  server s1 127.0.0.1:1 weight 10
  server s2 127.0.0.1:1 weight 20
";

#[tokio::test]
async fn after_a_restart_the_generation_differs_and_the_weights_are_gone() {
    let mut haproxy = Haproxy::start(SHOP);
    let mut sink = haproxy.sink(&["s1", "s2"]);
    sink.apply(&plan(&[77, 88])).await.unwrap();
    let before = sink.read().await.unwrap();
    assert_eq!(sink.read().await.unwrap().generation, before.generation);
    haproxy.restart();
    let after = sink.read().await.unwrap();
    assert_ne!(after.generation, before.generation);
    assert_eq!([after.servers[0].weight, after.servers[1].weight], [10, 20]);
    assert!(after.at > before.at);
    assert_eq!(sink.apply(&plan(&[77, 88])).await.unwrap().commands, 2);
}

#[tokio::test]
async fn after_a_reload_the_kept_connection_leaves_the_old_worker() {
    let mut haproxy = Haproxy::start_master_worker(SHOP);
    let mut sink = haproxy.sink(&["s1", "s2"]);
    sink.apply(&plan(&[77, 88])).await.unwrap();
    let before = sink.read().await.unwrap();
    let reloaded = SHOP.replace("leastconn", "roundrobin");
    haproxy.reload(&format!("\nbackend first\n  server s1 127.0.0.1:1 weight 99\n{reloaded}"));
    let after = sink.read().await.unwrap();
    assert_ne!(after.generation, before.generation);
    assert_eq!([after.servers[0].weight, after.servers[1].weight], [10, 20]);
    assert_eq!(after.method.name, "roundrobin", "the method is learned anew");
    haproxy.reload(SHOP);
    sink.apply(&plan(&[77, 88])).await.unwrap();
    assert_eq!(haproxy.weight("s1"), "77", "the new worker got it");
}

#[tokio::test]
async fn cleared_counters_are_a_new_generation() {
    let web = free_port();
    let haproxy = Haproxy::start(&format!(
        "\nfrontend web\n  bind 127.0.0.1:{web}\n  default_backend shop\n{SHOP}"
    ));
    let mut sink = haproxy.sink(&["s1", "s2"]);
    tokio::task::spawn_blocking(move || {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", web)).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    })
    .await
    .unwrap();
    let before = sink.read().await.unwrap();
    assert!(before.servers.iter().any(|server| server.started_total > 0));
    haproxy.ask("clear counters all");
    let after = sink.read().await.unwrap();
    assert!(after.servers.iter().all(|server| server.started_total == 0));
    assert_ne!(after.generation, before.generation);
    assert_eq!(sink.read().await.unwrap().generation, after.generation);
}

#[tokio::test]
async fn operators_may_look_and_users_not_even_that() {
    let haproxy = Haproxy::start(SHOP);
    let mut operator = haproxy.sink_on("operator", &["s1", "s2"]);
    assert_eq!(operator.read().await.unwrap().method.name, "leastconn");
    let error = operator.apply(&plan(&[1, 2])).await.unwrap_err();
    assert_eq!(error.kind(), SinkErrorKind::Permission);
    assert!(error.to_string().contains("level operator, and needs level admin"), "{error}");
    let mut user = haproxy.sink_on("user", &["s1", "s2"]);
    let error = user.read().await.unwrap_err();
    assert_eq!(error.kind(), SinkErrorKind::Permission);
    assert!(error.to_string().contains("level user, and needs level operator"), "{error}");
    assert!(!error.retryable());
    assert!(user.apply(&plan(&[1, 2])).await.unwrap_err().to_string().contains("level user"));
    assert_eq!(haproxy.weight("s1"), "10");
}

#[tokio::test]
async fn an_absent_haproxy_is_a_clear_error_and_its_return_is_noticed() {
    let mut haproxy = Haproxy::start(SHOP);
    let mut sink = haproxy.sink(&["s1", "s2"]);
    sink.read().await.unwrap();
    haproxy.stop();
    let error = sink.read().await.unwrap_err();
    assert_eq!(error.kind(), SinkErrorKind::Unreachable);
    assert!(error.to_string().contains("is HAProxy running"), "{error}");
    assert!(error.retryable());
    assert!(std::error::Error::source(&error).is_some());
    assert!(sink.apply(&plan(&[1, 2])).await.unwrap_err().retryable());
    haproxy.start_again();
    sink.apply(&plan(&[1, 2])).await.unwrap();
    let nowhere = SocketAddress::Unix(PathBuf::from("/nonexistent/admin.sock"));
    let error = sink_at(nowhere, "shop", &["s1"]).read().await.unwrap_err();
    assert!(error.to_string().contains("/nonexistent/admin.sock: no such socket"), "{error}");
}

#[tokio::test]
async fn the_runtime_api_may_listen_on_tcp() {
    let port = free_port();
    let haproxy = Haproxy::start(&format!(
        "\nglobal\n  stats socket ipv4@127.0.0.1:{port} level admin\n{SHOP}"
    ));
    for address in [format!("127.0.0.1:{port}"), format!("tcp://localhost:{port}")] {
        let mut sink = sink_at(address.parse().unwrap(), "shop", &["s1", "s2"]);
        assert_eq!(sink.read().await.unwrap().servers.len(), 2);
        sink.apply(&plan(&[5, 6])).await.unwrap();
    }
    assert_eq!(haproxy.weight("s2"), "6");
}

#[tokio::test]
async fn the_masters_socket_is_recognised() {
    let haproxy = Haproxy::start_master_worker(SHOP);
    let socket = SocketAddress::Unix(haproxy.socket("master"));
    let error = sink_at(socket, "shop", &["s1"]).read().await.unwrap_err();
    assert_eq!(error.kind(), SinkErrorKind::Protocol);
    assert!(error.to_string().contains("master"), "{error}");
}

#[tokio::test]
async fn an_idle_connection_is_kept_and_a_call_that_was_dropped_harms_nothing() {
    let haproxy = Haproxy::start(SHOP);
    let mut sink = haproxy.sink(&["s1", "s2"]);
    sink.read().await.unwrap();
    let connections = || {
        haproxy
            .ask("show info")
            .lines()
            .filter_map(|l| l.strip_prefix("CumConns: "))
            .map(|n| n.parse::<u32>().unwrap())
            .sum::<u32>()
    };
    let before = connections();
    for _ in 0..20 {
        sink.read().await.unwrap();
    }
    assert_eq!(connections() - before, 1, "only our own question connected");
    for _ in 0..20 {
        let soon = Instant::now() + Duration::from_micros(50);
        let _ = tokio::time::timeout_at(soon.into(), sink.apply(&plan(&[9, 8]))).await;
        let report = sink.read().await.unwrap();
        assert_eq!(report.servers.len(), 2);
    }
    sink.apply(&plan(&[3, 4])).await.unwrap();
    assert_eq!((haproxy.weight("s1"), haproxy.weight("s2")), ("3".into(), "4".into()));
}
