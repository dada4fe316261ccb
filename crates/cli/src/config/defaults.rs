//! Every default and every bound of the daemon's own keys. `docs/configuration.md` repeats them for people; a test
//! compares the two.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::time::Duration;

const MS: fn(u64) -> Duration = Duration::from_millis;

/// `store.path`
pub const STORE_PATH: &str = "./plimsoll-state";
/// `api.listen`
pub const API_LISTEN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7400));

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

/// Bounds of `limits.min_interval`.
pub fn min_interval() -> RangeInclusive<Duration> {
    MS(1)..=MS(3_600_000)
}

/// Bounds of `learn.latency_factor`.
pub const LATENCY_FACTOR_BOUNDS: RangeInclusive<f64> = 1.0..=100.0;
/// Bounds of `learn.max_step`: a factor of 1 would never move.
pub const MAX_STEP_BOUNDS: RangeInclusive<f64> = 1.01..=100.0;
/// Bounds of parts of a whole.
pub const PART: RangeInclusive<f64> = 0.0..=1.0;
