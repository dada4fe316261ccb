//! How often a controller wants its balancer read.

use std::time::Duration;

use plimsoll_model::MethodKind;

/// A few times the service of most requests: whatever service times are like, what completes meanwhile then tells the
/// rate of a core. Closer polls show a slow-down of few cores sooner where service times are exponential, but where they
/// are all alike, and about as long as the time between polls, cores are believed faster and slower by turns
/// (`docs/benchmarks.md`, "A changing world").
const SPLIT: Duration = Duration::from_millis(100);
/// A balancer that counts what is in flight relieves who is slow by itself, so that it takes more readings to see in
/// time.
const COUNTING: Duration = Duration::from_millis(50);

/// The time between two readings of a balancer that picks in this way, unless an operator says otherwise.
pub fn poll_interval(kind: MethodKind) -> Duration {
    match kind {
        MethodKind::InFlight => COUNTING,
        MethodKind::Split | MethodKind::NoLiveWeights => SPLIT,
    }
}
