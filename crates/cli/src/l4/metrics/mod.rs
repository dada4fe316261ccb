//! The balancer's metrics over HTTP (`l4.metrics.listen`). All of it is read from the pinned maps when
//! a client asks, by a thread of its own: neither the daemon nor the kernel's program waits for a scrape.

mod page;

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router, middleware};
use plimsoll_api::{ApiError, Page, no_query, serve_routes};
use plimsoll_l4::{Status, status};
use serde::Deserialize;
use tokio::sync::oneshot;
use tracing::{error, info};

use crate::client::http::Client;
use crate::client::reachable;
use crate::run::record::unix_ms;

/// A daemon that is to end by what it reads from the kernel, once a second, has ended by then.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// Serves them where the configuration says, as soon as that can be.
pub struct Metrics {
    balancer: Arc<Balancer>,
    wanted: Option<SocketAddr>,
    server: Option<Server>,
    /// Why it does not listen at the configured address, as last logged.
    said: String,
}

impl Metrics {
    /// Serves the metrics of what is pinned in a directory from now on, or from when the daemon before, which
    /// listens there yet, has ended.
    ///
    /// # Errors
    /// In words, when it cannot listen there.
    pub fn start(wanted: Option<SocketAddr>, dir: PathBuf) -> Result<Self, String> {
        let started_unix_ms = unix_ms(SystemTime::now()) as i64;
        let balancer = Arc::new(Balancer { dir, started_unix_ms });
        let mut metrics = Metrics { balancer, wanted, server: None, said: String::new() };
        let began = Instant::now();
        while let Err((listen, error)) = metrics.follow() {
            metrics.said = problem(listen, &error);
            if error.kind() != ErrorKind::AddrInUse {
                return Err(metrics.said);
            }
            if is_of(listen, &metrics.balancer.dir) {
                info!("l4.metrics.listen: {listen} is left by the daemon before when that ends");
                break;
            }
            // One that has just been detached needs a moment to end.
            if began.elapsed() > ENDS_WITHIN {
                return Err(metrics.said);
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(metrics)
    }

    /// Serves them there from now on. Where that cannot be, as they are served now stays.
    pub fn aim(&mut self, wanted: Option<SocketAddr>) {
        if wanted != self.wanted {
            self.wanted = wanted;
            self.said.clear();
        }
        self.look();
    }

    /// Tries again what could not be yet.
    pub fn look(&mut self) {
        if let Err((listen, error)) = self.follow() {
            let problem = problem(listen, &error);
            if problem != self.said {
                error!("{problem}; tried again until it works");
                self.said = problem;
            }
        }
    }

    fn follow(&mut self) -> Result<(), (SocketAddr, io::Error)> {
        let Some(listen) = self.wanted else {
            self.server = None;
            return Ok(());
        };
        if self.server.as_ref().is_none_or(|server| server.listen != listen) {
            // The port is our own: at another address of it no other process can listen before this one has ended.
            self.server.take_if(|server| server.listen.port() == listen.port());
            let server = Server::start(listen, self.balancer.clone());
            self.server = Some(server.map_err(|error| (listen, error))?);
            info!("metrics at http://{listen}/metrics");
        }
        Ok(())
    }
}

fn problem(listen: SocketAddr, error: &io::Error) -> String {
    format!("l4.metrics.listen: cannot listen on {listen}: {error}")
}

/// Whether the daemon that listens there is of the balancer that is pinned in this directory.
fn is_of(listen: SocketAddr, dir: &Path) -> bool {
    #[derive(Deserialize)]
    struct Other {
        pinned: PathBuf,
    }
    let client = Client::new(&format!("http://{}", reachable(listen)));
    client.get::<Other>("/v1/status").is_ok_and(|other| other.pinned == dir)
}

/// A listener and its thread, until it is dropped.
struct Server {
    listen: SocketAddr,
    /// Ends the thread by its own end.
    _end: oneshot::Sender<()>,
}

impl Server {
    fn start(listen: SocketAddr, balancer: Arc<Balancer>) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel();
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            // Nothing is ever sent: the sender's end is what is waited for.
            serve_routes(listener, routes(balancer), async { drop(ended.await) }).await
        };
        let body = move || {
            if let Err(error) = runtime.block_on(serve) {
                error!("l4.metrics.listen: {error}");
            }
        };
        thread::Builder::new().name("metrics".to_owned()).spawn(body)?;
        Ok(Server { listen, _end: end })
    }
}

/// Whose metrics they are.
struct Balancer {
    /// Where it is pinned.
    dir: PathBuf,
    /// When this daemon was started.
    started_unix_ms: i64,
}

fn routes(balancer: Arc<Balancer>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/v1/status", get(now))
        .layer(middleware::from_fn(no_query))
        .with_state(balancer)
}

async fn metrics(State(balancer): State<Arc<Balancer>>) -> Result<Page, ApiError> {
    let status = read(&balancer.dir)?;
    Ok(page::render(&status, balancer.started_unix_ms))
}

async fn now(State(balancer): State<Arc<Balancer>>) -> Result<Json<Status>, ApiError> {
    read(&balancer.dir).map(Json)
}

/// Takes milliseconds, and the thread with it: only those that ask at the same time wait.
fn read(dir: &Path) -> Result<Status, ApiError> {
    status(dir).map_err(|error| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))
}
