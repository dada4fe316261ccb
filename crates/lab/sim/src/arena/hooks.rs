//! What stands around a policy: admission in front of a backend. It is asked through a trait, so that any
//! limiter can be tried.

use std::time::Duration;

use plimsoll_admission::Reason;
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
    /// How often it would be tried elsewhere: 0 where a refusal is for good.
    pub tries_left: u32,
    /// What is left until the client gives up; `None` where it waits for ever.
    pub left: Option<Duration>,
}

/// A request is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The chip that the refusal carries, if it does.
    pub chip: Option<bool>,
}

impl Refusal {
    /// As many are in flight as may be.
    pub const FULL: Refusal = Refusal { reason: Reason::Full, chip: None };
}

/// Admission in front of one backend.
pub trait Ingress {
    /// Whether this request may enter.
    ///
    /// # Errors
    /// The refusal, if it may not.
    fn admits(&mut self, offer: &Offer, rng: &mut dyn RngCore) -> Result<(), Refusal>;

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

    /// One that was let in this time ago goes without an answer: given up in the queue, or lost with the
    /// backend. `in_flight` are left.
    fn gone(&mut self, _now: Nanos, _in_flight: u32, _waited: Duration) {}

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
    fn admits(&mut self, offer: &Offer, _rng: &mut dyn RngCore) -> Result<(), Refusal> {
        if offer.in_flight < self.limit { Ok(()) } else { Err(Refusal::FULL) }
    }

    fn limit(&self) -> Option<u32> {
        Some(self.limit)
    }
}

/// What stands around the policies in one run. An empty list means that every request is admitted.
#[derive(Default)]
pub struct Surroundings<'a> {
    /// One for each backend, or none.
    pub ingress: &'a mut [Box<dyn Ingress>],
}
