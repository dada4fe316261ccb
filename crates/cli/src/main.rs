//! The `plimsoll` binary: measures backends, learns what load does to each, packs the load and steers
//! it. Every command has a module of its own; here is only the choice between them.

// They panic where nobody can read what they print; `output` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod check;
mod client;
mod config;
mod demo;
mod demo_l4;
mod doctor;
mod hangup;
mod l4;
mod lab;
mod output;
mod run;
mod solve;

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::output::Format;
use crate::output::complain;

/// Exit code of what failed for a reason of its own.
const FAILED: u8 = 1;

/// Learns how much load each backend can carry, and keeps the load under it.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArgs),
    /// Check a configuration
    Check(CheckArgs),
    Status(client::status::Args),
    Weights(client::weights::Args),
    Curves(client::curves::Args),
    Plan(client::plan::Args),
    Events(client::events::Args),
    Solve(solve::SolveArgs),
    Doctor(doctor::DoctorArgs),
    Demo(demo::DemoArgs),
    DemoL4(demo_l4::DemoL4Args),
    #[command(subcommand)]
    L4(l4::L4),
    /// Emulated backends and a load generator, to try things out on one machine
    #[command(subcommand)]
    Lab(Lab),
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// How to answer
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
}

#[derive(Debug, Subcommand)]
enum Lab {
    Backends(lab::LabBackendsArgs),
    Load(lab::LabLoadArgs),
    Pool(lab::LabPoolArgs),
    List(lab::LabListArgs),
    Run(lab::LabRunArgs),
    Report(lab::LabReportArgs),
}

fn main() -> ExitCode {
    hangup::hold();
    match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check(&args),
        Command::Status(args) => client::status::run(&args),
        Command::Weights(args) => client::weights::run(&args),
        Command::Curves(args) => client::curves::run(&args),
        Command::Plan(args) => client::plan::run(&args),
        Command::Events(args) => client::events::run(&args),
        Command::Solve(args) => solve::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::DemoL4(args) => demo_l4::run(&args),
        Command::L4(command) => l4::main(&command),
        Command::Lab(Lab::Backends(args)) => on_one_thread(lab::run_backends(&args)),
        Command::Lab(Lab::Load(args)) => on_one_thread(lab::run_load(&args)),
        Command::Lab(Lab::Pool(args)) => lab::run_pool(&args),
        Command::Lab(Lab::List(args)) => lab::run_list(&args),
        Command::Lab(Lab::Run(args)) => lab::run_experiments(&args),
        Command::Lab(Lab::Report(args)) => lab::run_report(&args),
    }
}

fn check(args: &CheckArgs) -> ExitCode {
    let format = match args.output {
        Format::Table => check::Format::Lines,
        Format::Json => check::Format::Json,
    };
    let (mut out, mut err) = (std::io::stdout().lock(), std::io::stderr().lock());
    match check::check(&args.config, format, &mut out, &mut err) {
        Ok(code) => ExitCode::from(code),
        // A reader that closed the pipe has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&format!("cannot write the answer: {error}")),
    }
}

/// Runs what waits for sockets and signals, and has its work done by threads of its own.
fn on_one_thread(work: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => fail(&format!("cannot start: {error}")),
    }
}

fn fail(message: &str) -> ExitCode {
    complain!("plimsoll: {message}");
    ExitCode::from(FAILED)
}
