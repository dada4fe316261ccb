//! The ingress of a simulated backend: the very admission that a proxy runs.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_admission::{
    Admission, AdmissionOptions, Arrival, CapacityOptions, Decision, Ended, Permit,
};
use plimsoll_model::Nanos;
use plimsoll_sim::{Ingress, Offer};
use rand::RngCore;

use crate::Failure;

/// In front of one backend that serves one request at a time, first in first out: so permits come back
/// in the order in which they were given.
pub struct Gate {
    admission: Admission,
    permits: VecDeque<Permit>,
}

impl Gate {
    /// With this capacity.
    pub fn new(capacity: CapacityOptions) -> Result<Self, Failure> {
        let options = AdmissionOptions { capacity, deadline_ms: None };
        let admission = Admission::new(&options).map_err(|e| Failure::Other(e.to_string()))?;
        Ok(Gate { admission, permits: VecDeque::new() })
    }
}

impl Ingress for Gate {
    fn admits(&mut self, offer: &Offer, _: &mut dyn RngCore) -> bool {
        let arrival = Arrival { time_left: offer.left, will_retry: !offer.last };
        match self.admission.decide(offer.now, offer.in_flight, arrival) {
            Decision::Admit(permit) => {
                self.permits.push_back(permit);
                true
            }
            Decision::Reject(_) => false,
        }
    }

    fn leaves(
        &mut self,
        now: Nanos,
        in_flight: u32,
        _: Duration,
        ok: bool,
        rng: &mut dyn RngCore,
    ) -> Option<bool> {
        let chip = self.admission.chip(in_flight, rng);
        if let Some(permit) = self.permits.pop_front() {
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
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn it_lets_in_its_capacity_and_its_chips_end_at_four_fifths_of_it() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut gate = Gate::new(CapacityOptions::Static(10)).unwrap();
        let offer =
            |in_flight| Offer { now: Nanos::ZERO, in_flight, refusals: 0, last: true, left: None };
        assert!(gate.admits(&offer(9), &mut rng) && !gate.admits(&offer(10), &mut rng));
        let mut chips = |in_flight| {
            (0..1_000)
                .filter(|_| {
                    gate.leaves(Nanos::ZERO, in_flight, Duration::ZERO, true, &mut rng)
                        == Some(true)
                })
                .count()
        };
        assert_eq!(chips(8), 0);
        assert!((450..550).contains(&chips(4)));
    }
}
