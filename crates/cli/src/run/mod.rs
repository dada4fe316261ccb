//! `plimsoll run`: the daemon.
//!
//! One task per service drives its controller (`service`), another, of `plimsoll_sink`, holds the connection to its
//! balancer. A thread writes the store (`keeper`), and one task waits for signals, follows the
//! configuration file and starts, changes and ends services (`daemon`).

mod daemon;
pub mod descriptors;
pub mod file;
mod keeper;
pub mod log;
pub mod record;
mod rounds;
mod samples;
mod service;
mod supervise;
pub mod translate;

use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;

use plimsoll_terminal::exit;

use crate::config;
use crate::daemons::{DaemonArgs, refused};

/// Threads of the runtime: one may be at a controller's step, of 10 ms at the most, while the other
/// keeps connections and timers going.
const WORKERS: usize = 2;

/// Steer the services of a configuration
#[derive(clap::Args, Clone, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub daemon: DaemonArgs,
    /// Program nothing; say what would be
    #[arg(long)]
    pub observe: bool,
    /// What chance does: the same seed gives the same probe phases [default: of the system]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Steers until SIGTERM or SIGINT, and exits 0 then; 1 when it cannot start, 2 when the configuration
/// is wrong.
pub fn run(args: &RunArgs) -> ExitCode {
    let config = match config::load(&args.daemon.config) {
        Ok(config) => config,
        Err(problems) => return refused(&problems),
    };
    let log = match log::init(args.daemon.log_format, args.daemon.verbose) {
        Ok(log) => log,
        Err(error) => return plimsoll_terminal::fail(&format!("cannot start: {error}")),
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            return log.fail(&format!("cannot start: {error}"));
        }
    };
    let options = daemon::Options {
        file: args.daemon.config.clone(),
        observe: args.observe,
        seed: args.seed.unwrap_or_else(|| RandomState::new().hash_one("seed")),
    };
    match runtime.block_on(daemon::run(options, config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(daemon::StartError::Config(lines)) => {
            lines.lines().for_each(|line| log.complain(line));
            ExitCode::from(exit::MALFORMED)
        }
        Err(error) => log.fail(&error.to_string()),
    }
}
