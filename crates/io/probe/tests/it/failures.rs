use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_model::FailureKind;
use plimsoll_probe::{Probe, ProbeSpec, Prober};
use tokio::io::AsyncWriteExt;

use crate::server::{
    OK, PATIENCE, Server, fails, probe, prober, read_request, spec, succeeds, until, unused_address,
};

/// A spec whose time runs out soon.
fn hasty() -> ProbeSpec {
    ProbeSpec { timeout: Duration::from_millis(150), ..ProbeSpec::default() }
}

#[tokio::test]
async fn an_unexpected_status_is_a_failure_and_the_connection_survives_it() {
    let server = Server::answering("HTTP/1.1 404 No\r\nContent-Length: 4\r\n\r\ngone").await;
    let prober = prober(server.addr, spec());
    for _ in 0..3 {
        let result = probe(&prober).await;
        assert_eq!(result.outcome, plimsoll_model::Outcome::Failure(FailureKind::Status));
        assert_eq!((result.status, &*result.detail), (Some(404), "status 404"));
    }
    assert_eq!(server.accepted(), 1);
    let expecting = ProbeSpec { expect_status: "404".parse().unwrap(), ..spec() };
    succeeds(&crate::server::prober(server.addr, expecting)).await;
}

#[tokio::test]
async fn the_verdict_of_a_status_does_not_wait_for_its_body() {
    let server = Server::hanging_after("HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\n").await;
    let result = fails(server.addr, spec(), FailureKind::Status).await;
    assert!(result.latency < PATIENCE);
    until("the connection is closed", || server.open() == 0).await;
}

#[tokio::test]
async fn a_port_without_a_listener_is_refused() {
    let result = fails(unused_address().await, spec(), FailureKind::Refused).await;
    assert_eq!(result.status, None);
    assert!(result.detail.contains("cannot connect"), "{}", result.detail);
}

#[tokio::test]
async fn names_are_resolved_or_refused() {
    let server = Server::answering(OK).await;
    let probe = Arc::new(Probe::new(spec()).unwrap());
    let address = format!("localhost:{}", server.addr.port()).parse().unwrap();
    succeeds(&Prober::new(address, probe.clone(), 1).unwrap()).await;
    let lost = Prober::new("no-such-host.invalid:80".parse().unwrap(), probe, 1).unwrap();
    let result = crate::server::probe(&lost).await;
    assert_eq!(result.outcome, plimsoll_model::Outcome::Failure(FailureKind::Refused));
    assert!(result.detail.contains("cannot resolve"), "{}", result.detail);
}

#[tokio::test]
async fn silence_before_and_within_the_answer_is_a_timeout() {
    let before = Server::hanging_after("").await;
    let result = fails(before.addr, hasty(), FailureKind::Timeout).await;
    assert_eq!(result.status, None);
    assert!(result.latency >= Duration::from_millis(150));
    let head = Server::hanging_after("HTTP/1.1 200 OK\r\nContent-Le").await;
    assert_eq!(fails(head.addr, hasty(), FailureKind::Timeout).await.status, None);
    let body = Server::hanging_after("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await;
    assert_eq!(fails(body.addr, hasty(), FailureKind::Timeout).await.status, Some(200));
    until("the connections are closed", || before.open() + head.open() + body.open() == 0).await;
}

#[tokio::test]
async fn a_head_that_drips_runs_into_the_total_timeout() {
    let server = Server::start(|mut stream, _| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX-Drip: ").await;
        let (mut reader, mut writer) = stream.split();
        let drip = async {
            while writer.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = drip => {}
            // The client's end: it sends no other request.
            _ = read_request(&mut reader) => {}
        }
    })
    .await;
    fails(server.addr, hasty(), FailureKind::Timeout).await;
    until("the connection is closed", || server.open() == 0).await;
}

#[tokio::test]
async fn a_connection_that_is_cut_is_a_reset() {
    let reset = Server::start(|mut stream, _| async move {
        read_request(&mut stream).await;
        stream.set_zero_linger().expect("a socket");
    })
    .await;
    fails(reset.addr, spec(), FailureKind::Reset).await;
    for answer in ["", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"] {
        let server = Server::closing_after(answer).await;
        fails(server.addr, spec(), FailureKind::Reset).await;
        assert_eq!(server.accepted(), 1, "a new connection is not tried twice");
    }
    let chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nWiki\r\n";
    let server = Server::closing_after(chunk).await;
    fails(server.addr, spec(), FailureKind::Reset).await;
}

#[tokio::test]
async fn what_is_not_http_is_a_protocol_failure() {
    for answer in ["220 smtp.example ESMTP\r\n", "\0\0\x12\x04\0\0\0\0\0\0", "HTTP/2.0 200 OK\r\n"]
    {
        let server = Server::hanging_after(answer).await;
        fails(server.addr, spec(), FailureKind::Protocol).await;
    }
}

#[tokio::test]
async fn a_head_without_end_is_a_protocol_failure() {
    for filler in ["a: b\r\n", "x"] {
        let server = Server::start(move |mut stream, _| async move {
            read_request(&mut stream).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX: ").await;
            while stream.write_all(filler.repeat(100).as_bytes()).await.is_ok() {}
        })
        .await;
        fails(server.addr, spec(), FailureKind::Protocol).await;
        until("the connection is closed", || server.open() == 0).await;
    }
}

/// A server that sends this head and then this piece until it is stopped; returns how many bytes it
/// got rid of.
async fn flood(head: &'static str, piece: &'static str) -> (Server, Arc<AtomicU64>) {
    let sent = Arc::new(AtomicU64::new(0));
    let count = sent.clone();
    let server = Server::start(move |mut stream, _| {
        let count = count.clone();
        async move {
            read_request(&mut stream).await;
            let _ = stream.write_all(head.as_bytes()).await;
            let block = piece.repeat(64 * 1024 / piece.len());
            while count.load(Ordering::SeqCst) < 1 << 30
                && stream.write_all(block.as_bytes()).await.is_ok()
            {
                count.fetch_add(block.len() as u64, Ordering::SeqCst);
            }
        }
    })
    .await;
    (server, sent)
}

#[tokio::test]
async fn a_gigabyte_costs_no_more_than_the_longest_body() {
    for (head, piece) in [
        ("HTTP/1.1 200 OK\r\n\r\n", "x"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n", "x"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "4\r\nWiki\r\n"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40000000\r\n", "x"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "a: b\r\n"),
    ] {
        let (server, sent) = flood(head, piece).await;
        let result = fails(server.addr, spec(), FailureKind::Body).await;
        assert_eq!(result.status, Some(200));
        until("the connection is closed", || server.open() == 0).await;
        // What was not read lies in the buffers of two kernels' ends.
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < 64 << 20, "{sent} bytes were sent");
    }
}

#[tokio::test]
async fn the_longest_body_is_still_read() {
    let long = ["HTTP/1.1 200 OK\r\n\r\n".to_owned(), "x".repeat(64 * 1024)].concat();
    let server = Server::closing_after(long.leak()).await;
    succeeds(&prober(server.addr, spec())).await;
    let tight = ProbeSpec { max_body: 64 * 1024 - 1, ..spec() };
    fails(server.addr, tight, FailureKind::Body).await;
    let none = ProbeSpec { max_body: 0, ..spec() };
    fails(server.addr, none, FailureKind::Body).await;
}

#[tokio::test]
async fn the_expected_body_must_come() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        5\r\nstatu\r\n4\r\ns: g\r\n4\r\nreen\r\n0\r\n\r\n";
    let server = Server::answering(chunked).await;
    let expecting = |text: &str| ProbeSpec { expect_body: Some(text.into()), ..spec() };
    succeeds(&prober(server.addr, expecting("status: green"))).await;
    let result = fails(server.addr, expecting("status: red"), FailureKind::Body).await;
    assert_eq!(result.status, Some(200));
}
