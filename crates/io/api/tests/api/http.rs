//! Answers, errors, and which clients get none.

use std::time::{Duration, SystemTime};

use crate::common::{Server, shop};
use plimsoll_api::{Hub, Part, Publisher, wire};
use plimsoll_control::{Record, RecordKind, ServiceView};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn serving() -> (Server, Hub, Publisher) {
    let hub = Hub::new("0.1.0");
    let shop = hub.add(shop("shop"));
    (Server::start(hub.clone()).await, hub, shop)
}

fn record(kind: RecordKind, reason: &str) -> Record {
    Record { kind, backend: Some("s1".to_owned()), reason: reason.to_owned() }
}

#[tokio::test]
async fn readiness_follows_the_balancer_and_trouble() {
    let hub = Hub::new("0.1.0");
    let server = Server::start(hub.clone()).await;
    assert_eq!(server.get("/healthz").await.status, 200);
    let empty = server.get("/readyz").await;
    assert_eq!(empty.status, 503);
    assert_eq!(empty.json()["reasons"][0]["reason"], "no service is running yet");
    hub.wait_for(Some("waiting for the balancer".to_owned()));
    let reason = server.get("/readyz").await.json()["reasons"][0]["reason"].clone();
    assert_eq!(reason, "waiting for the balancer");
    let services = server.get("/v1/services").await.json();
    assert_eq!(services, json!({"services": [], "waiting": "waiting for the balancer"}));

    let publisher = hub.add(shop("shop"));
    let unread = server.get("/readyz").await;
    assert_eq!(unread.status, 503);
    let why = json!([{"service": "shop", "reason": "the balancer has not been read yet"}]);
    assert_eq!(unread.json(), json!({"ready": false, "reasons": why}));

    publisher.counters().polled(Duration::from_millis(2));
    let ready = server.get("/readyz").await;
    assert_eq!((ready.status, ready.json()), (200, json!({"ready": true, "reasons": []})));

    publisher.publish(ServiceView { trouble: Some("socket refuses".to_owned()), ..shop("shop") });
    let trouble = server.get("/readyz").await;
    assert_eq!(trouble.status, 503);
    assert_eq!(trouble.json()["reasons"][0]["reason"], "socket refuses");
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_service_whose_plans_are_refused_is_not_ready_however_often_it_is_read() {
    let (server, _, shop) = serving().await;
    shop.counters().polled(Duration::from_millis(2));
    shop.plan_refused(3, "no such server");
    for _ in 0..3 {
        shop.counters().polled(Duration::from_millis(2));
        let refused = server.get("/readyz").await;
        assert_eq!(refused.status, 503);
        let why = "plan 3 was not programmed: no such server";
        assert_eq!(refused.json()["reasons"][0]["reason"], why);
    }
    let page = server.get("/metrics").await.body;
    assert!(page.contains("plimsoll_service_ready{service=\"shop\"} 0"), "{page}");
    shop.plan_taken();
    assert_eq!(server.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_service_whose_task_or_supervisor_has_ended_is_not_ready() {
    let (server, _, shop) = serving().await;
    shop.counters().polled(Duration::from_millis(2));
    let mut again = Vec::new();
    for part in [Part::Service, Part::Supervisor] {
        let at_work = shop.at_work(part);
        assert_eq!(server.get("/readyz").await.status, 200);
        // As a panic would.
        let task = tokio::spawn(async move {
            let _at_work = at_work;
            panic!("{part:?}");
        });
        assert!(task.await.is_err());
        let ended = server.get("/readyz").await;
        assert_eq!(ended.status, 503, "{part:?}");
        assert!(ended.body.contains("has ended"), "{}", ended.body);
        again.push(shop.at_work(part));
        assert_eq!(server.get("/readyz").await.status, 200, "{part:?} is at work again");
    }
}

#[tokio::test]
async fn weights_have_exactly_the_documented_shape() {
    let (server, ..) = serving().await;
    let s1 = json!({"backend": "s1", "weight": 192, "share": 0.75, "programmed": 192,
        "state": "ready", "latency_ms": 30.0, "expected_ms": null, "asked_rps": 0.0,
        "asked_part": null, "error_share": 0.0, "check_interval_s": null, "cause": null, "reason": "packed"});
    let s2 = json!({"backend": "s2", "weight": 64, "share": 0.25, "programmed": 64,
        "state": "exploring", "latency_ms": 30.0, "expected_ms": null, "asked_rps": 0.0,
        "asked_part": null, "error_share": 0.0, "check_interval_s": null, "cause": null, "reason": "packed"});
    let shop = json!({"service": "shop", "method": "split", "phase": "steady", "epoch": 12,
        "backends": [s1, s2]});
    assert_eq!(server.get("/v1/services/shop/weights").await.json(), shop);
    assert_eq!(server.get("/v1/weights").await.json(), json!({"services": [shop]}));
}

#[tokio::test]
async fn each_part_of_a_view_reads_back_as_its_type() {
    let (server, ..) = serving().await;
    let list: wire::Services = serde_json::from_value(server.get("/v1/services").await.json())
        .expect("a list of services");
    assert_eq!(list.services[0].service, "shop");
    assert_eq!(list.services[0].backends, 2);
    assert!(!list.services[0].ready);

    let full: ServiceView =
        serde_json::from_value(server.get("/v1/services/shop").await.json()).expect("a view");
    assert_eq!(full.backends, shop("shop").backends);
    // What JSON cannot hold is bounded or left out, and the rest still reads.
    assert_eq!(full.curves[0].capacity_error, f64::MAX);
    assert_eq!(full.curves[0].line, [(0.0, 20.0), (300.0, 22.0)]);

    let curves: wire::ServiceCurves =
        serde_json::from_value(server.get("/v1/services/shop/curves").await.json())
            .expect("curves");
    assert_eq!(curves.curves[0].rate_rps, 300.0);
    assert_eq!(curves.curves[0].latency_ms, Some(30.0));
    assert_eq!(curves.curves[0].curve.family, "hyperbola");

    let plan: wire::ServicePlan =
        serde_json::from_value(server.get("/v1/services/shop/plan").await.json()).expect("a plan");
    assert_eq!(plan.plan, shop("shop").plan);
    assert_eq!(plan.method_name, "roundrobin");
}

#[tokio::test]
async fn events_page_forward() {
    let (server, _, shop) = serving().await;
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
    for i in 1..=5 {
        shop.record(at, record(RecordKind::Failed, &format!("refused {i}")));
    }
    let newest = server.get("/v1/services/shop/events?limit=2").await.json();
    assert_eq!(newest["last_seq"], 5);
    let fourth = json!({"seq": 4, "time": "1970-01-01T00:00:01.500Z", "kind": "failed",
        "backend": "s1", "reason": "refused 4"});
    assert_eq!(newest["events"][0], fourth);
    assert_eq!(newest["events"].as_array().map(Vec::len), Some(2));

    let next = server.get("/v1/services/shop/events?after=1&limit=2").await.json();
    let next: wire::ServiceEvents = serde_json::from_value(next).expect("events");
    assert_eq!(next.events.iter().map(|e| e.seq).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(next.events[0].unix_ms, 1_500);
}

#[tokio::test]
async fn what_is_unknown_is_an_error_in_json() {
    let (server, ..) = serving().await;
    for (path, status, error) in [
        ("/v1/services/nope", 404, "no service is named \"nope\""),
        ("/v1/services/nope/events", 404, "no service is named \"nope\""),
        ("/v1/services/shop/nope", 404, "nothing is at \"/v1/services/shop/nope\""),
        ("/v2", 404, "nothing is at \"/v2\""),
        ("/v1/weights?service=shop", 400, "this path takes no query"),
        ("/v1/services/shop?x", 400, "this path takes no query"),
        (
            "/v1/services/shop/events?since=3",
            400,
            "unknown query key \"since\": limit and after are known",
        ),
        ("/v1/services/shop/events?limit=x", 400, "limit: expected a whole number, found \"x\""),
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.json(), json!({"error": error}), "{path}");
    }
    assert_eq!(server.get("/v1/services/%ff").await.status, 400);
    assert!(server.get("/v1/services/%ff").await.json()["error"].is_string());
}

#[tokio::test]
async fn nothing_can_be_changed() {
    let (server, ..) = serving().await;
    let host = server.at.to_string();
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        for path in ["/v1/services", "/v1/services/shop/weights", "/healthz", "/metrics", "/"] {
            let answer = server.ask(method, path, &host).await;
            assert_eq!(answer.status, 405, "{method} {path}");
            assert!(answer.head.contains("allow: get,head"), "{}", answer.head);
            assert_eq!(answer.json()["error"], "only GET and HEAD are answered");
        }
    }
    let head = server.ask("HEAD", "/v1/weights", &host).await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[tokio::test]
async fn a_rebound_name_is_refused_and_nothing_is_shared_across_origins() {
    let (server, ..) = serving().await;
    for path in ["/v1/weights", "/", "/metrics", "/healthz"] {
        let rebound = server.ask("GET", path, "evil.example:7400").await;
        assert_eq!(rebound.status, 403, "{path}");
        let own = server.ask("GET", path, "localhost:7400").await;
        assert_eq!(own.status, 200, "{path}");
        assert!(!own.head.contains("access-control"), "{}", own.head);
        assert!(own.head.contains("x-content-type-options: nosniff"), "{}", own.head);
    }
    let absolute = "GET http://evil.example/v1/weights HTTP/1.1\r\nHost: localhost\r\n\
                    Connection: close\r\n\r\n";
    assert!(server.raw(absolute).await.starts_with("HTTP/1.1 403"));
    let two =
        "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert!(server.raw(two).await.starts_with("HTTP/1.1 403"));
}

#[tokio::test]
async fn a_gigantic_head_is_refused() {
    let (server, ..) = serving().await;
    let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    assert!(server.raw(&head).await.starts_with("HTTP/1.1 431"));
}

#[tokio::test]
async fn a_removed_service_is_gone_and_a_replaced_one_starts_anew() {
    let (server, hub, shop_publisher) = serving().await;
    shop_publisher.record(SystemTime::now(), record(RecordKind::Plan, "first"));
    hub.add(shop("blog"));
    let names = |list: serde_json::Value| {
        let services = list["services"].as_array().cloned().unwrap_or_default();
        services.iter().map(|s| s["service"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(server.get("/v1/services").await.json()), ["\"shop\"", "\"blog\""]);
    hub.remove("shop");
    assert_eq!(names(server.get("/v1/services").await.json()), ["\"blog\""]);
    assert_eq!(server.get("/v1/services/shop").await.status, 404);
    let again = hub.add(shop("shop"));
    again.restore(vec![wire::Event {
        seq: 41,
        unix_ms: 0,
        kind: RecordKind::Plan,
        backend: None,
        reason: "of an earlier run".to_owned(),
    }]);
    let event = again.record(SystemTime::now(), record(RecordKind::Plan, "second"));
    assert_eq!(event.seq, 42);
    let events = server.get("/v1/services/shop/events").await.json();
    assert_eq!(events["events"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn stopping_does_not_wait_for_idle_or_dawdling_clients() {
    let (server, ..) = serving().await;
    let idle = TcpStream::connect(server.at).await.expect("a connection");
    let stopped = tokio::time::timeout(Duration::from_secs(10), server.stop()).await;
    assert!(stopped.is_ok());
    drop(idle);
}

/// Connections that have been answered and are kept, or (without a request) have asked nothing.
async fn idle(at: std::net::SocketAddr, count: usize, asks: bool) -> Vec<TcpStream> {
    let mut kept = Vec::with_capacity(count);
    for i in 0..count {
        let mut stream = TcpStream::connect(at).await.expect("a connection");
        if asks {
            let answer = async {
                stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
                let mut head = [0; 12];
                stream.read_exact(&mut head).await.map(|_| head)
            };
            let head = tokio::time::timeout(Duration::from_secs(10), answer).await;
            let head = head.unwrap_or_else(|_| panic!("connection {i} is not answered"));
            assert_eq!(&head.expect("an answer"), b"HTTP/1.1 200");
        }
        kept.push(stream);
    }
    kept
}

#[tokio::test]
async fn idle_connections_do_not_lock_others_out() {
    for (count, asks) in [(130, true), (600, true), (600, false)] {
        let (server, ..) = serving().await;
        let kept = idle(server.at, count, asks).await;
        let answer = tokio::time::timeout(Duration::from_secs(10), server.get("/healthz")).await;
        let answer = answer.unwrap_or_else(|_| panic!("not answered beside {count} idle ones"));
        assert_eq!(answer.status, 200);
        drop(kept);
    }
}

#[tokio::test]
async fn requests_under_way_do_not_give_way_to_new_connections() {
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let (go, wait) = tokio::sync::watch::channel(false);
    let slow = move || {
        let (started, mut wait) = (started.clone(), wait.clone());
        async move {
            started.send(()).expect("the test listens");
            wait.wait_for(|go| *go).await.expect("the test goes on");
            "done"
        }
    };
    let paths = axum::Router::new()
        .route("/slow", axum::routing::get(slow))
        .route("/healthz", axum::routing::get(|| async { "ok" }));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let at = listener.local_addr().expect("an address");
    let server = tokio::spawn(plimsoll_api::serve_routes(listener, paths, std::future::pending()));
    let mut slow = TcpStream::connect(at).await.expect("a connection");
    slow.write_all(b"GET /slow HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await
        .expect("sent");
    starts.recv().await.expect("it is under way");
    let kept = idle(at, 300, true).await;
    go.send(true).expect("the request waits");
    let mut answer = String::new();
    slow.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.ends_with("done"), "{answer}");
    drop(kept);
    server.abort();
}
