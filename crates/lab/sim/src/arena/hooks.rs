//! Hooks around a policy: admission in front of a backend, as a trait, so that any limiter can be tried.

use std::time::Duration;

use plimsoll_admission::Reason;
use plimsoll_model::Nanos;
use rand::RngCore;

/// A request that asks for admission at a backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// When.
    pub now: Nanos,
    /// Requests at the backend, without this one.
    pub in_flight: u32,
    /// How often other backends have refused this request.
    pub refusals: u32,
    /// How often it can be tried at another backend: 0 where a refusal is final.
    pub tries_left: u32,
    /// Time until the client gives up; `None` where it waits without limit.
    pub left: Option<Duration>,
}

/// A refused admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The chip that the refusal carries, if any.
    pub chip: Option<bool>,
}

impl Refusal {
    /// The limit of requests in flight is reached.
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

    /// A request admitted this time ago leaves without an answer: its client gave up while it was queued, or it was
    /// lost with the backend. `in_flight` remain.
    fn gone(&mut self, _now: Nanos, _in_flight: u32, _waited: Duration) {}

    /// How many cores it has learned that there are, for balancers that probe; `None` if it has not.
    fn cores(&self) -> Option<f32> {
        None
    }

    /// Its present limit, for reports; `None` if it has none.
    fn limit(&self) -> Option<u32> {
        None
    }
}

/// Admits below a constant number of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticLimit {
    /// The greatest number of requests in flight.
    pub limit: u32,
}

impl StaticLimit {
    /// One per backend: `factor` times its cores, at least 1.
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

/// The hooks of one run. An empty list admits every request.
#[derive(Default)]
pub struct Surroundings<'a> {
    /// One for each backend, or none.
    pub ingress: &'a mut [Box<dyn Ingress>],
}
