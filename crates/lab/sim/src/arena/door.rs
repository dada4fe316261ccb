//! The admission that a proxy runs, in front of a simulated backend of any number of cores.

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
}

impl AdmissionDoor {
    /// One that has seen nothing yet.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn new(options: &AdmissionOptions) -> Result<Self, CapacityOptionsError> {
        Ok(AdmissionDoor { admission: Admission::new(options)?, permits: VecDeque::new() })
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
        let arrival = Arrival { time_left: offer.left, will_retry: !offer.last };
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
        let chip = self.admission.chip(in_flight, rng);
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
    use crate::{Arena, Surroundings};
    use plimsoll_admission::CapacityOptions;
    use plimsoll_policy::{Policy, PolicyKind, Settings};
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn it_lets_in_its_capacity_and_its_chips_end_at_four_fifths_of_it() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let options = AdmissionOptions { capacity: CapacityOptions::Static(10), deadline_ms: None };
        let mut door = AdmissionDoor::new(&options).expect("valid options");
        let offer =
            |in_flight| Offer { now: Nanos::ZERO, in_flight, refusals: 0, last: true, left: None };
        assert!(door.admits(&offer(9), &mut rng) && !door.admits(&offer(10), &mut rng));
        let mut chips = |in_flight| {
            let mut chip = || door.leaves(Nanos::ZERO, in_flight, Duration::ZERO, true, &mut rng);
            (0..1_000).filter(|_| chip() == Some(true)).count()
        };
        assert_eq!(chips(8), 0);
        assert!((450..550).contains(&chips(4)));
    }

    #[test]
    fn a_pool_of_many_cores_is_served_behind_doors_that_learn() {
        let pool: Vec<BackendModel> =
            [1, 2, 4, 8].map(|cores| BackendModel { cores, speed: 1.0 }).to_vec();
        let mut arena = Arena::new(pool, 1.2, 200_000, 3);
        arena.warm_up = 100_000;
        arena.retries = 3;
        let capacity: f64 = arena.capacities_rps().iter().sum();
        let run = |capacity| {
            let options = AdmissionOptions { capacity, deadline_ms: None };
            let mut doors = AdmissionDoor::for_each(&arena.pool, &options).expect("valid options");
            let bloc = PolicyKind::Bloc.build(&[1, 2, 4, 8], &Settings::default());
            let mut balancers: [Box<dyn Policy>; 1] = [bloc.expect("valid settings")];
            let around = Surroundings { ingress: &mut doors, ..Surroundings::default() };
            let report = arena.run_with(&mut balancers, around);
            let limits: Vec<u32> = doors.iter().filter_map(|door| door.limit()).collect();
            (report, limits)
        };
        let (learned, limits) = run(CapacityOptions::default());
        assert!(learned.goodput_rps > 0.95 * capacity, "{} of {capacity}", learned.goodput_rps);
        assert!(limits[3] > limits[0] && limits[3] < 40, "{limits:?}");
        let (open, _) = run(CapacityOptions::Static(100_000));
        assert!(learned.p99_us < 0.1 * open.p99_us, "{} {}", learned.p99_us, open.p99_us);
    }
}
