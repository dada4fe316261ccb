//! `plimsoll proxy`: the layer-7 data plane.

mod capture;
pub mod config;
mod drain;
mod metrics;
mod reload;
mod run;
mod status;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use plimsoll_proxy::SocketError;
use plimsoll_terminal::{complain, exit};

pub use run::summary;

use crate::daemons::refused;

/// The layer-7 data plane: an HTTP proxy that balances with overload control
#[derive(Debug, Subcommand)]
pub enum ProxyCommand {
    Run(run::RunArgs),
    Status(status::StatusArgs),
    Drain(drain::DrainArgs),
    Reload(reload::ReloadArgs),
    Release(reload::ReleaseArgs),
    #[command(subcommand)]
    Capture(capture::CaptureCommand),
}

/// Runs a subcommand.
pub fn main(command: &ProxyCommand) -> ExitCode {
    match command {
        ProxyCommand::Run(args) => run::run(args),
        ProxyCommand::Status(args) => status::run(args),
        ProxyCommand::Drain(args) => drain::run(args),
        ProxyCommand::Reload(args) => reload::reload(args),
        ProxyCommand::Release(args) => reload::release(args),
        ProxyCommand::Capture(command) => capture::run(command),
    }
}

/// Where a running proxy is asked.
#[derive(Args, Debug)]
struct Asked {
    /// The proxy's configuration, for its proxy.socket
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    config: Option<PathBuf>,
    /// The proxy's socket
    #[arg(long, value_name = "PATH", default_value = plimsoll_proxy::config::SOCKET)]
    socket: PathBuf,
}

impl Asked {
    /// The socket, or what is wrong with the configuration.
    fn socket(&self) -> Result<PathBuf, ExitCode> {
        let Some(file) = &self.config else { return Ok(self.socket.clone()) };
        match config::socket(file) {
            Ok(socket) => socket.ok_or_else(|| {
                let file = file.display();
                plimsoll_terminal::fail(&format!("{file} has no proxy.socket to ask at"))
            }),
            Err(errors) => Err(refused(&errors)),
        }
    }
}

/// Says why a proxy did not do what it was asked.
fn failed(error: &SocketError) -> ExitCode {
    match error {
        SocketError::Refused(why) => plimsoll_terminal::fail(why),
        SocketError::Unreachable { .. } | SocketError::Answer(_) => {
            complain!("plimsoll: {error}");
            ExitCode::from(exit::NO_DAEMON)
        }
    }
}
