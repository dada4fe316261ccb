//! What admission costs: nanoseconds per decision with its ending and chip, and per pick from the ledger.
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

const ROUNDS: u32 = 5_000_000;

fn report(what: &str, from: Instant) {
    println!("{what:44} {:7.1} ns", from.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
}

/// In flight goes up and down, beyond the capacity and back: one in six is refused.
fn decide(what: &str, capacity: CapacityOptions) {
    let options = AdmissionOptions { capacity, deadline_ms: Some(60_000) };
    let mut admission = Admission::new(&options).expect("valid options");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut now = Nanos::ZERO;
    let from = Instant::now();
    for k in 0..ROUNDS {
        now = now + Duration::from_micros(500);
        let in_flight = k % 12;
        if let Decision::Admit(permit) = admission.decide(now, in_flight, Arrival::default()) {
            let done = now + Duration::from_micros(u64::from(200 * (in_flight + 1)));
            black_box(admission.chip(in_flight + 1, &mut rng));
            admission.finish(done, in_flight, permit, Ended::Answered);
        }
    }
    report(&format!("decide, chip, finish: {what}"), from);
    let from = Instant::now();
    for k in 0..ROUNDS {
        now = now + Duration::from_micros(500);
        black_box(admission.decide(now, k % 12, Arrival::default()));
    }
    report(&format!("decide: {what}"), from);
}

fn pick(backends: usize, closed: usize, when_none: WhenNone) {
    let options = LedgerOptions { when_none, ..LedgerOptions::default() };
    let weights: Vec<u32> = (0..backends as u32).map(|i| 1 + i % 8).collect();
    let mut ledger = ChipLedger::new(&weights, options).expect("valid options");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let start = Nanos::from_secs_f64(10.0);
    (0..closed).for_each(|backend| ledger.on_rejection(backend, start));
    let from = Instant::now();
    for _ in 0..ROUNDS {
        let backend = ledger.pick(start, &mut rng, |_| true, |b| b as f64);
        if let Some(backend) = black_box(backend) {
            ledger.on_dispatch(backend, start);
            ledger.on_chip(backend, backend >= closed, start);
        }
    }
    report(&format!("pick, dispatch, chip: {backends} backends, {closed} closed"), from);
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
