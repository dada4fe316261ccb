//! `plimsoll-lab wordpress`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use plimsoll_lanes::{Family, Interrupt};
use plimsoll_terminal::{complain, exit};

use super::{Instances, Site, WordPressError, costs, down, up};
use crate::RealError;
use crate::cgroup::Cgroups;

const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The application of the HAProxy study: WordPress on php-fpm in control groups, and one MariaDB.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Make a site in a directory of its own; nothing runs afterwards. Needs root and Debian's packages
    Up {
        /// A directory that is empty or not there yet.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
    /// Run the site's five instances until interrupted, and print their addresses and the cost of requests
    Serve {
        /// Where `up` has made it.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Quotas in relation to each other.
        #[arg(long, value_enum, default_value_t)]
        pool: Sizes,
        /// Cores of all instances together.
        #[arg(long, value_name = "CORES", default_value_t = 1.2)]
        total: f64,
        /// End after the costs are printed.
        #[arg(long)]
        costs_only: bool,
    },
    /// Remove a site that `up` has made
    Down {
        /// Where it is.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
}

/// The application servers of the study.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Sizes {
    /// Five alike.
    #[default]
    Equal,
    /// 4 : 8 : 16 : 32 : 48, as in Table 4.
    Unequal,
}

impl Sizes {
    fn quotas(self, total: f64) -> Vec<f64> {
        let parts = match self {
            Sizes::Equal => [1.0; 5],
            Sizes::Unequal => [4.0, 8.0, 16.0, 32.0, 48.0],
        };
        let sum: f64 = parts.iter().sum();
        parts.iter().map(|part| part / sum * total).collect()
    }
}

/// Carries it out. Exits 2 when the arguments do not fit, 1 when it cannot be done, 130 when it was interrupted.
pub fn run(args: &Args) -> ExitCode {
    let done = match &args.what {
        What::Up { dir } => up(dir).map(|()| format!("made {}\n", dir.display())),
        What::Down { dir } => down(dir).map(|()| format!("removed {}\n", dir.display())),
        What::Serve { dir, pool, total, costs_only } => {
            if !(total.is_finite() && (0.3..=64.0).contains(total)) {
                complain!("--total: expected 0.3 to 64 cores");
                return ExitCode::from(exit::MALFORMED);
            }
            serve(dir, &pool.quotas(*total), *costs_only).map(|()| String::new())
        }
    };
    match done {
        Ok(said) => say(&said),
        Err(WordPressError::Real(RealError::Interrupted)) => ExitCode::from(exit::INTERRUPTED),
        Err(error) => {
            complain!("wordpress: {error}");
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str) -> ExitCode {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

fn serve(dir: &std::path::Path, quotas: &[f64], costs_only: bool) -> Result<(), WordPressError> {
    let interrupt = Interrupt::listen()?;
    let family = Family::start()?;
    // First: it names everything that is missing, control groups included.
    let site = Site::start(&family, dir)?;
    let cgroups = Cgroups::open().map_err(RealError::from)?;
    let mut instances = Instances::start(&family, &cgroups, &site, quotas, 1, &interrupt)?;
    let mut text = String::new();
    for ((name, address), quota) in instances.addresses().iter().zip(quotas) {
        text += &format!("{name} http://{address}/ {quota:.3} cores\n");
    }
    // The first: where quotas are unequal, the smallest.
    for cost in costs(&instances, 3, &interrupt)?.swap_remove(0) {
        text += &format!("{:<4} {:<34} {:>6.1} ms of CPU\n", cost.method, cost.what, cost.cpu_ms);
    }
    say(&text);
    if costs_only {
        return Ok(());
    }
    loop {
        instances.check()?;
        if interrupt.came() {
            return Err(RealError::Interrupted.into());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
