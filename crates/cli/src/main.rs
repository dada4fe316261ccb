//! The `plimsoll` binary: measures backends, learns what load does to each, packs the load and steers
//! it. Every command has a module of its own; here is only the choice between them.

// They panic where nobody can read what they print; `plimsoll_terminal` has what does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod check;
mod client;
mod config;
mod daemons;
mod doctor;
mod edge;
mod hangup;
mod init;
mod l4;
mod nginx;
mod place;
mod plot;
mod proxy;
mod run;
mod solve;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use mimalloc::MiMalloc;
use plimsoll_terminal::{Format, fail};

/// A request of the proxy allocates a few dozen times on one thread: with this it costs an eighth less CPU than with
/// glibc's allocator (docs/proxy.md).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

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
    Init(init::InitArgs),
    /// Check a configuration
    Check(CheckArgs),
    Status(client::status::Args),
    Weights(client::weights::Args),
    Curves(client::curves::Args),
    Plan(client::plan::Args),
    Events(client::events::Args),
    Solve(solve::SolveArgs),
    Doctor(doctor::DoctorArgs),
    #[command(subcommand)]
    Nginx(nginx::NginxCommand),
    #[command(subcommand)]
    L4(l4::L4),
    #[command(subcommand)]
    Proxy(proxy::ProxyCommand),
    #[command(subcommand)]
    Edge(edge::EdgeCommand),
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

fn main() -> ExitCode {
    hangup::hold();
    match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Check(args) => check(&args),
        Command::Status(args) => client::status::run(&args),
        Command::Weights(args) => client::weights::run(&args),
        Command::Curves(args) => client::curves::run(&args),
        Command::Plan(args) => client::plan::run(&args),
        Command::Events(args) => client::events::run(&args),
        Command::Solve(args) => solve::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Nginx(command) => nginx::main(&command),
        Command::L4(command) => l4::main(&command),
        Command::Proxy(command) => proxy::main(&command),
        Command::Edge(command) => edge::main(&command),
    }
}

fn check(args: &CheckArgs) -> ExitCode {
    let (mut out, mut err) = (std::io::stdout().lock(), std::io::stderr().lock());
    match check::check(&args.config, args.output, &mut out, &mut err) {
        Ok(code) => ExitCode::from(code),
        // A reader that closed the pipe has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&format!("cannot write the answer: {error}")),
    }
}
