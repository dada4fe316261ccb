//! What the daemons have in common: arguments, what is said of a wrong configuration, and how one of a single thread
//! is run.

use std::path::PathBuf;
use std::process::ExitCode;

use plimsoll_config::ConfigError;
use plimsoll_terminal::{complain, exit, fail};

use crate::run::log;

/// Arguments of every daemon.
#[derive(clap::Args, Clone, Debug)]
pub struct DaemonArgs {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    #[command(flatten)]
    log: LogArgs,
}

/// How every daemon logs.
#[derive(clap::Args, Clone, Debug)]
pub struct LogArgs {
    /// How to log, to standard error
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub log_format: log::LogFormat,
    /// Log more
    #[arg(short, long)]
    pub verbose: bool,
}

impl LogArgs {
    /// From here on, events are written.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn init(&self) -> std::io::Result<log::Log> {
        log::init(self.log_format, self.verbose)
    }
}

impl DaemonArgs {
    /// Runs a daemon on this thread until it ends. Exits 1 when it cannot start, or with what it failed for.
    pub fn run(&self, daemon: impl Future<Output = Result<(), String>>) -> ExitCode {
        let log = match self.log.init() {
            Ok(log) => log,
            Err(error) => return fail(&format!("cannot start: {error}")),
        };
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return log.fail(&format!("cannot start: {error}")),
        };
        match runtime.block_on(daemon) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => log.fail(&error),
        }
    }
}

/// Says on standard error what is wrong with a configuration, a line each, and returns the exit code for it.
pub fn refused(problems: &[ConfigError]) -> ExitCode {
    problems.iter().for_each(|problem| complain!("{problem}"));
    ExitCode::from(exit::MALFORMED)
}
