//! How often a controller wants its balancer read.

use std::time::Duration;

use plimsoll_model::MethodKind;

/// Closer polls show a slow-down of few cores sooner where service times are exponential. Where they are all alike cores
/// are told wrongly at any pace, but the worst where the time between polls is about that of a service
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
