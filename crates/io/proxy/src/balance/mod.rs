//! One pool as an entry sees it: picks, and counts of what is in flight, shared by all threads.
//!
//! **Every thread has a copy of the policy, and all copies learn of all requests.** A policy picks by what it
//! has counted (`pick(&mut self)`), so it has one owner: the thread. What a thread does, `on_start` and
//! `on_finish`, it also appends to a log of its own (two words an entry), and before it picks or
//! counts an end it reads the logs of the others, in the order of time, and does the same to its own copy. So a copy knows what is in flight, which chips came and how long
//! answers took, whichever thread they came to, and any policy of the registry works so, unchanged.
//!
//! Why this and not counters beside the policy: of the policies only some are counts; latencies, chips, ejection and
//! learned speeds would be a thread's own. Why not one owner that is asked: that costs two wake-ups of another thread a
//! request. Nothing here locks or waits: a reader is behind by what the others did since its last pick began.
//!
//! Where it is not one: two threads that pick in the same instant do not see each other's pick; turns
//! (`round_robin`) and probes by time alone (`bloc`, a backend without chips after its interval) are each
//! thread's own, so that a pool of *t* threads may probe *t* times. The budget of retries is each thread's own, too.
//!
//! Cost with *t* threads: each request is reported to *t* copies. With one thread there are no logs.

mod event;
mod flight;
mod log;
mod members;
mod mesh;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_admission::{Endings, Retries, Retry};
use plimsoll_model::Nanos;
use plimsoll_policy::{
    Ending, Finish, HashKey, InvalidSetting, MAX_AVOID, Policy, Probing, Request, ServerLoad,
};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::clock::Clock;
use crate::config::Pool;
use crate::sticky::Sticky;
use crate::tally::PoolTally;
use crate::waiting::Waiting;
use event::{Change, Event};
use mesh::Mesh;

pub(crate) use flight::{Flight, Live};
pub use members::BackendState;
pub(crate) use members::{Member, Members, Roll};
pub(crate) use mesh::Logs;

/// One pool, as one thread of one entry sees it.
pub(crate) struct Balancer {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) key: Option<HashKey>,
    pub(crate) tally: Arc<PoolTally>,
    /// By which clients stay with their backends.
    pub(crate) sticky: Option<Sticky>,
    /// Requests that wait for room, on all threads; none where they may not.
    pub(crate) waiting: Option<Arc<Waiting>>,
    clock: Clock,
    members: Arc<Members>,
    /// Of the roll that these addresses are of.
    places: u64,
    /// Shared with those that this one succeeds, whose last requests are under way.
    state: Rc<RefCell<State>>,
}

/// What came of a pick.
pub(crate) enum Pick {
    /// A request is counted on a backend.
    Flight(Flight),
    /// There is a backend, but the request does better to wait for room.
    RatherWaits,
    Nothing,
}

impl From<Option<Flight>> for Pick {
    fn from(flight: Option<Flight>) -> Self {
        flight.map_or(Pick::Nothing, Pick::Flight)
    }
}

struct State {
    policy: Box<dyn Policy>,
    rng: Xoshiro256PlusPlus,
    /// The policy's last time: it never goes back.
    last: Nanos,
    mesh: Option<Mesh>,
    retries: Retries,
    /// How fast requests end, where they may wait.
    endings: Option<Endings>,
    /// Of the members whose weights the policy has.
    version: u64,
    /// The weights that the policy has.
    weights: Vec<u32>,
}

impl State {
    /// Another thread may know of a backend before this one does: here it has weight 0 until then.
    fn make_room(&mut self, backend: usize) {
        if backend >= self.weights.len() {
            self.weights.resize(backend + 1, 0);
            self.policy.set_weights(&self.weights);
        }
    }

    fn has_weight(&self, backend: usize) -> bool {
        self.weights.get(backend).is_some_and(|weight| *weight > 0)
    }

    fn take_weights(&mut self, mut weights: Vec<u32>) {
        weights.resize(weights.len().max(self.weights.len()), 0);
        if weights != self.weights {
            self.weights = weights;
            self.policy.set_weights(&self.weights);
        }
    }

    fn apply(&mut self, event: Event) {
        self.last = self.last.max(event.at);
        self.make_room(event.backend);
        match event.change {
            Change::Started => self.policy.on_start(event.backend, self.last),
            Change::Finished(finish) => {
                // Of failures it is not known whether the backend had let them in.
                if let (Some(endings), Ending::Success | Ending::Abandoned) =
                    (&mut self.endings, finish.ending)
                {
                    endings.one(self.last);
                }
                self.policy.on_finish(event.backend, &finish, self.last);
            }
        }
    }

    fn hear(&mut self) {
        let Some(mut mesh) = self.mesh.take() else { return };
        mesh.hear(|event| self.apply(event));
        self.mesh = Some(mesh);
    }

    fn note(&mut self, event: Event) {
        self.apply(event);
        if let Some(mesh) = &mut self.mesh {
            mesh.tell(event);
        }
    }
}

impl Balancer {
    /// The pool as this thread sees it.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub(crate) fn new(
        pool: &Pool,
        (logs, thread): (Arc<Logs>, usize),
        clock: Clock,
        tally: Arc<PoolTally>,
        (members, waiting): (Arc<Members>, Option<Arc<Waiting>>),
    ) -> Result<Rc<Self>, InvalidSetting> {
        let (roll, version) = members.read();
        let weights = roll.weights();
        let state = State {
            policy: pool.policy.build(&weights, &pool.settings)?,
            rng: crate::random::generator(),
            last: Nanos::ZERO,
            mesh: Mesh::new(logs, thread),
            // Read from the configuration with the same bounds.
            retries: Retries::new(pool.retries).unwrap_or_else(|_| {
                let none = plimsoll_admission::RetryOptions::of_refusals(0);
                Retries::new(none).expect("no retries are valid retries")
            }),
            endings: waiting.is_some().then(Endings::default),
            version,
            weights,
        };
        Ok(Rc::new(Balancer {
            addresses: roll.addresses(),
            key: pool.key.clone(),
            sticky: sticky(pool, &roll),
            waiting,
            tally,
            clock,
            members,
            places: roll.places,
            state: Rc::new(RefCell::new(state)),
        }))
    }

    /// One that goes on where this one is, with all that it has learned, among the members that there are now.
    pub(crate) fn succeeded(&self, pool: &Pool, tally: Arc<PoolTally>) -> Rc<Self> {
        let (roll, version) = self.members.read();
        let mut state = self.state.borrow_mut();
        state.hear();
        state.version = version;
        state.take_weights(roll.weights());
        drop(state);
        Rc::new(Balancer {
            addresses: roll.addresses(),
            key: self.key.clone(),
            sticky: sticky(pool, &roll),
            waiting: self.waiting.clone(),
            tally,
            clock: self.clock,
            members: self.members.clone(),
            places: roll.places,
            state: self.state.clone(),
        })
    }

    /// Whether a backend has come or moved since: this one is to be succeeded.
    pub(crate) fn is_outdated(&self) -> bool {
        self.members.version() != self.state.borrow().version
            && self.members.read().0.places != self.places
    }

    /// Picks a backend that is not to be avoided, and counts a request on it until the flight ends.
    pub(crate) fn pick(self: &Rc<Self>, request: &Request<'_>) -> Option<Flight> {
        let mut state = self.state.borrow_mut();
        state.hear();
        let now = self.clock.now().max(state.last);
        let backend = self.pick_known(&mut state, request, now)?;
        Some(self.start(&mut state, request, backend, now))
    }

    /// The same, unless the policy says that the request does better to wait here.
    pub(crate) fn pick_or_wait(self: &Rc<Self>, request: &Request<'_>) -> Pick {
        let mut state = self.state.borrow_mut();
        state.hear();
        let now = self.clock.now().max(state.last);
        let Some(backend) = self.pick_known(&mut state, request, now) else {
            return Pick::Nothing;
        };
        let here = match (&self.waiting, &state.endings) {
            (Some(waiting), Some(endings)) => endings.expected(now, waiting.count()),
            _ => None,
        };
        if here.is_some_and(|here| state.policy.rather_waits(backend, here, now)) {
            return Pick::RatherWaits;
        }
        Pick::Flight(self.start(&mut state, request, backend, now))
    }

    /// Counts a request on this backend, to which it belongs, until the flight ends; none where that takes none now.
    pub(crate) fn pick_own(self: &Rc<Self>, backend: usize) -> Option<Flight> {
        self.pick_this(backend, |policy, now| policy.takes(backend, now))
    }

    /// Counts a request on this backend, which has just been left or says that it has room, until the flight ends:
    /// whatever its chips are. None where it is full or ejected, or has no weight by now.
    pub(crate) fn pick_left(self: &Rc<Self>, backend: usize) -> Option<Flight> {
        self.pick_this(backend, |policy, now| !policy.is_closed(backend, now))
    }

    fn pick_this(
        self: &Rc<Self>,
        backend: usize,
        takes: impl FnOnce(&mut dyn Policy, Nanos) -> bool,
    ) -> Option<Flight> {
        let mut state = self.state.borrow_mut();
        state.hear();
        let now = self.clock.now().max(state.last);
        let is_served = backend < self.addresses.len() && state.has_weight(backend);
        let may_go = is_served && takes(&mut *state.policy, now);
        may_go.then(|| self.start(&mut state, &Request::default(), backend, now))
    }

    /// A request goes to this backend, until its flight ends.
    fn start(
        self: &Rc<Self>,
        state: &mut State,
        request: &Request<'_>,
        backend: usize,
        now: Nanos,
    ) -> Flight {
        let is_to_wait = request.is_to_wait(backend, &*state.policy, now);
        state.note(Event { backend, at: now, change: Change::Started });
        self.tally.backends[backend].started.one_more();
        Flight::new(self.clone(), backend, is_to_wait, now)
    }

    /// A request that is older than its pool's newest backend is not sent there again: it has no connections to it.
    fn pick_known(&self, state: &mut State, request: &Request<'_>, now: Nanos) -> Option<usize> {
        let State { policy, rng, .. } = state;
        let picked = policy.pick(request, now, rng)?;
        if picked < self.addresses.len() {
            return Some(picked);
        }
        let mut avoid = request.avoided().to_vec();
        avoid.push(picked);
        while avoid.len() < MAX_AVOID {
            let picked = policy.pick(&request.avoiding(&avoid), now, rng)?;
            if picked < self.addresses.len() {
                return Some(picked);
            }
            avoid.push(picked);
        }
        None
    }

    /// When the policy has backends asked for their load.
    pub(crate) fn probing(&self) -> Probing {
        self.state.borrow().policy.probing()
    }

    /// Whether a backend gets anything.
    pub(crate) fn has_weight(&self, backend: usize) -> bool {
        self.state.borrow().has_weight(backend)
    }

    /// Whether a backend tells its load, or not; says whether that is news.
    pub(crate) fn tells_load(&self, backend: usize, tells: bool) -> bool {
        self.members.tells_load(self.addresses[backend], tells)
    }

    /// Whether none of these has room that have just told their load; not where there are none.
    pub(crate) fn have_no_room(&self, answered: &[usize]) -> bool {
        let state = self.state.borrow();
        Request::default().answered_by(answered).finds_no_room(&*state.policy, state.last)
    }

    /// Appends the backends that it has asked because of a request.
    pub(crate) fn probe_targets(&self, key: Option<u64>, targets: &mut Vec<usize>) {
        let mut state = self.state.borrow_mut();
        let State { policy, rng, last, .. } = &mut *state;
        let request = Request::keyed(key);
        policy.probe_targets(&request, *last, rng, targets);
    }

    /// A backend that was asked so long ago has reported its load.
    pub(crate) fn probed(&self, backend: usize, load: ServerLoad, took: Duration) {
        let mut state = self.state.borrow_mut();
        state.hear();
        state.last = self.clock.now().max(state.last);
        let asked = Nanos(state.last.0.saturating_sub(took.as_nanos() as u64));
        state.policy.on_probe(backend, load, asked);
    }

    /// Whether requests wait for room: a newcomer does, too, then.
    pub(crate) fn others_wait(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| !waiting.is_empty())
    }

    /// Whether there is any backend to wait for.
    pub(crate) fn has_backends(&self) -> bool {
        self.state.borrow().weights.iter().any(|weight| *weight > 0)
    }

    /// A backend says that it has room.
    pub(crate) fn has_room(&self, backend: usize) {
        if let Some(waiting) = &self.waiting {
            waiting.has_room(backend);
        }
    }

    fn finished(
        &self,
        backend: usize,
        (leaves_room, has_no_socket): (bool, bool),
        finish: impl FnOnce(Nanos) -> Finish,
    ) {
        let now = self.clock.now();
        let finish = finish(now);
        let tally = &self.tally.backends[backend];
        match has_no_socket {
            true => tally.no_socket.one_more(),
            false => tally.finished(&finish),
        }
        // Only a panic inside the policy could have left it borrowed, and then nothing is to be counted on.
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.hear();
            state.note(Event { backend, at: now, change: Change::Finished(finish) });
        }
        // Last: the one that is called, maybe on another thread, must find this one gone.
        if let (true, Some(waiting)) = (leaves_room, &self.waiting) {
            // One that fails fast is not where the next should go.
            let is_well = finish.ending != Ending::Failure;
            waiting.ended(is_well.then_some(backend), finish.latency);
        }
    }

    /// To be called now and then, and when this thread is woken: takes what other threads passed on and weights that
    /// have changed, passes on what could not be passed on.
    pub(crate) fn upkeep(&self) {
        let mut state = self.state.borrow_mut();
        state.hear();
        if self.members.version() != state.version {
            let (roll, version) = self.members.read();
            // Of those that this one has no address for the next one takes care.
            if roll.places == self.places {
                state.version = version;
                state.take_weights(roll.weights());
            }
        }
        self.tally.ineligible.set(state.policy.ineligible_picks());
        if let Some(mesh) = &mut state.mesh {
            mesh.flush();
        }
    }

    /// A request has come: it is live until the guard is dropped.
    pub(crate) fn begin(self: &Rc<Self>) -> Live {
        self.state.borrow_mut().retries.begin();
        Live::new(self.clone())
    }

    fn ended(&self, retried: bool) {
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.retries.end(retried);
        }
    }

    /// How often a request that was refused so many times would be tried again.
    pub(crate) fn tries_left(&self, refusals: u32) -> u32 {
        self.state.borrow().retries.tries_left(refusals)
    }

    /// Whether a request that was refused for this time is tried elsewhere.
    pub(crate) fn refused(&self, refusals: u32) -> bool {
        let retry = self.state.borrow_mut().retries.refused(refusals);
        self.is_granted(retry)
    }

    fn failed(&self, failures: u32) -> bool {
        let retry = self.state.borrow_mut().retries.failed(failures);
        self.is_granted(retry)
    }

    fn is_granted(&self, retry: Retry) -> bool {
        let is_granted = retry == Retry::Again;
        let tally = if is_granted { &self.tally.retried } else { &self.tally.not_retried };
        tally.one_more();
        is_granted
    }

    /// A backend has let a request in, and answered it well or not.
    pub(crate) fn admitted(&self) {
        self.state.borrow_mut().retries.admitted();
    }
}

fn sticky(pool: &Pool, roll: &Roll) -> Option<Sticky> {
    pool.cookie.as_ref().map(|cookie| Sticky::new(cookie, &pool.name, roll))
}

#[cfg(test)]
pub(crate) mod tests;
