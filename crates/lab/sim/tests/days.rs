//! The unbroken controller through a hundred simulated days of faults, at sample level.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_sim::{Order, Tally};

/// One day each.
const SEEDS: u64 = 100;

#[test]
fn a_hundred_days_of_faults_violate_nothing() {
    let next = AtomicU64::new(0);
    let found = Mutex::new((Tally::default(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= SEEDS {
                        return;
                    }
                    let result = Order::days(seed, 1.0).run();
                    let mut found = found.lock().expect("no panic while it is held");
                    match result {
                        Ok(tally) => found.0 = found.0 + tally,
                        Err(failure) => found.1.push(failure.to_string()),
                    }
                }
            });
        }
    });
    let (tally, failures) = found.into_inner().expect("no panic while it was held");
    println!("{tally:?}");
    assert!(failures.is_empty(), "{} violations:\n{}", failures.len(), failures.join("\n\n"));
    // A run in which nothing happens proves nothing.
    assert!(tally.faults > 30 * SEEDS && tally.plans > 500 * SEEDS, "{tally:?}");
    assert!(tally.checks > 100_000 * SEEDS, "{tally:?}");
}

#[test]
fn a_run_is_its_seed() {
    let of = |seed| Order::days(seed, 0.02).run().map_err(|failure| failure.violation);
    assert_eq!(of(3), of(3));
    assert_ne!(of(3), of(4));
}
