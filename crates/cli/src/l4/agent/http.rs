//! How busy this server is, over HTTP: `GET /v1/load` for balancers with `policy: awrr`, and for people
//! with curl. Balancers ask, so that the agent need not know them, and a firewall says who may.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use plimsoll_l4::{CpuLoad, CpuMeter};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::warn;

use crate::run::record::unix_ms;

/// Load is that of the last whole window.
const WINDOW: Duration = Duration::from_secs(1);

type Latest = watch::Receiver<Option<CpuLoad>>;

/// Listens, and measures from then on.
///
/// # Errors
/// In words, when the address cannot be listened on or the load cannot be read.
pub async fn start(listen: SocketAddr) -> Result<(), String> {
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|error| format!("l4.agent.listen: cannot listen on {listen}: {error}"))?;
    let meter = CpuMeter::new().map_err(|error| error.to_string())?;
    let (send, latest) = watch::channel(None);
    tokio::spawn(measure(meter, send));
    let router = Router::new().route("/v1/load", get(load)).with_state(Arc::new(latest));
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            warn!("l4.agent.listen: {error}");
        }
    });
    Ok(())
}

async fn load(State(latest): State<Arc<Latest>>) -> Result<Json<CpuLoad>, StatusCode> {
    let now = *latest.borrow();
    // Before the first window there is nothing to tell.
    now.map(Json).ok_or(StatusCode::SERVICE_UNAVAILABLE)
}

async fn measure(mut meter: CpuMeter, send: watch::Sender<Option<CpuLoad>>) {
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(WINDOW).await;
        let window_ms = last.elapsed().as_millis() as u64;
        last = Instant::now();
        match meter.look(window_ms, unix_ms(SystemTime::now())) {
            Ok(None) => {}
            Ok(load) => drop(send.send_replace(load)),
            Err(error) => {
                warn!("{error}");
                send.send_replace(None);
            }
        }
    }
}
