//! The lab's own server, a process of its own so that a cgroup can hold it.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use plimsoll_real::server::{Behaviour, Mode, Model, Settings, serve};
use plimsoll_testbed::parse_duration;

/// Serve HTTP requests that burn CPU time.
#[derive(Parser)]
struct Args {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// What does the work.
    #[arg(long, value_enum, default_value_t)]
    model: Model,
    /// How many threads work, in the thread model.
    #[arg(long, value_name = "N", default_value_t = 8)]
    threads: usize,
    /// CPU time of a request that does not say how much it wants (/work?work_us=N).
    #[arg(long, value_name = "D", value_parser = parse_duration, default_value = "5.5ms")]
    work: Duration,
    /// CPU time of a health check.
    #[arg(long, value_name = "D", value_parser = parse_duration, default_value = "0s")]
    health_work: Duration,
    /// How it behaves at first; each line on standard input that names a mode changes it.
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let behaviour = Behaviour::new(args.mode);
    let settings = Settings {
        listen: args.listen,
        model: args.model,
        threads: args.threads.max(1),
        work: args.work,
        health: args.health_work,
        behaviour: behaviour.clone(),
    };
    std::thread::spawn(move || {
        if let Some(line) = behaviour.follow(std::io::stdin().lock()) {
            eprintln!("plimsoll-real-server: `{line}` is no mode; no more are taken");
        }
    });
    match serve(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plimsoll-real-server: {}: {error}", args.listen);
            ExitCode::FAILURE
        }
    }
}
