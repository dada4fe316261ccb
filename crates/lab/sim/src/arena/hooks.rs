//! What stands around a policy: admission in front of a backend, a budget for retries in a balancer.
//! Both are asked through these traits, so that any limiter can be tried.

use std::time::Duration;

use plimsoll_model::Nanos;
use rand::RngCore;

/// A request at the door of a backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// When.
    pub now: Nanos,
    /// Requests the backend has, without this one.
    pub in_flight: u32,
    /// How often this request has been refused before, by others.
    pub refusals: u32,
    /// Whether a refusal would be the last: no further try is left.
    pub last: bool,
    /// What is left until the client gives up; `None` where it waits for ever.
    pub left: Option<Duration>,
}

/// Admission in front of one backend.
pub trait Ingress {
    /// Whether this request may enter.
    fn admits(&mut self, offer: &Offer, rng: &mut dyn RngCore) -> bool;

    /// A response leaves after this time in the backend; `in_flight` counts it still. `ok` is whether it
    /// was served. Its result is the chip the response carries, if chips are used.
    fn leaves(
        &mut self,
        _now: Nanos,
        _in_flight: u32,
        _latency: Duration,
        _ok: bool,
        _rng: &mut dyn RngCore,
    ) -> Option<bool> {
        None
    }

    /// Requests it would admit now, for reports; `None` where it has no limit.
    fn limit(&self) -> Option<u32> {
        None
    }
}

/// Admits below a constant number of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticLimit {
    /// The most requests there are at once.
    pub limit: u32,
}

impl StaticLimit {
    /// One for each backend: `factor` times its cores, at least 1.
    pub fn times_cores(pool: &[crate::BackendModel], factor: f64) -> Vec<Box<dyn Ingress>> {
        let limit = |b: &crate::BackendModel| ((f64::from(b.cores) * factor).round() as u32).max(1);
        pool.iter().map(|b| Box::new(StaticLimit { limit: limit(b) }) as Box<dyn Ingress>).collect()
    }
}

impl Ingress for StaticLimit {
    fn admits(&mut self, offer: &Offer, _rng: &mut dyn RngCore) -> bool {
        offer.in_flight < self.limit
    }

    fn limit(&self) -> Option<u32> {
        Some(self.limit)
    }
}

/// Draws the line at its cores for a request that can still go elsewhere, and higher the more often it has
/// been refused: so nobody waits while a core is free that a few tries find, and when none is, the queue is
/// spread over all. The balancer numbers its tries in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Escalating {
    /// How many requests are worked on at once.
    pub cores: u32,
    /// The most there are at once, whatever happens.
    pub most: u32,
}

/// How often [`Escalating`] is made for: more tries cost more and help little.
pub const ESCALATING_RETRIES: u32 = 8;
/// Times its cores, by the number of refusals.
const ESCALATION: [f64; ESCALATING_RETRIES as usize] = [1.0, 1.0, 1.0, 1.0, 1.0, 1.25, 1.5, 2.0];
/// Times its cores, on the last try.
const MOST: u32 = 10;

impl Escalating {
    /// One for each backend.
    pub fn for_each(pool: &[crate::BackendModel]) -> Vec<Box<dyn Ingress>> {
        let door = |b: &crate::BackendModel| Escalating { cores: b.cores, most: MOST * b.cores };
        pool.iter().map(|b| Box::new(door(b)) as Box<dyn Ingress>).collect()
    }
}

impl Ingress for Escalating {
    fn admits(&mut self, offer: &Offer, _rng: &mut dyn RngCore) -> bool {
        if offer.last {
            return offer.in_flight < self.most;
        }
        let step = (offer.refusals as usize).min(ESCALATION.len() - 1);
        f64::from(offer.in_flight) < ESCALATION[step] * f64::from(self.cores)
    }

    fn limit(&self) -> Option<u32> {
        Some(self.cores)
    }
}

/// One balancer's budget for retries.
pub trait Budget {
    /// A request has come.
    fn comes(&mut self, _now: Nanos) {}

    /// A request has ended for its client, whichever way.
    fn ends(&mut self, _now: Nanos) {}

    /// Whether a refused request may try again; if so, it does.
    fn retries(&mut self, now: Nanos) -> bool;
}

/// What stands around the policies in one run. Empty lists mean: every request is admitted, every refused
/// one may use all its tries.
#[derive(Default)]
pub struct Surroundings<'a> {
    /// One for each backend, or none.
    pub ingress: &'a mut [Box<dyn Ingress>],
    /// One for each balancer, or none.
    pub budgets: &'a mut [Box<dyn Budget>],
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn the_line_is_drawn_higher_with_every_late_refusal() {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
        let mut door = Escalating { cores: 4, most: 40 };
        let mut most = |refusals| {
            let last = refusals == ESCALATING_RETRIES;
            let admits = |in_flight: &u32| {
                let (now, in_flight) = (Nanos::ZERO, *in_flight);
                let offer = Offer { now, in_flight, refusals, last, left: None };
                door.admits(&offer, &mut rng)
            };
            (0..100).take_while(admits).count()
        };
        let lines: Vec<usize> = (0..=ESCALATING_RETRIES).map(&mut most).collect();
        assert_eq!(lines, [4, 4, 4, 4, 4, 5, 6, 8, 40]);
    }
}
