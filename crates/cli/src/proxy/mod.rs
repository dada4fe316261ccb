//! `plimsoll proxy`: the layer-7 data plane.

pub mod config;
mod metrics;
mod run;
mod status;

use std::process::ExitCode;

use clap::Subcommand;

pub use run::summary;

/// The layer-7 data plane: an HTTP proxy that balances with overload control
#[derive(Debug, Subcommand)]
pub enum ProxyCommand {
    Run(run::RunArgs),
    Status(status::StatusArgs),
}

/// Runs a subcommand.
pub fn main(command: &ProxyCommand) -> ExitCode {
    match command {
        ProxyCommand::Run(args) => run::run(args),
        ProxyCommand::Status(args) => status::run(args),
    }
}
