//! What a change of weights costs: milliseconds, for every policy over 10, 100 and 256 backends of weights from
//! 129 to 256, of which one, or each, gets another. The least of several runs counts: the machine only ever adds.
//!
//! `cargo bench -p plimsoll-policy --bench set_weights [-- NAME]`, with a name only those that contain it.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a benchmark measures real time"
)]

use std::time::{Duration, Instant};

use plimsoll_policy::{PolicyKind, Settings};

const SIZES: [u32; 3] = [10, 100, 256];
const RUNS: u32 = 20;

fn main() {
    println!("{:<22} {:^29} {:^29}", "", "ms, one changed", "ms, all changed");
    print!("{:<22}", "backends");
    for _ in 0..2 {
        SIZES.iter().for_each(|n| print!(" {n:>9}"));
    }
    println!();
    let mut asked = std::env::args().skip(1).filter(|a| !a.starts_with('-'));
    let part = asked.next().unwrap_or_default();
    for &kind in PolicyKind::ALL.iter().filter(|kind| kind.name().contains(&part)) {
        print!("{:<22}", kind.name());
        for changes_all in [false, true] {
            for n in SIZES {
                print!(" {:>9.4}", cost(kind, n, changes_all).as_secs_f64() * 1e3);
            }
        }
        println!();
    }
}

fn cost(kind: PolicyKind, backends: u32, changes_all: bool) -> Duration {
    let mut weights: Vec<u32> = (0..backends).map(|i| 256 - 37 * i % 128).collect();
    let built = kind.build(&weights, &Settings::default());
    let mut policy = built.expect("these settings are valid");
    let mut least = Duration::MAX;
    for run in 1..=RUNS {
        let changed = (0..backends).filter(|&i| changes_all || i == run % backends);
        changed.for_each(|i| weights[i as usize] = 256 - (37 * i + 11 * run) % 128);
        let begun = Instant::now();
        policy.set_weights(&weights);
        least = least.min(begun.elapsed());
    }
    least
}
