//! [`plimsoll_admission`] in front of a simulated backend of any number of cores.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_admission::{
    Admission, AdmissionOptions, Arrival, CapacityOptionsError, Decision, Ended, Permit,
};
use plimsoll_model::Nanos;
use rand::RngCore;

use super::{Ingress, Offer};
use crate::BackendModel;

/// [`Admission`] at a backend's door.
pub struct AdmissionDoor {
    admission: Admission,
    /// Of those in the backend, by arrival.
    permits: VecDeque<(Nanos, Permit)>,
    heeds_deadlines: bool,
}

impl AdmissionDoor {
    /// One that has seen nothing yet.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn new(options: &AdmissionOptions) -> Result<Self, CapacityOptionsError> {
        let admission = Admission::new(options)?;
        Ok(AdmissionDoor { admission, permits: VecDeque::new(), heeds_deadlines: true })
    }

    /// One that is not told how long clients wait, to compare with.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn without_deadlines(options: &AdmissionOptions) -> Result<Self, CapacityOptionsError> {
        Ok(AdmissionDoor { heeds_deadlines: false, ..Self::new(options)? })
    }

    /// One for each backend.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn for_each(
        pool: &[BackendModel],
        options: &AdmissionOptions,
    ) -> Result<Vec<Box<dyn Ingress>>, CapacityOptionsError> {
        pool.iter().map(|_| Ok(Box::new(Self::new(options)?) as Box<dyn Ingress>)).collect()
    }
}

impl Ingress for AdmissionDoor {
    fn admits(&mut self, offer: &Offer, _rng: &mut dyn RngCore) -> bool {
        // Who was cancelled in the queue, or died with the backend, does not come out by the door. Who
        // waits is younger than who is served.
        while self.permits.len() > offer.in_flight as usize {
            self.permits.pop_back();
        }
        let time_left = offer.left.filter(|_| self.heeds_deadlines);
        let arrival = Arrival { time_left, tries_left: offer.tries_left };
        match self.admission.decide(offer.now, offer.in_flight, arrival) {
            Decision::Admit(permit) => {
                self.permits.push_back((offer.now, permit));
                true
            }
            Decision::Reject(_) => false,
        }
    }

    fn leaves(
        &mut self,
        now: Nanos,
        in_flight: u32,
        latency: Duration,
        ok: bool,
        rng: &mut dyn RngCore,
    ) -> Option<bool> {
        // A failure is no reason for confidence.
        let chip = ok && self.admission.chip(in_flight, rng);
        let came = self.permits.iter().position(|&(at, _)| at + latency == now);
        if let Some((_, permit)) = came.and_then(|k| self.permits.remove(k)) {
            let ended = if ok { Ended::Answered } else { Ended::Failed };
            self.admission.finish(now, in_flight.saturating_sub(1), permit, ended);
        }
        Some(chip)
    }

    fn limit(&self) -> Option<u32> {
        self.admission.limit().map(|limit| limit as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arena, StaticLimit, Surroundings};
    use plimsoll_admission::{CapacityOptions, RetryOptions};
    use plimsoll_policy::{Policy, PolicyKind, Settings};
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn it_lets_in_its_capacity_and_its_chips_end_at_four_fifths_of_it() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let options = AdmissionOptions { capacity: CapacityOptions::Static(10), deadline_ms: None };
        let mut door = AdmissionDoor::new(&options).expect("valid options");
        let offer = |in_flight| Offer {
            now: Nanos::ZERO,
            in_flight,
            refusals: 0,
            tries_left: 0,
            left: None,
        };
        assert!(door.admits(&offer(9), &mut rng) && !door.admits(&offer(10), &mut rng));
        let mut chips = |in_flight| {
            let mut chip = || door.leaves(Nanos::ZERO, in_flight, Duration::ZERO, true, &mut rng);
            (0..1_000).filter(|_| chip() == Some(true)).count()
        };
        assert_eq!(chips(8), 0);
        assert!((450..550).contains(&chips(4)));
    }

    /// Against every limit by true cores, of which the best has the least 99th percentile among those that
    /// serve within 1 % as much as any.
    #[test]
    fn a_pool_of_many_cores_is_served_as_by_the_best_limits_that_are_told() {
        let pool: Vec<BackendModel> =
            [1, 2, 4, 8].map(|cores| BackendModel { cores, speed: 1.0 }).to_vec();
        for load in [0.85, 1.2] {
            let mut arena = Arena::new(pool.clone(), load, 200_000, 3);
            arena.warm_up = 100_000;
            arena.retry = RetryOptions::of_refusals(3);
            let run = |mut doors: Vec<Box<dyn Ingress>>| {
                let bloc = PolicyKind::Bloc.build(&[1, 2, 4, 8], &Settings::default());
                let mut balancers: [Box<dyn Policy>; 1] = [bloc.expect("valid settings")];
                arena.run_with(&mut balancers, Surroundings { ingress: &mut doors })
            };
            let told = [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0]
                .map(|factor| run(StaticLimit::times_cores(&arena.pool, factor)));
            let most = told.iter().map(|report| report.goodput_rps).fold(0.0, f64::max);
            let good = told.iter().filter(|report| report.goodput_rps >= 0.99 * most);
            let best_us = good.map(|report| report.p99_us).fold(f64::INFINITY, f64::min);
            let options = AdmissionOptions::default();
            let learned = run(AdmissionDoor::for_each(&pool, &options).expect("valid options"));
            let (goodput, p99) = (learned.goodput_rps / most, learned.p99_us / best_us);
            assert!(goodput > 0.97 && p99 < 1.1, "at {load}: {goodput:.3} served, p99 {p99:.2}");
        }
    }
}
