//! `plimsoll l4`: the layer-4 data plane.

mod agent;
mod ask;
pub mod config;
mod follow;
mod loads;
mod metrics;
mod release;
mod rotate;
mod routes;
mod run;
mod status;
mod steer;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::daemons::refused;

/// The layer-4 data plane: XDP, no state per connection
#[derive(Debug, Subcommand)]
pub enum L4 {
    Run(run::RunArgs),
    Status(status::StatusArgs),
    Where(ask::WhereArgs),
    Release(release::ReleaseArgs),
    Rotate(rotate::RotateArgs),
    Detach(DetachArgs),
    #[command(subcommand)]
    Agent(agent::AgentCommand),
}

/// Where a balancer is pinned.
#[derive(Args, Debug)]
struct Pinned {
    /// The balancer's configuration, for its l4.pin_dir
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Pinned {
    /// The directory, or what is wrong with the configuration.
    fn dir(&self) -> Result<PathBuf, ExitCode> {
        match &self.config {
            None => Ok(PathBuf::from(plimsoll_l4::PIN_DIR)),
            Some(file) => {
                config::load(file).map(|config| config.pin_dir).map_err(|errors| refused(&errors))
            }
        }
    }
}

/// Take the program off all interfaces, and forget counters and servers
#[derive(Args, Debug)]
pub struct DetachArgs {
    #[command(flatten)]
    pinned: Pinned,
}

/// Runs a subcommand.
pub fn main(command: &L4) -> ExitCode {
    match command {
        L4::Run(args) => run::run(args),
        L4::Status(args) => status::run(args),
        L4::Where(args) => ask::run(args),
        L4::Release(args) => release::run(args),
        L4::Rotate(args) => rotate::run(args),
        L4::Agent(command) => agent::main(command),
        L4::Detach(args) => match args.pinned.dir() {
            Ok(dir) => done(plimsoll_l4::detach(&dir).map_err(|error| error.to_string())),
            Err(code) => code,
        },
    }
}

fn done(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => plimsoll_terminal::fail(&error),
    }
}
