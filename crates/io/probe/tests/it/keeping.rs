use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use plimsoll_model::{FailureKind, Outcome};
use plimsoll_probe::{Connection, ProbeSpec};
use tokio::io::AsyncWriteExt;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::server::{OK, Server, probe, prober, read_request, spec, succeeds, until};

#[tokio::test]
async fn probes_one_after_the_other_share_a_connection() {
    let server = Server::answering(OK).await;
    let prober = prober(server.addr, spec());
    for _ in 0..10 {
        succeeds(&prober).await;
    }
    assert_eq!((server.accepted(), prober.idle_connections()), (1, 1));
    drop(prober);
    until("the connection is closed", || server.open() == 0).await;
}

#[tokio::test]
async fn new_connections_are_new_every_time() {
    let server = Server::answering(OK).await;
    let spec = ProbeSpec { connection: Connection::New, ..spec() };
    let prober = prober(server.addr, spec);
    for _ in 0..3 {
        succeeds(&prober).await;
    }
    assert_eq!((server.accepted(), prober.idle_connections()), (3, 0));
    until("the connections are closed", || server.open() == 0).await;
}

#[tokio::test]
async fn a_connection_closed_while_idle_is_no_failure() {
    let server = Server::closing_after(OK).await;
    let prober = prober(server.addr, spec());
    for _ in 0..3 {
        succeeds(&prober).await;
        until("the server has closed", || server.open() == 0).await;
    }
    assert_eq!(server.accepted(), 3);
}

/// Connections that answer once, and close when they are asked again: too late to be noticed before
/// the request is sent. Those from number `dead` on answer nothing at all.
async fn one_answer_each(dead: usize, requests: Arc<AtomicUsize>) -> Server {
    Server::start(move |mut stream, number| {
        let requests = requests.clone();
        async move {
            let mut answers = usize::from(number < dead);
            while read_request(&mut stream).await.is_some() {
                requests.fetch_add(1, Ordering::SeqCst);
                if answers == 0 {
                    return;
                }
                answers -= 1;
                let _ = stream.write_all(OK.as_bytes()).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_stale_connection_is_retried_on_a_new_one() {
    let requests = Arc::new(AtomicUsize::new(0));
    let server = one_answer_each(usize::MAX, requests.clone()).await;
    let prober = prober(server.addr, spec());
    succeeds(&prober).await;
    succeeds(&prober).await;
    assert_eq!((server.accepted(), requests.load(Ordering::SeqCst)), (2, 3));
}

#[tokio::test]
async fn a_stale_connection_is_retried_once_only() {
    let requests = Arc::new(AtomicUsize::new(0));
    let server = one_answer_each(1, requests.clone()).await;
    let prober = prober(server.addr, spec());
    succeeds(&prober).await;
    let result = probe(&prober).await;
    assert_eq!(result.outcome, Outcome::Failure(FailureKind::Reset), "{}", result.detail);
    assert_eq!((server.accepted(), requests.load(Ordering::SeqCst)), (2, 3));
}

#[tokio::test]
async fn a_connection_cut_within_an_answer_is_not_retried() {
    let server = Server::start(|mut stream, _| async move {
        for answer in [OK, "HTTP/1.1 2"] {
            read_request(&mut stream).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    })
    .await;
    let prober = prober(server.addr, spec());
    succeeds(&prober).await;
    let result = probe(&prober).await;
    assert_eq!(result.outcome, Outcome::Failure(FailureKind::Reset), "{}", result.detail);
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_server_that_went_away_is_refused_at_once() {
    let server = Server::answering(OK).await;
    let prober = prober(server.addr, spec());
    succeeds(&prober).await;
    let addr = server.addr;
    drop(server);
    // The runtime drops the listener a moment later.
    while tokio::net::TcpStream::connect(addr).await.is_ok() {}
    let result = probe(&prober).await;
    assert_eq!(result.outcome, Outcome::Failure(FailureKind::Refused), "{}", result.detail);
}

#[tokio::test]
async fn bytes_sent_unasked_spoil_a_connection() {
    let server = Server::start(|mut stream, _| async move {
        while read_request(&mut stream).await.is_some() {
            let _ = stream.write_all(OK.as_bytes()).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            let _ = stream.write_all(b"HTTP/1.1 408 Too slow\r\n\r\n").await;
        }
    })
    .await;
    let prober = prober(server.addr, spec());
    succeeds(&prober).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    succeeds(&prober).await;
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn few_connections_are_kept_of_many() {
    // Answers only when ten requests are there, so that ten connections are open at once.
    let barrier = Arc::new(Barrier::new(10));
    let server = Server::start(move |mut stream, _| {
        let barrier = barrier.clone();
        async move {
            while read_request(&mut stream).await.is_some() {
                barrier.wait().await;
                let _ = stream.write_all(OK.as_bytes()).await;
            }
        }
    })
    .await;
    let prober = Arc::new(prober(server.addr, spec()));
    let mut probes = JoinSet::new();
    for _ in 0..10 {
        let prober = prober.clone();
        probes.spawn(async move { succeeds(&prober).await });
    }
    probes.join_all().await;
    assert_eq!((server.accepted(), prober.idle_connections()), (10, 4));
    until("the others are closed", || server.open() == 4).await;
}

#[tokio::test]
async fn a_probe_given_up_takes_its_connection_along() {
    let server = Server::hanging_after("").await;
    let prober = prober(server.addr, spec());
    let given_up = tokio::time::timeout(Duration::from_millis(50), prober.probe()).await;
    assert!(given_up.is_err());
    assert_eq!(prober.idle_connections(), 0);
    until("the connection is closed", || server.open() == 0).await;
}
