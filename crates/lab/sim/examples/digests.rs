//! What the controller does in a few seeded runs of both levels, one line each: a refactoring must not change it.
//!
//! `cargo run --release -p plimsoll-sim --example digests [FIRST_SEED [SEEDS [texts]]]`. A line is the digest of all
//! actions of a quarter of a day (samples) or of ten minutes (requests). With `texts` all events and actions of shorter
//! runs are printed with their reasons, for a checksum.

use plimsoll_sim::Order;

fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| args.next().and_then(|a| a.parse().ok()).unwrap_or(default);
    let (first, seeds) = (number(0), number(12));
    let texts = args.next().is_some_and(|a| a == "texts");
    for seed in first..first + seeds {
        let orders = match texts {
            true => [Order::days(seed, 0.02), Order::minutes(seed, 2.0)],
            false => [Order::days(seed, 0.25), Order::minutes(seed, 10.0)],
        };
        for order in orders {
            let trace_from = texts.then_some(0.0);
            let level = order.level;
            match (Order { trace_from, ..order }).run() {
                Ok(tally) => println!("{seed} {level:?} {} {} plans", tally.digest, tally.plans),
                Err(failure) => println!("{seed} {level:?} {failure}"),
            }
        }
    }
}
