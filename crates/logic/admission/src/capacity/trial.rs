//! Trials of two limits: whether throughput is less when fewer are let in.
//!
//! While requests are being refused the limit is what sets the number in flight. For a while it is
//! `low`, then for a while `high`, one of the two being the limit that holds otherwise, and the
//! completions `D` in the times `W` of both are compared. With
//! `B(c) = W · min(mean n, c)` a candidate's misfit is
//! `(D₁·B₂ − D₂·B₁)² / ((D₁ + D₂)·B₁·B₂)`, as if completions were Poisson, over their noise. It is
//! Little's law for busy cores, so it holds whether requests queue or share the processor, for any
//! spread of service times, and as it is the limit that moves n and not noise, there is no telling
//! apart cause and effect. What it takes: nothing where `low` keeps the cores busy,
//! else a few requests; and a queue up to `high`.
//!
//! A trial that sees no completion for [`QUIET_S`], or [`QUIET_SERVICES`] services if that is longer, is given
//! up: while all that was let in is abandoned, or nothing comes, its limit must not stay.
//!
//! Cost: O(1) per event, O(candidates) per trial, no allocation.

use super::grid::{CANDIDATES, Misfits, cores};

/// Least completions that are compared on each side.
pub const LEAST_COMPLETIONS: u32 = 48;
/// And at least so many times the upper limit.
const STAYS: u32 = 2;
/// Part of the misfits that a further trial leaves.
const KEPT: f64 = 0.9;
/// Most that one trial says against a candidate: too little to rule it out, for chance may have favoured one
/// side, as it is where few requests take most of the time.
const MOST_PER_TRIAL: f64 = 3.0;
/// Least variance of completions over Poisson's: that of services whose standard deviation is 1.4 means. It
/// is that of the services where these are spread wider.
const NOISE: f64 = 2.0;

/// Seconds without a completion after which a trial is given up.
pub const QUIET_S: f64 = 10.0;
/// And at least so many times what a request takes alone.
const QUIET_SERVICES: f64 = 10.0;

#[derive(Clone, Copy, Debug, Default)]
struct Side {
    seconds: f64,
    in_flight_seconds: f64,
    completions: u32,
}

impl Side {
    fn core_seconds(&self, cores: f64) -> f64 {
        self.in_flight_seconds.min(cores * self.seconds)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Low,
    High,
}

/// Trials one after the other, and what they found.
#[derive(Clone, Debug)]
pub struct Trials {
    phase: Phase,
    limits: (u32, u32),
    /// The number in flight is where the phase wants it.
    settled: bool,
    /// Completions that this phase has waited for that.
    waited: u32,
    /// Since it began, or the last completion of it.
    quiet_s: f64,
    low: Side,
    high: Side,
    misfits: Misfits,
}

impl Default for Trials {
    fn default() -> Self {
        Self::new()
    }
}

impl Trials {
    /// None yet.
    pub fn new() -> Self {
        Trials {
            phase: Phase::Idle,
            limits: (0, 0),
            settled: false,
            waited: 0,
            quiet_s: 0.0,
            low: Side::default(),
            high: Side::default(),
            misfits: Misfits::NONE,
        }
    }

    /// Begins one with these limits, unless one is under way.
    pub fn begin(&mut self, low: u32, high: u32) {
        if self.phase == Phase::Idle {
            self.limits = (low, high);
            (self.low, self.high) = (Side::default(), Side::default());
            self.quiet_s = 0.0;
            self.enter(Phase::Low);
        }
    }

    /// Ends the one that is under way, without a finding.
    pub fn stop(&mut self) {
        self.phase = Phase::Idle;
    }

    /// The limit that a trial sets, while there is one.
    pub fn limit(&self) -> Option<u32> {
        match self.phase {
            Phase::Idle => None,
            Phase::Low => Some(self.limits.0),
            Phase::High => Some(self.limits.1),
        }
    }

    /// So many were in flight for so long, and one takes so long alone, as far as that is known.
    pub fn pass(&mut self, in_flight: u32, seconds: f64, service_s: Option<f64>) {
        self.quiet_s += seconds;
        if self.quiet_s > QUIET_S.max(QUIET_SERVICES * service_s.unwrap_or(0.0)) {
            self.phase = Phase::Idle;
        }
        let side = match self.phase {
            Phase::Idle => return,
            Phase::Low => &mut self.low,
            Phase::High => &mut self.high,
        };
        if self.settled {
            side.seconds += seconds;
            side.in_flight_seconds += f64::from(in_flight) * seconds;
        } else {
            self.settled = self.phase == Phase::Low && in_flight <= self.limits.0;
        }
    }

    /// A request was refused: there are as many in flight as may be.
    pub fn refused(&mut self) {
        self.settled |= self.phase == Phase::High;
    }

    /// A request was done; whether that ended a trial, and if so its upper limit. `variation` is the squared
    /// one of service times.
    pub fn complete(&mut self, variation: f64) -> Option<u32> {
        let wanted = LEAST_COMPLETIONS.max(self.limits.1.saturating_mul(STAYS));
        if self.phase == Phase::Idle {
            return None;
        }
        self.quiet_s = 0.0;
        if !self.settled {
            self.waited += 1;
            match self.phase {
                // Requests that come are fewer than may, for longer than one stays: it is as it is.
                Phase::High => self.settled = self.waited >= self.limits.1,
                // Requests that neither end nor let the number fall tell nothing.
                _ if self.waited > wanted => self.phase = Phase::Idle,
                _ => {}
            }
            return None;
        }
        let side = if self.phase == Phase::Low { &mut self.low } else { &mut self.high };
        side.completions += 1;
        if side.completions < wanted {
            return None;
        }
        if self.phase == Phase::Low {
            self.enter(Phase::High);
            return None;
        }
        self.judge(variation.max(NOISE));
        self.phase = Phase::Idle;
        Some(self.limits.1)
    }

    pub(crate) fn misfits(&self) -> &Misfits {
        &self.misfits
    }

    fn enter(&mut self, phase: Phase) {
        (self.phase, self.settled, self.waited) = (phase, false, 0);
    }

    fn judge(&mut self, noise: f64) {
        let (low, high) = (f64::from(self.low.completions), f64::from(self.high.completions));
        let mut found = [0.0; CANDIDATES];
        for (k, found) in found.iter_mut().enumerate() {
            let c = cores(k);
            let (b_low, b_high) = (self.low.core_seconds(c), self.high.core_seconds(c));
            let off = low * b_high - high * b_low;
            *found = off * off / (noise * (low + high) * b_low * b_high).max(f64::MIN_POSITIVE);
        }
        self.misfits.add(&found, KEPT, MOST_PER_TRIAL);
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid::position;
    use super::*;

    /// A whole trial on an application of 10 completions per second and core.
    fn trial(trials: &mut Trials, cores: u32, low: u32, high: u32) {
        trials.begin(low, high);
        let mut ended = None;
        while ended.is_none() {
            let limit = trials.limit().expect("under way");
            trials.refused();
            trials.pass(limit, 0.1 / f64::from(limit.min(cores)), Some(0.1));
            ended = trials.complete(1.0);
        }
        assert_eq!((ended, trials.limit()), (Some(high), None));
    }

    fn misfit(trials: &Trials, cores: u32) -> f64 {
        trials.misfits().at(position(cores))
    }

    #[test]
    fn equal_throughput_is_against_many_cores_and_rising_throughput_against_few() {
        let mut flat = Trials::new();
        (0..5).for_each(|_| trial(&mut flat, 2, 4, 8));
        assert!(misfit(&flat, 1) < 0.1 && misfit(&flat, 4) < 0.1);
        assert!(misfit(&flat, 8) > 10.0 && misfit(&flat, 65_536) > 10.0);
        let mut rising = Trials::new();
        (0..5).for_each(|_| trial(&mut rising, 100, 4, 8));
        assert!(misfit(&rising, 4) > 10.0);
        assert!(misfit(&rising, 8) < 0.1 && misfit(&rising, 65_536) < 0.1);
    }

    #[test]
    fn a_change_is_believed_after_a_few() {
        let mut trials = Trials::new();
        (0..50).for_each(|_| trial(&mut trials, 2, 4, 8));
        (0..8).for_each(|_| trial(&mut trials, 100, 4, 8));
        assert!(misfit(&trials, 4) > 4.0 && misfit(&trials, 8) < 4.0);
    }

    #[test]
    fn what_does_not_settle_is_given_up() {
        let mut trials = Trials::new();
        trials.begin(1, 2);
        for _ in 0..LEAST_COMPLETIONS + 1 {
            trials.pass(5, 1.0, None);
            assert_eq!(trials.complete(1.0), None);
        }
        assert_eq!(trials.limit(), None);
        assert_eq!(misfit(&trials, 1), misfit(&trials, 100));
    }

    #[test]
    fn without_completions_it_ends_by_time() {
        let after = |service_s, completes: bool| {
            let mut trials = Trials::new();
            trials.begin(1, 8);
            (1..200).find(|_| {
                trials.pass(1, 1.0, service_s);
                if completes {
                    trials.complete(1.0);
                }
                trials.limit().is_none()
            })
        };
        assert_eq!((after(None, false), after(Some(0.1), false)), (Some(11), Some(11)));
        assert_eq!(after(Some(5.0), false), Some(51), "of what is slow more is waited for");
        assert_eq!(after(None, true), Some(2 * LEAST_COMPLETIONS as usize + 8));
    }
}
