//! `plimsoll proxy run`: serves until SIGTERM or SIGINT, then lets requests finish.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use plimsoll_proxy::{Handle, Proxy, ProxyConfig, Socket};
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
        let (proxy, drain) = serve(&args.daemon.config, &config).await?;
        info!("ending; requests under way have {drain:?} to finish");
        proxy.stop(drain);
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

/// Reads the configuration again and takes it up; says all that is wrong with it, and then nothing has changed.
fn reload(file: &Path, proxy: &Handle) -> Result<(), String> {
    let taken_up = config::load(file)
        .map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            errors.join("\n")
        })
        .and_then(|config| {
            proxy.reload(&config).map_err(|error| format!("{}: {error}", file.display()))?;
            Ok(summary(&config))
        });
    match taken_up {
        Ok(summary) => {
            info!("reloaded: {summary}");
            for (entry, address) in proxy.addresses() {
                info!(entry, %address, "listening");
            }
            Ok(())
        }
        Err(why) => {
            for line in why.lines() {
                warn!("{line}");
            }
            warn!("the configuration in force stays");
            Err(why)
        }
    }
}

/// Serves until a signal comes; how long requests have to finish then.
async fn serve(file: &Path, config: &ProxyConfig) -> Result<(Proxy, Duration), String> {
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
    let again = {
        let (file, handle) = (file.to_owned(), handle.clone());
        move || reload(&file, &handle)
    };
    let asked = async {
        match &socket {
            Some(socket) => socket.serve(&handle, again.clone()).await,
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
        // One may have come before this daemon took them.
        let mut has_come = crate::hangup::came();
        while has_come || hup.recv().await.is_some() {
            has_come = false;
            // What is wrong has been said.
            let _ = again();
        }
    };
    tokio::select! {
        () = asked => {}
        () = reloads => {}
        ended = scraped => ended?,
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    let drain = handle.drain_time();
    Ok((proxy, drain))
}
