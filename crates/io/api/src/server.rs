//! The listener: bounded in connections, and in how long each may dawdle.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt;
use tracing::{debug, warn};

use crate::guard::HostGuard;
use crate::hub::Hub;
use crate::idle::{Connection, Connections};
use crate::routes;

/// Connections served at the same time; more wait until one of these ends. A browser opens six.
const MAX_CONNECTIONS: usize = 128;
/// When so few more may be served, every new connection ends the one that has been idle for longest: who
/// keeps many connections and asks nothing locks no other client out.
const RESERVE: usize = 16;
/// A request's head may be this long, bytes; hyper allows no less than 8 KiB.
const MAX_HEAD: usize = 16 << 10;
/// A request's head must be complete this long after the answer before it, or after the connection
/// was made: longer than the usual 15 s between two scrapes, so that those keep their connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// A connection that cannot be read from or written to for this long, while it should be, is closed:
/// a client that asks and does not read.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long answers under way may take once we are to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a failed accept: the cause (no file descriptors left, say) does not go away at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers from the hub until `shutdown` completes, then lets answers under way finish for up to 2 s.
///
/// # Errors
/// Fails only when the listener has no address; a failing connection is not our failure.
pub async fn serve(
    listener: TcpListener,
    hub: Hub,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    serve_routes(listener, routes::of_hub(hub), shutdown).await
}

/// The same with these paths; what is at no path, or asked otherwise than to read, is refused.
///
/// # Errors
/// As [`serve`].
pub async fn serve_routes(
    listener: TcpListener,
    paths: Router,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let router = routes::guarded(paths, HostGuard::new(listener.local_addr()?));
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let idle = Connections::default();
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let next = async {
            let stream = accept(&listener).await;
            if slots.available_permits() < RESERVE {
                idle.end_oldest();
            }
            (stream, slots.clone().acquire_owned().await)
        };
        let (stream, slot) = tokio::select! {
            () = &mut shutdown => break,
            next = next => next,
        };
        let (connection, ended) = idle.add();
        let served = graceful.watch(serve_connection(stream, router.clone(), connection));
        tokio::spawn(async move {
            tokio::select! {
                done = served => if let Err(error) = done {
                    debug!(%error, "API connection ended early");
                },
                Ok(()) = ended => debug!("an idle API connection gave way to another"),
            }
            drop(slot);
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        debug!("some API clients did not take their answers in time");
    }
    Ok(())
}

/// Answers one connection's requests. It is idle but for the time from a request's head to the end of its
/// answer.
fn serve_connection(
    stream: TcpStream,
    router: Router,
    connection: Connection,
) -> impl GracefulConnection<Error = hyper::Error> {
    let service = service_fn(move |request: Request<Incoming>| {
        let busy = connection.busy();
        let answer = router.clone().oneshot(request.map(Body::new));
        async move { answer.await.map(|answer| answer.map(|body| busy.until_sent(body))) }
    });
    let mut stream = TimeoutStream::new(stream);
    stream.set_read_timeout(Some(STALL_TIMEOUT));
    stream.set_write_timeout(Some(STALL_TIMEOUT));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(Box::pin(stream)), service)
}

/// The next connection.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                warn!(%error, "the API cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
