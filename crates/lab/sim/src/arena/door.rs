//! [`plimsoll_admission`] in front of a simulated backend of any number of cores.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_admission::{
    Admission, AdmissionOptions, AdmissionOptionsError, Arrival, CapacityOptions, Decision, Ended,
    Permit, Reason,
};
use plimsoll_model::Nanos;
use rand::RngCore;

use super::{Ingress, Offer, Refusal};
use crate::BackendModel;

/// [`Admission`] in front of a backend.
pub struct AdmissionDoor {
    admission: Admission,
    /// Permits of admitted requests, by arrival.
    permits: VecDeque<(Nanos, Permit)>,
    heeds_deadlines: bool,
}

impl AdmissionDoor {
    /// An admission without any experience.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn new(options: &AdmissionOptions) -> Result<Self, AdmissionOptionsError> {
        let admission = Admission::new(options)?;
        Ok(AdmissionDoor { admission, permits: VecDeque::new(), heeds_deadlines: true })
    }

    /// An admission that does not know how long clients wait, for comparison.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn without_deadlines(options: &AdmissionOptions) -> Result<Self, AdmissionOptionsError> {
        Ok(AdmissionDoor { heeds_deadlines: false, ..Self::new(options)? })
    }

    /// One admission per backend.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn for_each(
        pool: &[BackendModel],
        options: &AdmissionOptions,
    ) -> Result<Vec<Box<dyn Ingress>>, AdmissionOptionsError> {
        pool.iter().map(|_| Ok(Box::new(Self::new(options)?) as Box<dyn Ingress>)).collect()
    }

    /// One for each backend, of these capacities.
    ///
    /// # Errors
    /// When one is out of range.
    pub fn of_capacities(
        capacities: &[CapacityOptions],
    ) -> Result<Vec<Box<dyn Ingress>>, AdmissionOptionsError> {
        let door = |&capacity: &CapacityOptions| {
            let options = AdmissionOptions { capacity, deadline_ms: None };
            Ok(Box::new(Self::new(&options)?) as Box<dyn Ingress>)
        };
        capacities.iter().map(door).collect()
    }

    /// The permit of the request that was admitted this long ago.
    fn take(&mut self, now: Nanos, ago: Duration) -> Option<Permit> {
        let at = self.permits.iter().position(|&(at, _)| at + ago == now)?;
        self.permits.remove(at).map(|(_, permit)| permit)
    }
}

impl Ingress for AdmissionDoor {
    fn admits(&mut self, offer: &Offer, rng: &mut dyn RngCore) -> Result<(), Refusal> {
        let time_left = offer.left.filter(|_| self.heeds_deadlines);
        let arrival = Arrival { time_left, tries_left: offer.tries_left };
        match self.admission.decide(offer.now, offer.in_flight, arrival) {
            Decision::Admit(permit) => {
                self.permits.push_back((offer.now, permit));
                Ok(())
            }
            Decision::Reject(reason) => {
                let is_of_the_request = matches!(reason, Reason::Deadline { .. });
                let chip = || self.admission.chip(offer.in_flight, rng);
                Err(Refusal { reason, chip: is_of_the_request.then(chip) })
            }
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
        // A failure is no evidence of room.
        let chip = ok && self.admission.chip(in_flight, rng);
        if let Some(permit) = self.take(now, latency) {
            let ended = if ok { Ended::Answered } else { Ended::Failed };
            self.admission.finish(now, in_flight.saturating_sub(1), permit, ended);
        }
        Some(chip)
    }

    fn gone(&mut self, now: Nanos, in_flight: u32, waited: Duration) {
        if let Some(permit) = self.take(now, waited) {
            self.admission.finish(now, in_flight, permit, Ended::Abandoned);
        }
    }

    fn cores(&self) -> Option<f32> {
        self.admission.cores().map(|cores| cores as f32)
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
    fn admission_admits_its_capacity_and_chips_end_at_four_fifths_of_it() {
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
        assert_eq!(door.admits(&offer(9), &mut rng), Ok(()));
        assert_eq!(door.admits(&offer(10), &mut rng), Err(Refusal::FULL));
        let mut chips = |in_flight| {
            let mut chip = || door.leaves(Nanos::ZERO, in_flight, Duration::ZERO, true, &mut rng);
            (0..1_000).filter(|_| chip() == Some(true)).count()
        };
        assert_eq!(chips(8), 0);
        assert!((450..550).contains(&chips(4)));
    }

    #[test]
    fn request_that_would_be_late_is_refused_for_that_and_the_chip_is_kept() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let options = AdmissionOptions { capacity: CapacityOptions::Static(10), deadline_ms: None };
        let mut door = AdmissionDoor::new(&options).expect("valid options");
        let took = Duration::from_millis(20);
        let mut offer =
            Offer { now: Nanos::ZERO, in_flight: 0, refusals: 0, tries_left: 0, left: None };
        for _ in 0..200 {
            assert_eq!(door.admits(&offer, &mut rng), Ok(()));
            offer.now = offer.now + took;
            assert_eq!(door.leaves(offer.now, 1, took, true, &mut rng).map(|_| ()), Some(()));
        }
        offer.left = Some(took / 2);
        let refusal = door.admits(&offer, &mut rng);
        assert_eq!(
            refusal,
            Err(Refusal { reason: Reason::Deadline { is_idle: true }, chip: Some(true) })
        );
        (offer.in_flight, offer.left) = (9, Some(took * 2));
        let refusal = door.admits(&offer, &mut rng);
        assert_eq!(refusal, Err(Refusal { reason: Reason::Queue, chip: None }));
    }

    /// Against every limit by true cores, of which the best has the least 99th percentile among those that
    /// serve within 1 % as much as any.
    #[test]
    fn learned_limits_of_many_cores_are_as_good_as_the_best_static_ones() {
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
            let limits = [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0]
                .map(|factor| run(StaticLimit::times_cores(&arena.pool, factor)));
            let most = limits.iter().map(|report| report.goodput_rps).fold(0.0, f64::max);
            let good = limits.iter().filter(|report| report.goodput_rps >= 0.99 * most);
            let best_us = good.map(|report| report.p99_us).fold(f64::INFINITY, f64::min);
            let options = AdmissionOptions::default();
            let learned = run(AdmissionDoor::for_each(&pool, &options).expect("valid options"));
            let (goodput, p99) = (learned.goodput_rps / most, learned.p99_us / best_us);
            assert!(goodput > 0.97 && p99 < 1.1, "at {load}: {goodput:.3} served, p99 {p99:.2}");
        }
    }
}
