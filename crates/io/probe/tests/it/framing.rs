use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use plimsoll_model::FailureKind;
use plimsoll_probe::{Connection, ProbeSpec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::{OK, Server, fails, prober, read_request, spec, succeeds};

/// Probes three times; returns on how many connections.
async fn connections(answer: &'static str, spec: ProbeSpec) -> usize {
    let server = Server::answering(answer).await;
    let prober = prober(server.addr, spec);
    for _ in 0..3 {
        succeeds(&prober).await;
    }
    server.accepted()
}

#[tokio::test]
async fn answers_of_every_framing_leave_the_connection_usable() {
    for answer in [
        OK,
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\n0\r\nA: b\r\n\r\n",
        "HTTP/1.1 204 Empty\r\n\r\n",
        "HTTP/1.1 304 Same\r\nContent-Length: 99\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n\
         Content-Length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    ] {
        assert_eq!(connections(answer, spec()).await, 1, "{answer}");
    }
}

#[tokio::test]
async fn a_head_request_gets_no_body() {
    let spec = ProbeSpec { method: "HEAD".into(), ..spec() };
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n";
    assert_eq!(connections(answer, spec).await, 1);
}

#[tokio::test]
async fn a_server_that_means_to_close_is_not_asked_again() {
    for answer in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        // More than was announced: whose bytes are these?
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok, and more",
    ] {
        assert_eq!(connections(answer, spec()).await, 3, "{answer}");
    }
}

#[tokio::test]
async fn a_body_may_end_with_the_connection() {
    for answer in ["HTTP/1.1 200 OK\r\n\r\nall of it", "HTTP/1.0 200 OK\r\n\r\nall of it"] {
        let server = Server::closing_after(answer).await;
        let spec = ProbeSpec { expect_body: Some(b"all of it".to_vec()), ..spec() };
        let prober = prober(server.addr, spec);
        succeeds(&prober).await;
        succeeds(&prober).await;
        assert_eq!(server.accepted(), 2);
    }
}

#[tokio::test]
async fn an_answer_may_come_byte_by_byte() {
    let server = Server::start(|mut stream, _| async move {
        stream.set_nodelay(true).expect("a socket");
        while read_request(&mut stream).await.is_some() {
            let answer = "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\n\
                Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA: b\r\n\r\n";
            for byte in answer.bytes() {
                let _ = stream.write_all(&[byte]).await;
                tokio::time::sleep(Duration::from_micros(100)).await;
            }
        }
    })
    .await;
    let prober = prober(server.addr, spec());
    succeeds(&prober).await;
    succeeds(&prober).await;
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn interim_answers_without_end_and_tunnels_are_protocol_failures() {
    let endless = "HTTP/1.1 100 Continue\r\n\r\n".repeat(20).leak();
    let switch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n";
    for answer in [&*endless, switch] {
        let server = Server::hanging_after(answer).await;
        fails(server.addr, spec(), FailureKind::Protocol).await;
    }
}

#[tokio::test]
async fn a_request_arrives_in_one_piece() {
    let reads = Arc::new(AtomicUsize::new(0));
    let count = reads.clone();
    let server = Server::start(move |mut stream, _| {
        let count = count.clone();
        async move {
            let mut buf = [0; 4096];
            let mut request = String::new();
            while !request.ends_with("the body") {
                let read = stream.read(&mut buf).await.expect("a request");
                count.fetch_add(1, Ordering::SeqCst);
                request.push_str(std::str::from_utf8(&buf[..read]).expect("ASCII"));
            }
            assert!(request.starts_with("POST /path?q HTTP/1.1\r\nHost: shop.example\r\n"));
            assert!(
                request.contains("\r\nX-Trace: 1\r\nContent-Length: 8\r\nConnection: close\r\n")
            );
            let _ = stream.write_all(OK.as_bytes()).await;
        }
    })
    .await;
    let spec = ProbeSpec {
        method: "POST".into(),
        path: "/path?q".into(),
        host: Some("shop.example".into()),
        headers: vec![("X-Trace".into(), "1".into())],
        body: Some(b"the body".to_vec()),
        connection: Connection::New,
        ..spec()
    };
    succeeds(&prober(server.addr, spec)).await;
    assert_eq!(reads.load(Ordering::SeqCst), 1);
}
