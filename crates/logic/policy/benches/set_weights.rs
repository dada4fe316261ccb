//! What a change of weights costs: milliseconds, for every policy over 10, 100 and 256 backends of weights from
//! 129 to 256, of which one, or each, gets another; and what a pick costs with which a step of slow start begins, one
//! backend having joined. The least of several runs counts: the machine only ever adds.
//!
//! `cargo bench -p plimsoll-policy --bench set_weights [-- NAME]`, with a name only those that contain it.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a benchmark measures real time"
)]

use std::time::{Duration, Instant};

use plimsoll_model::Nanos;
use plimsoll_policy::{PolicyKind, Request, Settings, SlowStartSettings};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

const SIZES: [u32; 3] = [10, 100, 256];
const RUNS: u32 = 20;

fn main() {
    let heads = ["ms, one changed", "ms, all changed", "µs, pick at a step"];
    println!("{:<22} {:^29} {:^29} {:^29}", "", heads[0], heads[1], heads[2]);
    print!("{:<22}", "backends");
    for _ in 0..heads.len() {
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
        for n in SIZES {
            print!(" {:>9.2}", pick_at_a_step(kind, n).as_secs_f64() * 1e6);
        }
        println!();
    }
}

/// Of weights from 129 to 256.
fn weight(backend: u32, run: u32) -> u32 {
    256 - (37 * backend + 11 * run) % 128
}

fn cost(kind: PolicyKind, backends: u32, changes_all: bool) -> Duration {
    let mut weights: Vec<u32> = (0..backends).map(|i| weight(i, 0)).collect();
    let built = kind.build(&weights, &Settings::default());
    let mut policy = built.expect("these settings are valid");
    let mut least = Duration::MAX;
    for run in 1..=RUNS {
        let changed = (0..backends).filter(|&i| changes_all || i == run % backends);
        changed.for_each(|i| weights[i as usize] = weight(i, run));
        let begun = Instant::now();
        policy.set_weights(&weights);
        least = least.min(begun.elapsed());
    }
    least
}

/// Weights change with the time, within a pick, where that is how a policy starts slowly.
fn pick_at_a_step(kind: PolicyKind, backends: u32) -> Duration {
    let slow_start = SlowStartSettings { window_ms: u64::from(RUNS) * 1_000, least_percent: 10 };
    let settings = Settings { slow_start: Some(slow_start), ..Settings::default() };
    let mut weights: Vec<u32> = (0..backends).map(|i| weight(i, 0)).collect();
    let last = weights.len() - 1;
    let joins = std::mem::take(&mut weights[last]);
    let mut policy = kind.build(&weights, &settings).expect("these settings are valid");
    weights[last] = joins;
    policy.set_weights(&weights);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut least = Duration::MAX;
    for step in 0..RUNS {
        let now = Nanos::from_secs_f64(f64::from(step) + 0.5);
        let request = Request::with_key(u64::from(step).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let begun = Instant::now();
        std::hint::black_box(policy.pick(&request, now, &mut rng));
        least = least.min(begun.elapsed());
    }
    least
}
