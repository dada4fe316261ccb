//! When the probes of one backend are due.
//!
//! Slots lie one gap apart; chance shifts the first by up to a gap, and each by up to half a gap times
//! the jitter, so that the probes of many backends, or of many Plimsolls to one backend, neither start
//! together nor drift together. Due times follow the slots and not the last probe: lateness does not
//! add up.

use std::time::Duration;

use plimsoll_model::{BackendId, Nanos};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::ProbePlan;

/// Slots missed by more than this, and by more than a gap, are dropped: a stall of the process must
/// not end in a burst of probes.
const MAX_LATENESS: Duration = Duration::from_millis(100);

/// Chance for one use at one backend: the same in every run with the same seed.
pub(crate) fn chance(seed: u64, backend: BackendId, purpose: u64) -> Xoshiro256PlusPlus {
    // An odd multiplier keeps distinct pairs distinct; seed_from_u64 does the mixing.
    let pair = (u64::from(backend.0) << 8 | purpose).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Xoshiro256PlusPlus::seed_from_u64(seed ^ pair)
}

/// The due times of one backend's probes.
#[derive(Debug)]
pub(crate) struct Cadence {
    rng: Xoshiro256PlusPlus,
    plan: ProbePlan,
    /// The next slot, and when the probe of it is due; `None` when paused.
    next: Option<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    at: Nanos,
    due: Nanos,
}

impl Cadence {
    pub fn new(rng: Xoshiro256PlusPlus, plan: ProbePlan, now: Nanos) -> Self {
        let mut cadence = Cadence { rng, plan: ProbePlan::PAUSED, next: None };
        cadence.change(plan, now);
        cadence
    }

    /// When the next probe is due; `None` when paused.
    pub fn due(&self) -> Option<Nanos> {
        self.next.map(|slot| slot.due)
    }

    /// Goes on to the slot after the one that was due.
    pub fn advance(&mut self, now: Nanos) {
        let (Some(slot), Some(gap)) = (self.next, self.plan.gap()) else { return };
        let mut at = slot.at + gap;
        let late = now.since(at);
        if late > gap.max(MAX_LATENESS) {
            let slots = late.as_nanos() / gap.as_nanos();
            at = at + Duration::from_nanos((slots * gap.as_nanos()) as u64);
        }
        self.next = Some(self.slot(at, gap));
    }

    /// Takes another plan. What was left of the gap is left in proportion, so that a plan that
    /// changes often neither starves the backend nor hurries it.
    pub fn change(&mut self, plan: ProbePlan, now: Nanos) {
        let left = match (self.next, self.plan.gap()) {
            (Some(slot), Some(gap)) => {
                (slot.at.since(now).as_secs_f64() / gap.as_secs_f64()).min(1.0)
            }
            _ => self.rng.random::<f64>(),
        };
        self.plan = plan;
        self.next = plan.gap().map(|gap| self.slot(now + gap.mul_f64(left), gap));
    }

    fn slot(&mut self, at: Nanos, gap: Duration) -> Slot {
        // Both ways around the slot: half a gap at most, so that slots keep their order.
        let shift = (self.rng.random::<f64>() - 0.5) * self.plan.jitter();
        let span = gap.mul_f64(shift.abs());
        Slot { at, due: if shift < 0.0 { at - span } else { at + span } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn plan(gap: Duration, jitter: f64) -> ProbePlan {
        ProbePlan::new(gap, 1, jitter).unwrap()
    }

    fn cadence(backend: u32, plan: ProbePlan) -> Cadence {
        Cadence::new(chance(7, BackendId(backend), 0), plan, Nanos::ZERO)
    }

    /// The first due times, in milliseconds, when probes go out on time.
    fn dues(mut cadence: Cadence, count: usize) -> Vec<f64> {
        let mut dues = Vec::new();
        for _ in 0..count {
            let due = cadence.due().expect("not paused");
            dues.push(due.as_secs_f64() * 1e3);
            cadence.advance(due);
        }
        dues
    }

    #[test]
    fn without_jitter_it_is_a_metronome_with_a_phase() {
        let dues = dues(cadence(1, plan(10 * MS, 0.0)), 50);
        assert!((0.0..10.0).contains(&dues[0]));
        for pair in dues.windows(2) {
            assert!((pair[1] - pair[0] - 10.0).abs() < 1e-3);
        }
    }

    #[test]
    fn jitter_moves_probes_within_their_gap_and_never_the_rate() {
        let dues = dues(cadence(1, plan(10 * MS, 1.0)), 1000);
        assert!(dues.windows(2).all(|pair| pair[0] <= pair[1]));
        let spread = dues.windows(2).map(|pair| (pair[1] - pair[0] - 10.0).abs()).sum::<f64>();
        assert!(spread / 999.0 > 2.0, "mean change of gap {} ms", spread / 999.0);
        assert!((dues[999] - dues[0] - 9990.0).abs() <= 10.0);
    }

    #[test]
    fn backends_do_not_start_together_and_a_seed_repeats_itself() {
        let first: Vec<f64> =
            (0..100).map(|b| dues(cadence(b, plan(10 * MS, 0.0)), 1)[0]).collect();
        let mut buckets = [0; 10];
        first.iter().for_each(|due| buckets[*due as usize] += 1);
        assert!(buckets.iter().all(|&count| (2..=25).contains(&count)), "{buckets:?}");
        let again = dues(cadence(3, plan(10 * MS, 0.7)), 20);
        assert_eq!(again, dues(cadence(3, plan(10 * MS, 0.7)), 20));
    }

    #[test]
    fn a_plan_that_changes_all_the_time_still_fires() {
        let mut cadence = cadence(1, plan(1000 * MS, 0.0));
        let mut fired = 0;
        for ms in 0..10_000u32 {
            let now = Nanos::ZERO + ms * MS;
            cadence.change(plan(if ms % 2 == 0 { 999 * MS } else { 1000 * MS }, 0.0), now);
            while cadence.due().expect("not paused") <= now {
                fired += 1;
                cadence.advance(now);
            }
        }
        assert!((9..=11).contains(&fired), "{fired}");
    }

    #[test]
    fn a_stall_is_not_made_up_for() {
        let mut cadence = cadence(1, plan(10 * MS, 0.0));
        let due = cadence.due().expect("not paused");
        let late = due + 10_005 * MS;
        cadence.advance(late);
        let next = cadence.due().expect("not paused");
        assert!(next <= late && late.since(next) < 10 * MS);
        cadence.change(ProbePlan::PAUSED, late);
        assert_eq!(cadence.due(), None);
        cadence.advance(late);
        assert_eq!(cadence.due(), None);
    }

    #[test]
    fn rates_above_the_timers_grain_catch_up() {
        let mut cadence = cadence(1, ProbePlan::new(MS, 100, 0.0).unwrap());
        let mut fired = 0;
        for ms in 1..=1000 {
            let now = Nanos::ZERO + ms * MS;
            while cadence.due().expect("not paused") <= now {
                fired += 1;
                cadence.advance(now);
            }
        }
        assert!((99_900..=100_100).contains(&fired), "{fired}");
    }
}
