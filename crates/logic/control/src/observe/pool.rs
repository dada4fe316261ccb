//! The traffic of the whole pool: recent windows, their rate and its peak.

use std::time::Duration;

use plimsoll_model::Nanos;

use crate::gate::trial::{PoolHistory, PoolWindow};
use crate::observe::traffic::WindowClock;
use crate::tuning::observe::pool::{PEAK_FADES, SETTLED, TYPICAL_CREEP};

/// The traffic of the whole pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolTraffic {
    history: PoolHistory,
    clock: WindowClock,
    /// Windows closed so far.
    windows: usize,
    /// Decaying peak of the traffic, requests per second.
    peak_rps: f64,
    /// Unloaded service time that is typical of the pool's faster backends, microseconds.
    typical_us: Option<f64>,
    /// Since when weights and pool are unchanged: windows that began earlier do not count as steady.
    calm_since: Nanos,
}

impl PoolTraffic {
    pub fn new(now: Nanos) -> Self {
        PoolTraffic {
            history: PoolHistory::default(),
            clock: WindowClock::default(),
            windows: 0,
            peak_rps: 0.0,
            typical_us: None,
            calm_since: now,
        }
    }

    pub fn history(&self) -> &PoolHistory {
        &self.history
    }

    /// Requests per second over the last windows; 0 before the first.
    pub fn rate(&self) -> f64 {
        self.history.rate_rps().unwrap_or(0.0)
    }

    /// The decaying peak of [`Self::rate`].
    pub fn peak_rps(&self) -> f64 {
        self.peak_rps
    }

    /// Windows closed so far.
    pub fn windows(&self) -> usize {
        self.windows
    }

    /// Takes a window.
    pub fn push(&mut self, window: PoolWindow) {
        self.history.push(window);
        self.windows += 1;
        self.peak_rps = self.rate().max(self.peak_rps * PEAK_FADES);
    }

    /// Takes the time of a report; returns the length in seconds of the window that it closes.
    pub fn tick(&mut self, at: Nanos) -> Option<f64> {
        self.clock.tick(at)
    }

    /// Discards the open window.
    pub fn reset_window(&mut self) {
        self.clock.reset();
    }

    /// The balancer was restarted: earlier windows say nothing about its weights.
    pub fn restart(&mut self, now: Nanos) {
        self.history.clear();
        self.calm_since = now;
    }

    /// Weights or pool have changed.
    pub fn note_change(&mut self, now: Nanos) {
        self.calm_since = now;
    }

    /// Since when weights and pool are unchanged.
    pub fn calm_since(&self) -> Nanos {
        self.calm_since
    }

    /// Whether queues have had time to follow the last change of weights: the measured drain time, or a guess. Means are
    /// believed as soon as all of them is after the change: what is in a full queue still is served at full speed, and
    /// waiting for it would let an overload last.
    pub fn is_calm(&self, drain: Option<Duration>, lag: Duration, now: Nanos) -> bool {
        let mean_s = self.history.mean_us().unwrap_or(0.0) / 1e6;
        let guess = || Duration::from_secs_f64((2.0 + 3.0 * mean_s).min(20.0));
        let after = if lag.is_zero() { drain.unwrap_or_else(guess) } else { lag + SETTLED };
        now.since(self.calm_since) >= after
    }

    /// Unloaded service time that is typical of the pool's faster backends, microseconds.
    pub fn typical_us(&self) -> Option<f64> {
        self.typical_us
    }

    /// Takes the response times of the last window: the least of the pool's faster backends are close to their unloaded
    /// service time, which an overloaded backend does not show.
    pub fn note_latencies(&mut self, latencies_us: impl Iterator<Item = f64>) {
        // A window whose readings never met a request in flight shows no time.
        let mut all: Vec<f64> = latencies_us.filter(|us| *us > 0.0).collect();
        all.sort_by(f64::total_cmp);
        if let Some(&quick) = all.get(all.len() / 4) {
            let held = self.typical_us.map_or(f64::INFINITY, |us| us * TYPICAL_CREEP);
            self.typical_us = Some(quick.min(held));
        }
    }
}
