//! How often a controller wants its balancer read.

use std::time::Duration;

use plimsoll_model::MethodKind;

/// As often as a backend of one core takes to show in time, within 110 to 130 requests in the median, that it has slowed
/// down to 60 % (`docs/benchmarks.md`, "A changing world").
const SHORTEST: Duration = Duration::from_millis(25);
/// Beyond this a change of the busiest backend, too, is seen late.
const LONGEST: Duration = Duration::from_millis(100);
/// One more server makes the time between two readings so much longer: HAProxy and Plimsoll spend 5 µs on reading it
/// (of pools of 30), so that reading a pool of up to 200 costs both together at most 1 % of a core.
const PER_SERVER: Duration = Duration::from_micros(500);
/// A balancer that counts what is in flight sends who is slow less, who serves more by it then: the busy ones are read
/// as well as is needed at this pace, whatever their number.
const COUNTING: Duration = Duration::from_millis(50);

/// The time between two readings of a balancer that picks in this way, for a pool of so many servers, unless an
/// operator says otherwise.
pub fn poll_interval(kind: MethodKind, servers: usize) -> Duration {
    match kind {
        MethodKind::InFlight => COUNTING,
        _ => {
            let servers = u32::try_from(servers).unwrap_or(u32::MAX);
            PER_SERVER.saturating_mul(servers).clamp(SHORTEST, LONGEST)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_the_pool_the_longer_within_bounds() {
        let ms = |servers| poll_interval(MethodKind::Split, servers).as_millis();
        assert_eq!([0, 1, 30, 50].map(ms), [25; 4]);
        assert_eq!(
            [51, 80, 200].map(|n| poll_interval(MethodKind::Split, n).as_micros()),
            [25_500, 40_000, 100_000]
        );
        assert_eq!([201, usize::MAX].map(ms), [100; 2]);
        assert_eq!([1, 1_000].map(|n| poll_interval(MethodKind::InFlight, n).as_millis()), [50; 2]);
    }
}
