//! Runs seeds and prints what they find, with the command that repeats it.
//!
//! `cargo run --release -p plimsoll-sim --example soak -- --seeds 0..1000 --days 1`

use std::num::NonZeroUsize;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use plimsoll_control::Exploration;
use plimsoll_sim::{Fault, Level, Order, Rule, Sabotage, Tally};

const USAGE: &str = "usage: soak (--seed N | --seeds FROM..TO) [--days D] [--level samples|requests] [--threads N] \
                     [--exploration packed|bisect|literal] [--without FAULT]... [--sabotage WAY] [--beyond RULE]... [--trace FROM_SECOND]";

struct Arguments {
    seeds: Range<u64>,
    threads: usize,
    order: Order,
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(line) => {
            eprintln!("{line}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    let next = AtomicU64::new(arguments.seeds.start);
    let totals = Mutex::new((Tally::default(), 0u64, 0u64));
    let single = arguments.seeds.end - arguments.seeds.start == 1;
    if single {
        let order = Order { seed: arguments.seeds.start, ..arguments.order.clone() };
        print!("{}", order.scenario());
    }
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= arguments.seeds.end {
                        return;
                    }
                    let order = Order { seed, ..arguments.order.clone() };
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
    let explored = match arguments.order.exploration {
        Exploration::Packed => String::new(),
        _ => format!(" ({rounds} to explore)"),
    };
    println!(
        "{runs} runs of {:.2} days: {steps} steps, {plans} plans{explored}, {faults} faults, \
         {violations} violations, {:.0} s",
        arguments.order.seconds / 86_400.0,
        began.elapsed().as_secs_f64()
    );
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn arguments() -> Result<Arguments, String> {
    let mut seeds = None;
    let mut order = Order::days(0, 1.0);
    let mut threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut given = std::env::args().skip(1);
    while let Some(option) = given.next() {
        let value = given.next().ok_or_else(|| format!("{option}: a value was expected"))?;
        let number = || value.parse::<f64>().map_err(|e| format!("{option} {value}: {e}"));
        let whole = |text: &str| text.parse::<u64>().map_err(|e| format!("{option} {text}: {e}"));
        match option.as_str() {
            "--seed" => {
                let seed = whole(&value)?;
                let end =
                    seed.checked_add(1).ok_or_else(|| format!("--seed {value}: too great"))?;
                seeds = Some(seed..end);
            }
            "--seeds" => {
                let expected = || format!("--seeds {value}: expected FROM..TO, FROM less than TO");
                let (from, to) = value.split_once("..").ok_or_else(expected)?;
                let range = whole(from)?..whole(to)?;
                seeds = Some(Some(range).filter(|r| !r.is_empty()).ok_or_else(expected)?);
            }
            "--days" => {
                let days = number()?;
                if !(days > 0.0 && days.is_finite()) {
                    return Err(format!("--days {value}: expected more than 0"));
                }
                order.seconds = days * 86_400.0;
            }
            "--level" => {
                order.level = match value.as_str() {
                    "samples" => Level::Samples,
                    "requests" => Level::Requests,
                    _ => return Err(format!("--level {value}: expected samples or requests")),
                }
            }
            "--exploration" => {
                order.exploration = match value.as_str() {
                    "packed" => Exploration::Packed,
                    "bisect" => Exploration::Bisect,
                    "literal" => Exploration::Literal,
                    _ => {
                        return Err(format!(
                            "--exploration {value}: expected packed, bisect or literal"
                        ));
                    }
                }
            }
            "--threads" => {
                threads = value
                    .parse::<NonZeroUsize>()
                    .map_err(|e| format!("--threads {value}: {e}"))?
                    .get();
            }
            "--without" => order.without.push(value.parse::<Fault>()?),
            "--sabotage" => order.sabotage = Some(value.parse::<Sabotage>()?),
            "--beyond" => order.beyond.push(value.parse::<Rule>()?),
            "--trace" => order.trace_from = Some(number()?),
            _ => return Err(format!("{option}: not known")),
        }
    }
    let seeds = seeds.ok_or("which seeds?")?;
    Ok(Arguments { seeds, threads, order })
}
