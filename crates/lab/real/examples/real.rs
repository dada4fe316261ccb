//! Measures ways of balancing on real servers: `plimsoll-lab real` without the rest of the lab.

use std::process::ExitCode;

use clap::Parser;

/// Measure ways of balancing on real servers in control groups. Needs root.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: plimsoll_real::Args,
}

fn main() -> ExitCode {
    plimsoll_real::run(&Line::parse().args)
}
