//! Runs seeds and prints what they find, with the command that repeats it.
//!
//! `cargo run --release -p plimsoll-sim --example soak -- --seeds 0..1000 --days 1`

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use plimsoll_control::Exploration;
use plimsoll_sim::{Command, Order, Tally};

fn main() -> ExitCode {
    let Command { seeds, threads, order } = match Command::parse(std::env::args().skip(1)) {
        Ok(command) => command,
        Err(line) => {
            eprintln!("{line}\n{}", Command::USAGE);
            return ExitCode::from(2);
        }
    };
    let threads = threads.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        NonZeroUsize::get,
    );
    let began = Instant::now();
    let next = AtomicU64::new(seeds.start);
    let totals = Mutex::new((Tally::default(), 0u64, 0u64));
    let single = seeds.end - seeds.start == 1;
    if single {
        print!("{}", Order { seed: seeds.start, ..order.clone() }.scenario());
    }
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let order = Order { seed, ..order.clone() };
                    let result = order.run();
                    let mut totals = totals.lock().unwrap_or_else(|e| e.into_inner());
                    totals.1 += 1;
                    match result {
                        Ok(tally) => totals.0 = totals.0 + tally,
                        Err(failure) => {
                            totals.2 += 1;
                            println!("\nseed {seed}: {failure}");
                        }
                    }
                    if totals.1.is_multiple_of(20) {
                        let s = began.elapsed().as_secs();
                        println!("{} runs, {} violations, {s} s", totals.1, totals.2);
                    }
                }
            });
        }
    });
    let (Tally { steps, plans, rounds, faults, .. }, runs, violations) =
        *totals.lock().unwrap_or_else(|e| e.into_inner());
    let explored = match order.exploration {
        Exploration::Packed => String::new(),
        _ => format!(" ({rounds} to explore)"),
    };
    println!(
        "{runs} runs of {:.2} days: {steps} steps, {plans} plans{explored}, {faults} faults, \
         {violations} violations, {:.0} s",
        order.seconds / 86_400.0,
        began.elapsed().as_secs_f64()
    );
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
