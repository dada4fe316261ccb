//! Half an hour of clients that leave, backends that reset, stall, refuse and die, and reloads; ends with a verdict.
//!
//! `cargo run --release -p plimsoll-proxy --example violence -- --minutes 30 --seed 1`

// It is a program for people.
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "../tests/violence/world.rs"]
mod world;

use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "expected --minutes N and --seed N, both whole numbers";

fn main() -> ExitCode {
    let Some((minutes, seed)) = arguments(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    println!("{minutes} minutes, seed {seed}");
    let verdict = world::run(Duration::from_secs(60 * minutes), seed);
    let saw = verdict.saw;
    println!(
        "{} requests of clients: {} answered, {} refused or failed, {} broken off, {} given up, {} lost\n\
         {} requests at backends, {} reloads; some waited for room: {}",
        saw.requests,
        saw.answered,
        saw.failed,
        saw.broken,
        saw.left,
        saw.lost,
        verdict.served,
        verdict.reloads,
        verdict.waited
    );
    let faults = verdict.faults();
    faults.iter().for_each(|fault| println!("FAULT: {fault}"));
    match faults.is_empty() {
        true => {
            println!(
                "in flight and waiting at the end: 0; served twice: none; lost: none; another's response: none"
            );
            ExitCode::SUCCESS
        }
        false => ExitCode::FAILURE,
    }
}

fn arguments(mut words: impl Iterator<Item = String>) -> Option<(u64, u64)> {
    let (mut minutes, mut seed) = (30, 1);
    while let Some(word) = words.next() {
        let number = words.next()?.parse().ok()?;
        match word.as_str() {
            "--minutes" => minutes = number,
            "--seed" => seed = number,
            _ => return None,
        }
    }
    Some((minutes, seed))
}
