//! The listener: bounded in connections, and in how long each may dawdle.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;
use tracing::{debug, warn};

use crate::guard::HostGuard;
use crate::hub::Hub;
use crate::routes;

/// Connections served at the same time; more wait to be accepted. A browser opens six.
const MAX_CONNECTIONS: usize = 128;
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
    let connections = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, permit) = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        let service = TowerToHyperService::new(router.clone());
        let mut stream = TimeoutStream::new(stream);
        stream.set_read_timeout(Some(STALL_TIMEOUT));
        stream.set_write_timeout(Some(STALL_TIMEOUT));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(Box::pin(stream)), service);
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "API connection ended early");
            }
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIMEOUT, connections.shutdown()).await.is_err() {
        debug!("some API clients did not take their answers in time");
    }
    Ok(())
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (TcpStream, OwnedSemaphorePermit) {
    loop {
        let Ok(permit) = Arc::clone(slots).acquire_owned().await else {
            // The semaphore is never closed.
            std::future::pending().await
        };
        match listener.accept().await {
            Ok((stream, _)) => return (stream, permit),
            Err(error) => {
                warn!(%error, "the API cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
