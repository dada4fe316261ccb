//! However a probe ends, its server reads an end and no reset.

use std::io;
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
