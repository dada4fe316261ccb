//! However a probe ends, its server reads an end and no reset.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use plimsoll_model::{FailureKind, Outcome};
use plimsoll_probe::{ProbeSpec, Scheme, TlsSpec};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::server::{PATIENCE, Server, probe, prober, spec};

/// Answers a request in these pieces, a moment before each; then waits for the client's end.
async fn answers(stream: &mut tokio::net::TcpStream, pieces: &[&str]) -> io::Result<()> {
    let mut request = [0; 4096];
    let _some_of_it = stream.read(&mut request).await?;
    for piece in pieces {
        sleep(Duration::from_millis(100)).await;
        stream.write_all(piece.as_bytes()).await?;
    }
    while stream.read(&mut request).await? > 0 {}
    Ok(())
}

/// How one probe of a server that answers so ends, for the prober and for the server.
async fn ends(spec: ProbeSpec, pieces: &'static [&'static str]) -> (Outcome, io::Result<()>) {
    let (sender, mut ends) = mpsc::unbounded_channel();
    let server = Server::start(move |mut stream, _| {
        let sender = sender.clone();
        async move {
            let _ = sender.send(answers(&mut stream, pieces).await);
        }
    })
    .await;
    let prober = prober(server.addr, spec);
    let outcome = probe(&prober).await.outcome;
    drop(prober);
    let end = timeout(PATIENCE, ends.recv()).await.expect("an end in time");
    (outcome, end.expect("the server lives"))
}

#[tokio::test]
async fn the_body_of_an_unexpected_status_is_taken() {
    let pieces = &["HTTP/1.0 404 No\r\nContent-Length: 6\r\n\r\n", "not ", "it"];
    let (outcome, end) = ends(spec(), pieces).await;
    assert_eq!(outcome, Outcome::Failure(FailureKind::Status));
    end.expect("no reset");
}

#[tokio::test]
async fn an_answer_after_the_time_out_is_taken() {
    let hasty = || ProbeSpec { timeout: Duration::from_millis(20), ..spec() };
    let pieces = &["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", "la", "te"];
    let tls = TlsSpec { insecure: true, ..TlsSpec::default() };
    let secure = ProbeSpec { scheme: Scheme::Https, tls: Some(tls), ..hasty() };
    for spec in [hasty(), secure] {
        let (outcome, end) = ends(spec, pieces).await;
        assert_eq!(outcome, Outcome::Failure(FailureKind::Timeout));
        end.expect("no reset");
    }
}

#[tokio::test]
async fn the_rest_of_an_answer_that_is_too_long_is_taken() {
    let pieces = &["HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", "0123456789abcdef", "more"];
    let (outcome, end) = ends(ProbeSpec { max_body: 10, ..spec() }, pieces).await;
    assert_eq!(outcome, Outcome::Failure(FailureKind::Body));
    end.expect("no reset");
}

#[tokio::test]
async fn a_connection_that_is_kept_ends_in_order_with_its_prober() {
    let pieces = &["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"];
    let (outcome, end) = ends(spec(), pieces).await;
    assert_eq!(outcome, Outcome::Success);
    end.expect("no reset");
}

#[tokio::test]
async fn a_server_that_hung_finds_no_reset_however_many_checks_it_missed() {
    let (sender, mut ends) = mpsc::unbounded_channel();
    let (resume, resumed) = tokio::sync::watch::channel(false);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let server = Server::start(move |mut stream, _| {
        let (sender, mut resumed, count) = (sender.clone(), resumed.clone(), count.clone());
        async move {
            let mut request = [0; 4096];
            let read = stream.read(&mut request).await;
            if matches!(read, Ok(1..)) {
                count.fetch_add(1, Ordering::SeqCst);
            }
            let _ = resumed.wait_for(|resumed| *resumed).await;
            let end = match read {
                Ok(1..) => answers_late(&mut stream).await,
                other => other.map(drop),
            };
            let _ = sender.send(end);
        }
    })
    .await;
    let hasty = ProbeSpec { timeout: Duration::from_millis(20), ..spec() };
    let prober = prober(server.addr, hasty);
    for _ in 0..20 {
        let outcome = probe(&prober).await.outcome;
        assert_eq!(outcome, Outcome::Failure(FailureKind::Timeout));
    }
    let asked = asked.load(Ordering::SeqCst);
    assert!((1..=5).contains(&asked), "{asked} requests are enough to know");
    resume.send(true).expect("the server lives");
    for _ in 0..20 {
        let end = timeout(PATIENCE, ends.recv()).await.expect("an end in time");
        end.expect("the server lives").expect("no reset");
    }
    // What it owed is answered: it is asked again.
    let patient = timeout(PATIENCE, async {
        while probe(&prober).await.outcome != Outcome::Success {
            sleep(Duration::from_millis(5)).await;
        }
    });
    patient.await.expect("it answers");
}

/// Answers a request that was read, in two pieces, and waits for the client's end.
async fn answers_late(stream: &mut tokio::net::TcpStream) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n").await?;
    sleep(Duration::from_millis(1)).await;
    stream.write_all(b"ok").await?;
    let mut rest = [0; 64];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}
