//! How often a controller wants its balancer read.

use std::time::Duration;

use plimsoll_model::MethodKind;

/// A slow-down of few cores is seen in requests that meet nobody else, which polls further apart miss.
const SPLIT: Duration = Duration::from_millis(25);
/// What is in flight behind a balancer that counts is much the same for a while: polls further apart tell cores better
/// there, and changes hardly later (`docs/benchmarks.md`, "A changing world").
const COUNTING: Duration = Duration::from_millis(50);

/// The time between two readings of a balancer that picks in this way, unless an operator says otherwise.
pub fn poll_interval(kind: MethodKind) -> Duration {
    match kind {
        MethodKind::InFlight => COUNTING,
        MethodKind::Split | MethodKind::NoLiveWeights => SPLIT,
    }
}
