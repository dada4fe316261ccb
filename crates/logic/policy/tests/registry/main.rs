//! What every policy must hold to, run over the whole registry.
//!
//! ```text
//! stream.rs     requests at backends, simulated
//! picks.rs      whatever happens, the pick is allowed
//! shares.rs     100,000 picks: equal weights, unequal weights, weights changed mid-stream
//! trouble.rs    what fails or refuses fast must not attract load
//! guards.rs     a limit, ejection and slow start around every policy
//! ```

mod guards;
mod picks;
mod shares;
mod stream;
mod trouble;

use plimsoll_policy::{Policy, PolicyKind, Settings};

fn build(kind: PolicyKind, weights: &[u32]) -> Box<dyn Policy> {
    build_with(kind, weights, Settings::default())
}

fn build_with(kind: PolicyKind, weights: &[u32], settings: Settings) -> Box<dyn Policy> {
    // Without a limit the first backend gets everything, as it should.
    let limit = settings.max_in_flight.or((kind == PolicyKind::First).then_some(LIMIT_OF_FIRST));
    let settings = Settings { max_in_flight: limit, ..settings };
    kind.build(weights, &settings).expect("these settings are valid")
}

/// Enough for all that these tests have in flight.
const LIMIT_OF_FIRST: u32 = 200;

/// The policies that look neither at load nor at latency.
fn is_blind(kind: PolicyKind) -> bool {
    use PolicyKind::{
        CpuRandom, HashMaglev, HashMap, HashRing, Random, RoundRobin, StaticRoundRobin,
    };
    matches!(
        kind,
        Random | RoundRobin | StaticRoundRobin | HashMap | HashRing | HashMaglev | CpuRandom
    )
}
