//! `plimsoll proxy drain`: takes a backend out of a running proxy, and back in.

use std::process::ExitCode;

use super::{Asked, failed};

/// Send a backend no more requests; those under way are finished. Until the proxy is restarted
#[derive(clap::Args, Debug)]
pub struct DrainArgs {
    #[command(flatten)]
    asked: Asked,
    /// The backend
    #[arg(value_name = "NAME")]
    backend: String,
    /// Its pool, where several have a backend of this name
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Give it its configured weight back
    #[arg(long)]
    undo: bool,
}

/// Asks.
pub fn run(args: &DrainArgs) -> ExitCode {
    let socket = match args.asked.socket() {
        Ok(socket) => socket,
        Err(code) => return code,
    };
    match plimsoll_proxy::drain(&socket, &args.backend, args.pool.as_deref(), args.undo) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}
