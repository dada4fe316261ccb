//! Clients that leave, backends that reset, stall, refuse, die, reloads: no client ever gets another's response,
//! no request that is not repeatable is served twice, none is lost, and nothing is in flight when all is over.
//!
//! A few seconds; `cargo run --release -p plimsoll-proxy --example violence -- --minutes 30` is the same for longer.
//! `PLIMSOLL_VIOLENCE_SEED` is another course of events.

#[path = "violence/world.rs"]
mod world;

use std::time::Duration;

#[test]
fn whatever_happens_counts_end_at_zero_and_no_client_gets_anothers_response() {
    let seed = std::env::var("PLIMSOLL_VIOLENCE_SEED");
    let seed = seed.map_or(1, |text| text.parse().expect("a whole number"));
    let verdict = world::run(Duration::from_secs(4), seed);
    eprintln!("{verdict:?}, seed {seed}");
    assert_eq!(verdict.faults(), Vec::<String>::new());
    let saw = verdict.saw;
    assert!(saw.answered > 0 && saw.failed > 0 && saw.broken > 0 && saw.left > 0, "{saw:?}");
    assert!(verdict.reloads > 0 && verdict.served > 0 && verdict.waited);
}
