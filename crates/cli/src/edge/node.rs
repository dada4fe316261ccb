//! `plimsoll edge node`: a datapath node.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Subcommand;
use plimsoll_edge::Node;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use super::config;
use crate::daemons::{DaemonArgs, refused};

/// A datapath node: runs services on its cores
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    Run(RunArgs),
}

/// Run the services of a node; its namespaces, and the state in them, end with it
#[derive(clap::Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
    /// Which of edge.nodes this machine is
    #[arg(long, value_name = "NAME")]
    name: String,
}

/// Runs a subcommand.
pub fn main(command: &NodeCommand) -> ExitCode {
    let NodeCommand::Run(args) = command;
    let config = match config::load(&args.daemon.config) {
        Ok(config) => config,
        Err(errors) => return refused(&errors),
    };
    args.daemon.run(async {
        let of = |kind| signal(kind).map_err(|error| format!("cannot take signals: {error}"));
        let (mut term, mut int) = (of(SignalKind::terminate())?, of(SignalKind::interrupt())?);
        let mut node = Node::start(&config, &args.name).map_err(|error| error.to_string())?;
        for namespace in node.namespaces() {
            info!(namespace, "made");
        }
        info!("waits for a forwarder");
        let stop = Arc::new(AtomicBool::new(false));
        let of = stop.clone();
        let answering = std::thread::spawn(move || node.run(&of));
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        stop.store(true, Ordering::Relaxed);
        answering.join().map_err(|_| "the node's thread panicked".to_owned())
    })
}
