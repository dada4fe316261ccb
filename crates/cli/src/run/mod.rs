//! `plimsoll run`: the daemon.
//!
//! One task per service drives its controller (`service`), another, of `plimsoll_sink`, holds the connection to its
//! balancer. A thread writes the store (`keeper`), and one task waits for signals, follows the
//! configuration file and starts, changes and ends services (`daemon`).

mod daemon;
pub mod descriptors;
pub mod file;
mod keeper;
mod leaving;
pub mod log;
pub mod looker;
mod pace;
pub mod record;
mod rounds;
mod service;
mod supervise;
pub mod translate;

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgGroup;
use plimsoll_config::ConfigError;
use plimsoll_terminal::exit;

use crate::config::{self, defaults};
use crate::daemons::{LogArgs, refused};
use crate::place::{self, OnlyArgs, PlaceArgs};
use looker::{Base, Everything};

/// Threads of the runtime: one may be at a controller's step, of 10 ms at the most, while the other
/// keeps connections and timers going.
const WORKERS: usize = 2;
/// For what the daemon has begun and needs no more.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Steer the services of a configuration
#[derive(clap::Args, Clone, Debug)]
#[command(group = ArgGroup::new("what").required(true).arg("config").args(place::FLAGS))]
pub struct RunArgs {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub only: OnlyArgs,
    /// Without a configuration: where to keep what was learned
    #[arg(long, value_name = "FILE", requires = "balancer", default_value = defaults::STORE_PATH)]
    pub store: PathBuf,
    /// Without a configuration: where to answer questions; an address of this host alone
    #[arg(long, value_name = "ADDRESS", requires = "balancer", default_value_t = defaults::API_LISTEN, value_parser = loopback)]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub log: LogArgs,
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
    let base = match base(args) {
        Ok(base) => base,
        Err(problems) => return refused(&problems),
    };
    let log = match args.log.init() {
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
    let ended = runtime.block_on(daemon::run(options, base));
    // A look-up of a name that hangs would be waited for.
    runtime.shutdown_timeout(LAST_WAIT);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(daemon::StartError::Config(lines)) => {
            lines.lines().for_each(|line| log.complain(line));
            ExitCode::from(exit::MALFORMED)
        }
        Err(error) => log.fail(&error.to_string()),
    }
}

fn base(args: &RunArgs) -> Result<Base, Vec<ConfigError>> {
    match (&args.config, args.place.sink()) {
        (Some(file), _) => config::load(file).map(Base::File),
        (None, Some(sink)) => Ok(Base::Balancer(Everything {
            sink,
            only: args.only.backend.clone(),
            store: config::Store { path: args.store.clone() },
            api: config::Api { listen: args.listen, allow_remote: false },
        })),
        // The arguments require one of them.
        (None, None) => Err(Vec::new()),
    }
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| "an IP address and a port, such as 127.0.0.1:7400".to_owned())?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(
            "not a loopback address: others reach the API only by a configuration that allows it \
                      (`plimsoll init` writes one)"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        run: RunArgs,
    }

    #[test]
    fn every_balancer_stands_in_the_place_of_a_file() {
        let command = PlaceArgs::augment_args(clap::Command::new("place"));
        let flags: Vec<String> = command
            .get_arguments()
            .filter_map(|arg| arg.get_long().map(|name| format!("--{name}")))
            .collect();
        assert_eq!(flags, place::FLAGS.map(|name| format!("--{name}")));
        Cli::command().debug_assert();
        let parse = |args: &[&str]| Cli::try_parse_from([&["run"], args].concat());
        for flag in &flags {
            let read = parse(&[flag, "/run/x.sock"]).unwrap_or_else(|e| panic!("{flag}: {e}"));
            assert!(base(&read.run).is_ok(), "{flag}");
            assert!(parse(&[flag, "/run/x.sock", "--config", "F"]).is_err(), "{flag} and a file");
        }
        assert!(parse(&[&flags[0], "/x", &flags[1], "/x"]).is_err(), "two balancers");
        assert!(parse(&[]).is_err(), "none");
    }
}
