//! `plimsoll run`: the daemon.
//!
//! One task per service drives its controller (`service`), another holds the connection to its balancer: one
//! per HAProxy for all services behind it (`haproxy_task`, found by `balancers`), one per service at layer 4
//! (`l4_task`). A thread writes the store (`keeper`), and one task waits for signals, follows the
//! configuration file and starts, changes and ends services (`daemon`).

mod balancers;
mod daemon;
pub mod descriptors;
pub mod file;
mod haproxy_task;
mod keeper;
mod l4_task;
pub mod log;
pub mod record;
mod rounds;
mod samples;
mod service;
pub mod sink;
mod sink_task;
mod supervise;
pub mod translate;

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use plimsoll_terminal::complain;

use crate::config::{self, Config, ConfigError, Position};

/// Exit code for a configuration that is wrong.
const BAD_CONFIG: u8 = 2;
/// Threads of the runtime: one may be at a controller's step, of 10 ms at the most, while the other
/// keeps connections and timers going.
const WORKERS: usize = 2;

/// Steer the services of a configuration
#[derive(clap::Args, Clone, Debug)]
pub struct RunArgs {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Program nothing; say what would be
    #[arg(long)]
    pub observe: bool,
    /// How to log, to standard error
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub log_format: log::LogFormat,
    /// Log more
    #[arg(short, long)]
    pub verbose: bool,
    /// What chance does: the same seed gives the same probe phases [default: of the system]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Reads a configuration, and checks that every part can be told what it says.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(file: &Path) -> Result<Config, Vec<ConfigError>> {
    let config = config::load(file)?;
    let services = config.services.iter().enumerate();
    let problems: Vec<ConfigError> = services
        .filter_map(|(i, service)| Some(problem(file, i, &translate::check(service).err()?)))
        .collect();
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

/// What a part refuses, as a problem of the file. The parts do not know places.
fn problem(file: &Path, service: usize, error: &translate::Unusable) -> ConfigError {
    let key = format!("services[{service}].{}", error.key);
    let Position { line, column } = config::place(file, &key);
    let message = error.message.clone();
    ConfigError { file: file.display().to_string(), line, column, key, message }
}

/// Steers until SIGTERM or SIGINT, and exits 0 then; 1 when it cannot start, 2 when the configuration
/// is wrong.
pub fn run(args: &RunArgs) -> ExitCode {
    let config = match load(&args.config) {
        Ok(config) => config,
        Err(problems) => {
            problems.iter().for_each(|problem| complain!("{problem}"));
            return ExitCode::from(BAD_CONFIG);
        }
    };
    let log = match log::init(args.log_format, args.verbose) {
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
        file: args.config.clone(),
        observe: args.observe,
        seed: args.seed.unwrap_or_else(|| RandomState::new().hash_one("seed")),
    };
    match runtime.block_on(daemon::run(options, config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(daemon::StartError::Config(lines)) => {
            lines.lines().for_each(|line| log.complain(line));
            ExitCode::from(BAD_CONFIG)
        }
        Err(error) => log.fail(&error.to_string()),
    }
}
