//! Servers that do what a test tells them, byte for byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use plimsoll_model::{FailureKind, Outcome};
use plimsoll_probe::{Probe, ProbeResult, ProbeSpec, Prober};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Longer than any answer on loopback takes, however busy the machine: a test that waits for it fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A server that lives as long as this value.
pub struct Server {
    pub addr: SocketAddr,
    accepted: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Gives every connection to `handler`, with its number from 0.
    pub async fn start<F, Fut>(handler: F) -> Self
    where
        F: Fn(TcpStream, usize) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = listener.local_addr().expect("a bound socket");
        let (accepted, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, opened) = (accepted.clone(), open.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let served = handler(stream, count.fetch_add(1, Ordering::SeqCst));
                let guard = Open::new(opened.clone());
                connections.spawn(async move {
                    served.await;
                    drop(guard);
                });
            }
        });
        Server { addr, accepted, open, _tasks: tasks }
    }

    /// Answers every request with the same bytes.
    pub async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        Server::start(move |mut stream, _| {
            let answer = answer.clone();
            async move {
                while read_request(&mut stream).await.is_some() {
                    if stream.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    /// Answers the first request of every connection with these bytes, and closes.
    pub async fn closing_after(answer: &'static str) -> Self {
        Server::start(move |mut stream, _| async move {
            if read_request(&mut stream).await.is_some() {
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        })
        .await
    }

    /// Answers every request with these bytes, and then stays silent on an open connection.
    pub async fn hanging_after(answer: &'static str) -> Self {
        Server::start(move |mut stream, _| async move {
            if read_request(&mut stream).await.is_some() {
                let _ = stream.write_all(answer.as_bytes()).await;
                wait_for_close(&mut stream).await;
            }
        })
        .await
    }

    /// How many connections were made so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// How many connections are being served.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(count: Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Open(count)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An address without a listener.
pub async fn unused_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    listener.local_addr().expect("a bound socket")
}

/// Reads up to the end of a request's head; `None` when the client has closed.
pub async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut request = Vec::new();
    let mut buf = [0; 2048];
    loop {
        match stream.read(&mut buf).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => request.extend_from_slice(&buf[..read]),
        }
        if request.windows(4).any(|w| w == b"\r\n\r\n") {
            return String::from_utf8(request).ok();
        }
    }
}

/// Returns when the client has closed.
pub async fn wait_for_close(stream: &mut TcpStream) {
    let mut buf = [0; 2048];
    while let Ok(1..) = stream.read(&mut buf).await {}
}

/// Waits until something has become so.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(tokio::time::Instant::now() < end, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A patient spec: what is not about time must not fail on a busy machine.
pub fn spec() -> ProbeSpec {
    ProbeSpec { timeout: PATIENCE, ..ProbeSpec::default() }
}

pub fn prober(addr: SocketAddr, spec: ProbeSpec) -> Prober {
    let probe = Probe::new(spec).expect("a valid spec");
    Prober::new(addr.into(), Arc::new(probe), 4).expect("a valid address")
}

pub async fn probe(prober: &Prober) -> ProbeResult {
    prober.probe().await.expect("this machine can probe")
}

/// Probes once, and demands this failure; returns the result for more questions.
pub async fn fails(addr: SocketAddr, spec: ProbeSpec, kind: FailureKind) -> ProbeResult {
    let prober = prober(addr, spec);
    let result = probe(&prober).await;
    assert_eq!(result.outcome, Outcome::Failure(kind), "{}", result.detail);
    assert!(!result.detail.is_empty(), "a failure says what it is");
    result
}

/// Probes once, and demands success.
pub async fn succeeds(prober: &Prober) -> ProbeResult {
    let result = probe(prober).await;
    assert_eq!(result.outcome, Outcome::Success, "{}", result.detail);
    assert_eq!(result.detail, "");
    result
}
