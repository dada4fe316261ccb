//! One pool as an entry sees it: picks, and counts of what is in flight, shared by all threads.
//!
//! **Every thread has a copy of the policy, and all copies are told of all requests.** A policy picks by what it
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
//! Cost with *t* threads: each request is told to *t* copies. With one thread there are no logs.

mod event;
mod flight;
mod log;
mod mesh;
mod weights;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_admission::{Retries, Retry};
use plimsoll_model::Nanos;
use plimsoll_policy::{Finish, HashKey, InvalidSetting, Policy, Request};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::clock::Clock;
use crate::config::Pool;
use crate::tally::PoolTally;
use event::{Change, Event};
use mesh::Mesh;

pub(crate) use flight::{Flight, Live};
pub(crate) use mesh::Logs;
pub(crate) use weights::Weights;

/// One pool, as one thread of one entry sees it.
pub(crate) struct Balancer {
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) key: Option<HashKey>,
    pub(crate) tally: Arc<PoolTally>,
    clock: Clock,
    weights: Arc<Weights>,
    state: RefCell<State>,
}

struct State {
    policy: Box<dyn Policy>,
    rng: Xoshiro256PlusPlus,
    /// What the policy was told last: its time never goes back.
    last: Nanos,
    mesh: Option<Mesh>,
    retries: Retries,
    /// Of the weights that the policy has.
    generation: u64,
}

impl State {
    fn apply(&mut self, event: Event) {
        self.last = self.last.max(event.at);
        match event.change {
            Change::Started => self.policy.on_start(event.backend, self.last),
            Change::Finished(finish) => self.policy.on_finish(event.backend, &finish, self.last),
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
        weights: Arc<Weights>,
    ) -> Result<Rc<Self>, InvalidSetting> {
        let generation = weights.generation();
        let state = State {
            policy: pool.policy.build(&weights.all(), &pool.settings)?,
            rng: crate::random::generator(),
            last: Nanos::ZERO,
            mesh: Mesh::new(logs, thread),
            // Read from the configuration with the same bounds.
            retries: Retries::new(pool.retries).unwrap_or_else(|_| {
                let none = plimsoll_admission::RetryOptions::of_refusals(0);
                Retries::new(none).expect("no retries are valid retries")
            }),
            generation,
        };
        Ok(Rc::new(Balancer {
            addresses: pool.backends.iter().map(|backend| backend.address).collect(),
            key: pool.key.clone(),
            tally,
            clock,
            weights,
            state: RefCell::new(state),
        }))
    }

    /// Picks a backend that is not to be avoided, and counts a request on it until the flight ends.
    pub(crate) fn pick(self: &Rc<Self>, key: Option<u64>, avoid: &[usize]) -> Option<Flight> {
        let request = key.map_or_else(Request::default, Request::with_key).avoiding(avoid);
        let mut state = self.state.borrow_mut();
        state.hear();
        let now = self.clock.now().max(state.last);
        let State { policy, rng, .. } = &mut *state;
        let backend = policy.pick(&request, now, rng)?;
        state.note(Event { backend, at: now, change: Change::Started });
        drop(state);
        self.tally.backends[backend].started.one_more();
        Some(Flight::new(self.clone(), backend, now))
    }

    fn finished(&self, backend: usize, finish: impl FnOnce(Nanos) -> Finish) {
        let now = self.clock.now();
        let finish = finish(now);
        self.tally.backends[backend].finished(&finish);
        // Only a panic inside the policy could have left it borrowed, and then nothing is to be counted on.
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.hear();
            state.note(Event { backend, at: now, change: Change::Finished(finish) });
        }
    }

    /// To be called now and then, and when this thread is woken: takes what other threads have told and weights that
    /// have changed, tells what could not be told.
    pub(crate) fn upkeep(&self) {
        let mut state = self.state.borrow_mut();
        state.hear();
        let generation = self.weights.generation();
        if generation != state.generation {
            state.generation = generation;
            state.policy.set_weights(&self.weights.all());
        }
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
        let is_granted = self.state.borrow_mut().retries.refused(refusals) == Retry::Again;
        let tally = if is_granted { &self.tally.retried } else { &self.tally.not_retried };
        tally.one_more();
        is_granted
    }

    fn failed(&self, failures: u32) -> bool {
        let is_granted = self.state.borrow_mut().retries.failed(failures) == Retry::Again;
        let tally = if is_granted { &self.tally.retried } else { &self.tally.not_retried };
        tally.one_more();
        is_granted
    }

    /// A backend has let a request in, and answered it well or not.
    pub(crate) fn admitted(&self) {
        self.state.borrow_mut().retries.admitted();
    }
}

#[cfg(test)]
mod tests;
