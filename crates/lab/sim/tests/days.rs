//! The unchanged controller through twenty simulated days of faults, at sample level.

use plimsoll_sim::{Order, Tally, cores, on_cores};

/// Ten minutes each, at request level.
const TEN_MINUTES: u64 = 12;

/// Runs these seeds on all cores; returns the counts and the violations.
fn run(seeds: u64, order: impl Fn(u64) -> Order + Sync) -> (Tally, Vec<String>) {
    let mut found = (Tally::default(), Vec::new());
    for result in on_cores(cores(), 0..seeds, |seed| order(seed).run()) {
        match result {
            Ok(tally) => found.0 = found.0 + tally,
            Err(failure) => found.1.push(failure.to_string()),
        }
    }
    found
}

/// Quarters of a day, by seed. (A thousand whole days are for `make soak`.)
const QUARTERS: u64 = 80;

/// Half days in which healthy backends once failed, or were given nothing.
const ONCE_VIOLATED: [u64; 3] = [26, 144, 199];

#[test]
fn days_that_once_had_a_violation_have_none() {
    let order = |at: u64| Order::days(ONCE_VIOLATED[at as usize], 0.5);
    let (_, failures) = run(ONCE_VIOLATED.len() as u64, order);
    assert!(failures.is_empty(), "{} violations:\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn twenty_days_of_faults_violate_nothing() {
    let (tally, failures) = run(QUARTERS, |seed| Order::days(seed, 0.25));
    assert!(failures.is_empty(), "{} violations:\n{}", failures.len(), failures.join("\n\n"));
    // A run in which nothing happens proves nothing.
    assert!(tally.faults > 7 * QUARTERS && tally.plans > 100 * QUARTERS, "{tally:?}");
    assert!(tally.checks > 25_000 * QUARTERS, "{tally:?}");
}

#[test]
fn two_hours_at_request_level_have_no_violation() {
    let (tally, failures) = run(TEN_MINUTES, |seed| Order::minutes(seed, 10.0));
    assert!(failures.is_empty(), "{} violations:\n{}", failures.len(), failures.join("\n\n"));
    assert!(tally.faults > TEN_MINUTES && tally.checks > 10_000 * TEN_MINUTES, "{tally:?}");
}

#[test]
fn a_seed_determines_the_run() {
    for order in [|seed| Order::days(seed, 0.02), |seed| Order::minutes(seed, 3.0)] {
        let of = |seed| order(seed).run().map_err(|failure| failure.violation);
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
    }
}
