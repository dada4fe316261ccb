//! What admission costs: nanoseconds per decision with its ending and chip, and per pick from the ledger. The
//! least of several runs counts: the machine only ever adds.
//!
//! `cargo run --release -p plimsoll-sim --example admission_cost`

use std::hint::black_box;
use std::time::{Duration, Instant};

use plimsoll_admission::{
    Admission, AdmissionOptions, Arrival, CapacityOptions, ChipLedger, Decision, Ended,
    LedgerOptions, WhenNone,
};
use plimsoll_model::Nanos;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// A run is shorter than a slice of the scheduler.
const ROUNDS: u32 = 10_000;
const RUNS: u32 = 200;

fn least_ns(what: &str, mut run: impl FnMut()) {
    let time = |_| {
        let from = Instant::now();
        run();
        from.elapsed()
    };
    let least = (0..RUNS).map(time).min().unwrap_or_default();
    println!("{what:44} {:7.1} ns", least.as_nanos() as f64 / f64::from(ROUNDS));
}

/// In flight goes up and down, beyond the capacity and back: one in six is refused.
fn decide(what: &str, capacity: CapacityOptions) {
    let options = AdmissionOptions { capacity, deadline_ms: Some(60_000) };
    let mut admission = Admission::new(&options).expect("valid options");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut now = Nanos::ZERO;
    least_ns(&format!("decide, chip, finish: {what}"), || {
        for k in 0..ROUNDS {
            now = now + Duration::from_micros(500);
            let in_flight = k % 12;
            if let Decision::Admit(permit) = admission.decide(now, in_flight, Arrival::default()) {
                let done = now + Duration::from_micros(u64::from(200 * (in_flight + 1)));
                black_box(admission.chip(in_flight + 1, &mut rng));
                admission.finish(done, in_flight, permit, Ended::Answered);
            }
        }
    });
    least_ns(&format!("decide: {what}"), || {
        for k in 0..ROUNDS {
            now = now + Duration::from_micros(500);
            black_box(admission.decide(now, k % 12, Arrival::default()));
        }
    });
}

fn pick(backends: usize, closed: usize, when_none: WhenNone) {
    let options = LedgerOptions { when_none, ..LedgerOptions::default() };
    let weights: Vec<u32> = (0..backends as u32).map(|i| 1 + i % 8).collect();
    let mut ledger = ChipLedger::new(&weights, options).expect("valid options");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let start = Nanos::from_secs_f64(10.0);
    (0..closed).for_each(|backend| ledger.on_rejection(backend, start));
    least_ns(&format!("pick, dispatch, chip: {backends} backends, {closed} closed"), || {
        for _ in 0..ROUNDS {
            let backend = ledger.pick(start, &mut rng, |_| true, |b| b as f64);
            if let Some(backend) = black_box(backend) {
                ledger.on_dispatch(backend, start);
                ledger.on_chip(backend, backend >= closed, start);
            }
        }
    });
}

fn main() {
    decide("static", CapacityOptions::Static(10));
    decide("average", CapacityOptions::Average);
    decide("adaptive", CapacityOptions::default());
    for backends in [10, 100, 1_000, 10_000] {
        for closed in [0, backends * 9 / 10, backends] {
            pick(backends, closed, WhenNone::ProbeOldest);
        }
    }
}
