//! `plimsoll edge run`: the forwarder. Packets go on as they did when it ends: a start, or another version, goes on
//! from there.

use std::process::ExitCode;

use plimsoll_edge::config::EdgeConfig;
use plimsoll_edge::{Forwarder, Handle};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use super::{config, metrics};
use crate::check::count;
use crate::daemons::{DaemonArgs, refused};

/// Steer flows to the nodes of a configuration; when it ends, packets go on as they did
#[derive(clap::Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// Runs until SIGTERM or SIGINT. Exits 1 when it cannot start, 2 when the configuration is wrong.
pub fn run(args: &RunArgs) -> ExitCode {
    let config = match config::load(&args.daemon.config) {
        Ok(config) => config,
        Err(errors) => return refused(&errors),
    };
    args.daemon.run(async {
        let handle = serve(&config).await?;
        info!("ending; flows stay where they are, new ones go by the last weights");
        handle.stop();
        Ok(())
    })
}

/// What a section holds, in words.
pub fn summary(config: &EdgeConfig) -> String {
    format!(
        "edge: {}, {}",
        count(config.services.len(), "service"),
        count(config.nodes.len(), "node")
    )
}

async fn serve(config: &EdgeConfig) -> Result<Handle, String> {
    let of = |kind| signal(kind).map_err(|error| format!("cannot take signals: {error}"));
    let (mut term, mut int) = (of(SignalKind::terminate())?, of(SignalKind::interrupt())?);
    let mut hup = of(SignalKind::hangup())?;
    let scraped = match config.metrics {
        Some(listen) => Some(metrics::bind(listen).await?),
        None => None,
    };
    let forwarder = Forwarder::start(config).map_err(|error| error.to_string())?;
    let handle = forwarder.spawn().map_err(|error| error.to_string())?;
    info!(socket = %config.socket.display(), "steering");
    let scraped = async {
        match scraped {
            Some(listener) => metrics::serve(listener, handle.watch()).await,
            None => std::future::pending().await,
        }
    };
    let reloads = async {
        while hup.recv().await.is_some() {
            warn!(
                "the forwarder reads its configuration when it starts: restart it, no flow is lost"
            );
        }
    };
    tokio::select! {
        () = reloads => {}
        ended = scraped => ended?,
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(handle)
}
