use std::time::Duration;

use plimsoll_model::Nanos;
use rand::RngCore;

/// How many backends a request can avoid; a retry budget is smaller.
pub const MAX_AVOID: usize = 16;

/// Picks a backend for each request.
///
/// Every request that was picked for is told twice: once to [`Policy::on_start`] when it is sent, and
/// once to [`Policy::on_finish`] when it ends, however it ends.
pub trait Policy: Send {
    /// Replaces all weights: one per backend, in order of index, of any scale. Weight 0 takes a
    /// backend out of the choice, which is also how one is removed, drained or found dead: its index
    /// stays its own, and so do the requests that it still has. More weights than before add
    /// backends; those beyond a shorter list have weight 0. What was learned stays.
    fn set_weights(&mut self, weights: &[u32]);

    /// The backend for this request: one of weight above 0 that the request does not avoid. `None`
    /// when there is none.
    fn pick(&mut self, request: &Request<'_>, now: Nanos, rng: &mut dyn RngCore) -> Option<usize>;

    /// A request was sent to this backend, an index that was given a weight.
    fn on_start(&mut self, _backend: usize, _now: Nanos) {}

    /// A request that was sent to this backend has ended.
    fn on_finish(&mut self, _backend: usize, _finish: &Finish, _now: Nanos) {}
}

/// What a policy may know of a request before it is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// Hash of what keeps requests together (an address, a URI, a header); `None` where the request
    /// has no such thing.
    pub key: Option<u64>,
    avoid: &'a [usize],
}

impl<'a> Request<'a> {
    /// A request that belongs with others of the same hash.
    pub fn with_key(key: u64) -> Self {
        Request { key: Some(key), avoid: &[] }
    }

    /// The same request, not to be sent to these backends: those which failed or rejected it. Only
    /// the last [`MAX_AVOID`] of them count.
    pub fn avoiding(self, backends: &'a [usize]) -> Self {
        let from = backends.len().saturating_sub(MAX_AVOID);
        Request { avoid: &backends[from..], ..self }
    }

    /// Backends it must not be sent to.
    pub fn avoided(&self) -> &'a [usize] {
        self.avoid
    }

    pub(crate) fn allows(&self, backend: usize) -> bool {
        self.avoid.is_empty() || !self.avoid.contains(&backend)
    }
}

/// How a request ended, as far as it tells of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The backend answered as it should.
    Success,
    /// No answer, or one that says that the backend could not serve.
    Failure,
    /// Given up by the client: says nothing of the backend.
    Abandoned,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    /// From [`Policy::on_start`] until now.
    pub latency: Duration,
    /// How it ended.
    pub ending: Ending,
}

impl Finish {
    /// A success after this time.
    pub fn success(latency: Duration) -> Self {
        Finish { latency, ending: Ending::Success }
    }

    /// A failure after this time.
    pub fn failure(latency: Duration) -> Self {
        Finish { latency, ending: Ending::Failure }
    }

    /// Given up by the client after this time.
    pub fn abandoned(latency: Duration) -> Self {
        Finish { latency, ending: Ending::Abandoned }
    }

    pub(crate) fn latency_us(&self) -> f64 {
        self.latency.as_nanos() as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_fail_are_avoided() {
        let failed: Vec<usize> = (0..20).collect();
        let request = Request::default().avoiding(&failed);
        assert!(request.allows(3) && !request.allows(4) && !request.allows(19));
        assert!(Request::default().allows(0));
    }
}
