//! The `plimsoll-lab` binary: what tries Plimsoll out on one machine, and what the product itself must not
//! hold, such as emulated backends, generators of load and of attacks, and simulations. Every command has a
//! module of its own, or a crate; here is only the choice between them.

// They panic where nobody can read what they print; `plimsoll_terminal` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod backends;
mod demo;
mod demo_edge;
mod demo_l4;
mod load;
mod papers;
mod peers;
mod pool;
mod shown;
mod soak;
mod stop;

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use plimsoll_terminal::fail;

/// Tries Plimsoll out on one machine: emulated backends, load, comparisons, simulations, experiments.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    DemoL4(demo_l4::Args),
    DemoEdge(demo_edge::Args),
    Backends(backends::Args),
    Load(load::Args),
    Pool(pool::Args),
    Peers(peers::Args),
    /// Measure balancing methods on real servers in control groups; needs root
    Real(plimsoll_real::Args),
    /// Make, run or remove the application of the HAProxy study: WordPress and its database; needs root
    Wordpress(plimsoll_real::wordpress::Args),
    List(papers::ListArgs),
    Run(papers::RunArgs),
    Report(papers::ReportArgs),
    Soak(soak::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::DemoL4(args) => demo_l4::run(&args),
        Command::DemoEdge(args) => demo_edge::run(&args),
        Command::Backends(args) => on_one_thread(backends::run(&args)),
        Command::Load(args) => on_one_thread(load::run(&args)),
        Command::Pool(args) => pool::run(&args),
        Command::Peers(args) => peers::run(&args),
        Command::Real(args) => plimsoll_real::run(&args),
        Command::Wordpress(args) => plimsoll_real::wordpress::run(&args),
        Command::List(args) => papers::list(&args),
        Command::Run(args) => papers::run(&args),
        Command::Report(args) => papers::report(&args),
        Command::Soak(args) => soak::run(&args),
    }
}

/// For clap: a duration with its unit.
fn duration(text: &str) -> Result<Duration, String> {
    plimsoll_testbed::parse_duration(text)
}

/// Runs what waits for sockets and signals, and has its work done by threads of its own.
fn on_one_thread(work: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => fail(&format!("cannot start: {error}")),
    }
}
