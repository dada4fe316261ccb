//! `plimsoll proxy run`: serves until SIGTERM or SIGINT, then lets requests finish.

use std::process::ExitCode;

use plimsoll_proxy::{Proxy, ProxyConfig, Socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use super::{config, metrics};
use crate::check::count;
use crate::daemons::{DaemonArgs, refused};

/// Proxy the requests of a configuration's entries
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
        let proxy = serve(&config).await?;
        info!("ending; requests under way have {:?} to finish", config.drain);
        proxy.stop(config.drain);
        Ok(())
    })
}

/// What a section holds, in words.
pub fn summary(config: &ProxyConfig) -> String {
    let backends = config.pools.iter().map(|pool| pool.backends.len()).sum();
    format!(
        "proxy: {} ingress, {} egress, {}, {}",
        config.ingress.len(),
        config.egress.len(),
        count(config.pools.len(), "pool"),
        count(backends, "backend")
    )
}

/// Each request takes two sockets: the soft limit of open files becomes the hard one.
fn raise_limit_of_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        warn!("cannot raise the limit of open files: {error}");
    }
}

/// Serves until a signal comes.
async fn serve(config: &ProxyConfig) -> Result<Proxy, String> {
    let of = |kind| signal(kind).map_err(|error| format!("cannot take signals: {error}"));
    let (mut term, mut int) = (of(SignalKind::terminate())?, of(SignalKind::interrupt())?);
    let mut hup = of(SignalKind::hangup())?;
    raise_limit_of_files();
    // Before anything listens: a start that is refused has taken no request.
    let socket = match &config.socket {
        Some(path) => Some(Socket::bind(path).map_err(|error| {
            format!("proxy.socket: cannot listen on {}: {error}", path.display())
        })?),
        None => None,
    };
    let scraped = match config.metrics {
        Some(listen) => Some(metrics::bind(listen).await?),
        None => None,
    };
    let proxy = Proxy::start(config).map_err(|error| error.to_string())?;
    for (entry, address) in proxy.addresses() {
        info!(entry, %address, "listening");
    }
    let handle = proxy.handle();
    let asked = async {
        match &socket {
            Some(socket) => socket.serve(&handle).await,
            None => std::future::pending().await,
        }
    };
    let scraped = async {
        match scraped {
            Some(listener) => metrics::serve(listener, proxy.handle()).await,
            None => std::future::pending().await,
        }
    };
    let reloads = async {
        while hup.recv().await.is_some() {
            warn!(
                "the proxy does not reload its configuration: the one in force stays until it is restarted"
            );
        }
    };
    tokio::select! {
        () = asked => {}
        () = reloads => {}
        ended = scraped => ended?,
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(proxy)
}
