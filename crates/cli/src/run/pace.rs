//! How often the daemon ticks, shows and checks, by how many backends all services have: looking after many must not keep
//! the machine busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The controller's clock; a search advances by one candidate a tick, about 10 ms of work …
const TICK: Duration = Duration::from_millis(50);
/// … and no more often than at so long for each backend of all services.
const TICK_EACH: Duration = Duration::from_micros(50);
/// However many there are, the clock is no slower: a longer silence would count as want of time.
const SLOWEST_TICK: Duration = Duration::from_millis(200);
/// The view is shown this often, and at once after a plan or a failure, …
const SHOW_EVERY: Duration = Duration::from_millis(200);
/// … but no more often than at so long for each backend of all services: to draw one takes 5 µs.
const SHOW_EACH: Duration = Duration::from_micros(300);
/// Where nothing speaks against a backend, and there are more than this in all services, they are checked as often as
/// so many would be: at most 100 times a second those without traffic, and 400 those whose traffic does not tell.
const IDLE_CHECKS: f64 = 100.0;

/// Shared by all services of the daemon.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    backends: Arc<AtomicUsize>,
}

impl Pace {
    /// A service that had so many backends has so many now.
    pub fn set_backends(&self, was: usize, is: usize) {
        self.backends.fetch_add(is, Ordering::Relaxed);
        self.backends.fetch_sub(was, Ordering::Relaxed);
    }

    /// Between two ticks of a controller.
    pub fn between_ticks(&self) -> Duration {
        TICK.max(TICK_EACH.saturating_mul(self.backends())).min(SLOWEST_TICK)
    }

    /// Between two views, where nothing has happened.
    pub fn between_views(&self) -> Duration {
        SHOW_EVERY.max(SHOW_EACH.saturating_mul(self.backends()))
    }

    /// Between two checks of a backend that would be checked this often if it were one of few.
    pub fn between_checks(&self, interval: Duration) -> Duration {
        interval.mul_f64((f64::from(self.backends()) / IDLE_CHECKS).max(1.0))
    }

    fn backends(&self) -> u32 {
        u32::try_from(self.backends.load(Ordering::Relaxed)).unwrap_or(u32::MAX)
    }
}
