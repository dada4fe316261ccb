//! Every default and every bound, in one place. `docs/configuration.md` repeats them for people; a
//! test compares the two.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::time::Duration;

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A configuration longer than this is a mistake, bytes.
pub const MAX_FILE: usize = 8 << 20;
/// Deeper nesting than this is a mistake; the schema needs 7.
pub const MAX_DEPTH: usize = 32;

/// `store.path`
pub const STORE_PATH: &str = "./plimsoll-state";
/// `api.listen`
pub const API_LISTEN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7400));

/// `probe.timeout`
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// `liveness.timeout`
pub const LIVENESS_TIMEOUT: Duration = Duration::from_secs(1);
/// `liveness.requests`
pub const LIVENESS_REQUESTS: u32 = 1;
/// `*.jitter`
pub const JITTER: f64 = 0.1;
/// `*.max_body`, bytes
pub const MAX_BODY: usize = 64 << 10;
/// `*.expect.status`
pub const EXPECT_STATUS: RangeInclusive<u16> = 200..=399;
/// `sink.*.timeout`
pub const SINK_TIMEOUT: Duration = Duration::from_secs(1);
/// `learn.latency_factor`
pub const LATENCY_FACTOR: f64 = 3.0;
/// `learn.max_step`
pub const MAX_STEP: f64 = 2.0;
/// `limits.min_change`
pub const MIN_CHANGE: f64 = 0.01;
/// `limits.min_interval`
pub const MIN_INTERVAL: Duration = Duration::from_millis(250);

/// `limits.slow_start`
pub const SLOW_START: Duration = Duration::from_secs(10);

/// Bounds of `limits.slow_start`.
pub fn slow_start() -> RangeInclusive<Duration> {
    Duration::ZERO..=MS(3_600_000)
}

/// Bounds of time-outs, and of intervals that have none of their own.
pub fn any_time() -> RangeInclusive<Duration> {
    MS(1)..=MS(3_600_000)
}

/// Bounds of `liveness.timeout`.
pub fn liveness_timeout() -> RangeInclusive<Duration> {
    MS(1)..=MS(60_000)
}

/// Bounds of intervals between probes: below 10 ms timers are no longer even.
pub fn probe_interval() -> RangeInclusive<Duration> {
    MS(10)..=MS(3_600_000)
}

/// Bounds of `sink.*.poll`: readings of what is in flight farther apart than 200 ms are too few
/// for a mean response time to within 5 % in 20 s.
pub fn sink_poll() -> RangeInclusive<Duration> {
    MS(10)..=MS(200)
}

/// Bounds of `probe.requests`.
pub const REQUESTS: RangeInclusive<u64> = 1..=10_000;
/// Bounds of `liveness.requests`: more at once would be a load test.
pub const LIVENESS_CHECKS: RangeInclusive<u64> = 1..=16;
/// `liveness.timeout` may span so many intervals: about as many rounds overlap while a backend hangs.
pub const LIVENESS_ROUNDS: u128 = 1_000;
/// Bounds of a request's body, bytes.
pub const REQUEST_BODY: usize = 1 << 20;
/// Bounds of `*.max_body`.
pub const MAX_BODY_BOUNDS: RangeInclusive<u64> = 1..=(64 << 20);
/// Bounds of `learn.latency_factor`.
pub const LATENCY_FACTOR_BOUNDS: RangeInclusive<f64> = 1.0..=100.0;
/// Bounds of `learn.max_step`: a factor of 1 would never move.
pub const MAX_STEP_BOUNDS: RangeInclusive<f64> = 1.01..=100.0;
/// Bounds of parts of a whole.
pub const PART: RangeInclusive<f64> = 0.0..=1.0;
