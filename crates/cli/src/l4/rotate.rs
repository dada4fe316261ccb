//! `plimsoll l4 rotate`: has a new salt take over, by hand.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use plimsoll_l4::{Keys, L4Config};

use super::config;
use crate::daemons::refused;
use crate::run::record::unix_ms;

/// Within less, no balancer takes up the file in time.
const SOONEST_S: u64 = 5;

/// Have a new salt take over: write it into the key file, and when
#[derive(clap::Args, Debug)]
pub struct RotateArgs {
    /// The balancer's configuration, for its l4.cookie.key_file and l4.pin_dir
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// When it takes over, in seconds from now: as long as the file takes to all balancers and agents
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(SOONEST_S..))]
    after: u64,
    /// Another salt than the one that the file has ready, which somebody may have read
    #[arg(long)]
    fresh: bool,
}

/// Writes the key file; the daemon takes it up.
pub fn run(args: &RotateArgs) -> ExitCode {
    let config = match config::load(&args.config) {
        Ok(config) => config,
        Err(errors) => return refused(&errors),
    };
    match rotate(&config, Duration::from_secs(args.after), args.fresh) {
        Ok(()) => {
            let file = config.cookie.key_file.display();
            let after = args.after;
            plimsoll_terminal::answer(&format!(
                "{file}: the salt takes over in {after} s; copy the file to all other balancers and agents before\n"
            ))
        }
        Err(problem) => plimsoll_terminal::fail(&problem),
    }
}

fn rotate(config: &L4Config, after: Duration, fresh: bool) -> Result<(), String> {
    let (file, layout) = (&config.cookie.key_file, config.cookie.layout);
    let keys = Keys::load(file).map_err(|problem| problem.to_string())?;
    let keys = keys.ok_or_else(|| {
        format!("{}: not there; expected the keys of a balancer that runs", file.display())
    })?;
    let now = unix_ms(SystemTime::now());
    plimsoll_l4::rotate(&config.pin_dir, layout, &keys, now, after, fresh)
        .and_then(|keys| keys.save(file))
        .map_err(|problem| problem.to_string())
}
