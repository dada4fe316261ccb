use std::time::Duration;

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::state::Closed;

/// How many backends a request can avoid; a retry budget is smaller.
pub const MAX_AVOID: usize = 16;

/// Picks a backend for each request.
///
/// Every request that was picked for is reported twice: once to [`Policy::on_start`] when it is sent, and
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

    /// Whether a request that this backend was picked for does better to wait at the balancer, `here` being how long that
    /// is expected to be, and to be picked for again. A balancer that cannot hold requests does not ask.
    fn rather_waits(&mut self, _backend: usize, _here: Duration, _now: Nanos) -> bool {
        false
    }

    /// Whether this backend can begin with one more request at once, where news of it is fresh; `None` where there is none.
    /// Where no backend that answered has room, a balancer asks others, once; and a request for which one without is picked
    /// is sent to wait there ([`Request::is_to_wait`]).
    fn has_room(&self, _backend: usize, _now: Nanos) -> Option<bool> {
        None
    }

    /// A request was sent to this backend, an index that was given a weight.
    fn on_start(&mut self, _backend: usize, _now: Nanos) {}

    /// A request that was sent to this backend has ended.
    fn on_finish(&mut self, _backend: usize, _finish: &Finish, _now: Nanos) {}

    /// When probes go out, if the policy wants any.
    fn probing(&self) -> Probing {
        Probing::Never
    }

    /// Appends to `targets` the backends to ask for their load because of this request: called once for each request, when
    /// [`Policy::probing`] says `Beside` or `Before`, and under `Before` once more where those in `targets` have answered
    /// and none of them has room. Answers go to [`Policy::on_probe`]; one that never comes is not reported.
    fn probe_targets(
        &mut self,
        _request: &Request<'_>,
        _now: Nanos,
        _rng: &mut dyn RngCore,
        _targets: &mut Vec<usize>,
    ) {
    }

    /// What a backend answered to a probe that was sent at `asked`: so it was then, or a little later.
    fn on_probe(&mut self, _backend: usize, _load: ServerLoad, _asked: Nanos) {}

    /// Whether this backend, an index of weight above 0, would take one more request now: it is not full, not ejected and
    /// has a chip where the policy goes by these. Asked for a request that belongs to one backend (a sticky session), in
    /// place of a pick.
    fn takes(&mut self, _backend: usize, _now: Nanos) -> bool {
        true
    }

    /// Whether this backend must get nothing now, whoever says that it has room: it is full or ejected. Asked for a request
    /// that waited for room, where chips do not count: the room is there.
    fn is_closed(&mut self, _backend: usize, _now: Nanos) -> bool {
        false
    }

    /// Picks so far of a backend that was not eligible, for none was: without a chip within its interval, or ejected.
    fn ineligible_picks(&self) -> u64 {
        0
    }
}

/// When a policy asks backends for their load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Probing {
    /// It does not.
    #[default]
    Never,
    /// All of weight above 0, twice while their news is good (`load_age_ms`), whatever is sent.
    Periodic,
    /// Beside each request, which does not wait: answers serve later ones (Prequal's asynchronous mode).
    Beside,
    /// Before each pick, which waits for the answers: fresh, at the price of a round trip, or two where the first asked are
    /// full.
    Before,
}

/// What a backend says of itself, in answer to a probe or with a response.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerLoad {
    /// Requests it has, those that wait included, without the one this is reported with.
    pub in_flight: u32,
    /// What a request that found that many took, microseconds; 0 when it does not say.
    pub latency_us: f32,
    /// Busy part of its CPU, 0…1; `None` when it does not say.
    pub cpu: Option<f32>,
    /// How many requests it can work on at once, at least 1, as its ingress has learned from all of them; `None` when it does
    /// not say.
    pub cores: Option<f32>,
}

/// What a policy may know of a request before it is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// Hash of what keeps requests together (an address, a URI, a header); `None` where the request
    /// has no such thing.
    pub key: Option<u64>,
    avoid: &'a [usize],
    answered: &'a [usize],
    closed: Option<&'a Closed>,
}

impl<'a> Request<'a> {
    /// A request that belongs with others of the same hash.
    pub fn with_key(key: u64) -> Self {
        Request { key: Some(key), ..Request::default() }
    }

    /// A request that may belong with others.
    pub fn keyed(key: Option<u64>) -> Self {
        Request { key, ..Request::default() }
    }

    /// The same request, not to be sent to these backends: those which failed or rejected it. Only
    /// the last [`MAX_AVOID`] of them count.
    pub fn avoiding(self, backends: &'a [usize]) -> Self {
        let from = backends.len().saturating_sub(MAX_AVOID);
        Request { avoid: &backends[from..], ..self }
    }

    /// The same request, for which these backends have told their load.
    pub fn answered_by(self, backends: &'a [usize]) -> Self {
        Request { answered: backends, ..self }
    }

    /// Whether it is known to wait at this backend, which has told for it that it has no room: its ingress is to let it in up
    /// to its whole limit, for its balancer knows of nothing better.
    pub fn is_to_wait(&self, backend: usize, policy: &dyn Policy, now: Nanos) -> bool {
        self.answered.contains(&backend) && policy.has_room(backend, now) == Some(false)
    }

    /// Whether backends have told their load for it, and none of them has room: others are to be asked.
    pub fn finds_no_room(&self, policy: &dyn Policy, now: Nanos) -> bool {
        let is_full = |backend: &usize| policy.has_room(*backend, now) == Some(false);
        !self.answered.is_empty() && self.answered.iter().all(is_full)
    }

    /// Backends that have told their load for it.
    pub fn answered(&self) -> &'a [usize] {
        self.answered
    }

    /// Backends it must not be sent to.
    pub fn avoided(&self) -> &'a [usize] {
        self.avoid
    }

    /// The same request, not to be sent to those closed now, of which there can be any number.
    pub(crate) fn without(self, closed: &'a Closed) -> Self {
        Request { closed: Some(closed), ..self }
    }

    /// Those closed now.
    pub(crate) fn closed(&self) -> Option<&'a Closed> {
        self.closed
    }

    /// Whether any backend of weight above 0 would do.
    pub(crate) fn allows_all(&self) -> bool {
        self.avoid.is_empty() && self.closed.is_none()
    }

    pub(crate) fn allows(&self, backend: usize) -> bool {
        (self.avoid.is_empty() || !self.avoid.contains(&backend))
            && self.closed.is_none_or(|closed| !closed.contains(backend))
    }
}

/// How a request ended, as far as it tells of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The backend answered as it should.
    Success,
    /// No answer, or one that says that the backend could not serve.
    Failure,
    /// Given up by the client, who would have waited longer for an answer than it did: that bounds the backend's
    /// latency from below, and says nothing else.
    Abandoned,
    /// Refused by the backend's admission before anything was done (BLOC's B1): it is busy, not broken,
    /// and the request may go elsewhere.
    Rejected,
    /// Refused by the backend's admission as it would have been answered too late: says how little time the
    /// request had. It counts as an answer after the pool's mean latency would, so that a backend which is too slow
    /// for its clients does not look idle.
    TooLate,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finish {
    /// From [`Policy::on_start`] until now.
    pub latency: Duration,
    /// How it ended.
    pub ending: Ending,
    /// The chip that the response carried (BLOC's B2); `None` where backends send none.
    pub chip: Option<bool>,
    /// The load that the response carried; `None` where backends send none.
    pub load: Option<ServerLoad>,
}

impl Finish {
    /// An ending after this time, that tells no more.
    pub fn new(latency: Duration, ending: Ending) -> Self {
        Finish { latency, ending, chip: None, load: None }
    }

    /// Refused by the backend's admission after this time.
    pub fn rejected(latency: Duration) -> Self {
        Self::new(latency, Ending::Rejected)
    }

    /// Refused after this time as it would have been answered too late.
    pub fn too_late(latency: Duration) -> Self {
        Self::new(latency, Ending::TooLate)
    }

    /// A success after this time.
    pub fn success(latency: Duration) -> Self {
        Self::new(latency, Ending::Success)
    }

    /// A failure after this time.
    pub fn failure(latency: Duration) -> Self {
        Self::new(latency, Ending::Failure)
    }

    /// Given up by the client after this time.
    pub fn abandoned(latency: Duration) -> Self {
        Self::new(latency, Ending::Abandoned)
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
