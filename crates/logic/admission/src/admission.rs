//! The ingress: admits a request or refuses it at once, and says with every response whether there is
//! room for more.
//!
//! * refuse when `in_flight + 1 > capacity` (B1; the paper's algorithm 1), before the application sees
//!   the request: it may go elsewhere, whatever it is. The adaptive capacity is less for a request that
//!   has tries left
//! * refuse when `s · max(1, (in_flight + 1) / c)` is more than what is left of its deadline, with the
//!   service time `s` and the cores `c` as learned here: what would come too late is not begun. But where
//!   nobody has been answered for long, as a service goes, one such request is let in as a trial, for who
//!   refuses all learns nothing: each that is answered in time halves the difference between `s` and what it
//!   took. Long is [`TRIAL_EVERY`] and `s`; while others are in flight [`TRIAL_EVERY_BUSY`], [`QUIET_SERVICES`]
//!   times `s` and twice what they are expected to need, for one of them may be long, and a trial that is not
//!   answered yet is one of them
//! * chip (B2): 0 with probability `in_flight / (0.8 · capacity)`, else 1; the responding request is
//!   still in flight, for the bit is decided when the headers leave. Capacity not known: 1
//!
//! How many are in flight is passed in at every call and never counted here: whoever holds the guard that
//! counts also tells [`Admission::finish`] when it drops, and a mistake would be mended by the next
//! call. What is given up leaves that count, but seldom the application, which works on it all the same: it counts
//! as being before others until it can be taken for done ([`LeftBehind`]). Source: Bhattacharya, Gao, Wood (TAAS 2024), §4.1; deadlines: the HAProxy report's future
//! work. Cost: O(1), no allocation.

use std::time::Duration;

use plimsoll_model::Nanos;
use rand::RngCore;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::capacity::{Capacity, CapacityOptions, CapacityOptionsError, Delay, Knee};
use crate::left_behind::{LeftBehind, Lost};

/// No chips are given when more than this part of the capacity is used (the paper's 80 %).
pub const CHIP_SHARE: f64 = 0.8;
/// So often, at most, one is let in that is expected to be late: once a second costs next to nothing.
pub const TRIAL_EVERY: Duration = Duration::from_secs(1);
/// And where others are in flight: one of them may be long, and its end is waited for.
pub const TRIAL_EVERY_BUSY: Duration = Duration::from_secs(10);
/// The same in services: of exponential ones, one in 20,000 is longer.
const QUIET_SERVICES: u32 = 10;
/// A request given up after this part of what it had left is given up for its deadline: it was on its way before.
const NEARLY: f64 = 0.9;

/// How an ingress admits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdmissionOptions {
    /// How the capacity is found.
    pub capacity: CapacityOptions,
    /// What a request's deadline is where it brings none, milliseconds from its arrival, at least 1; absent
    /// for none.
    pub deadline_ms: Option<u64>,
}

/// An option outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum AdmissionOptionsError {
    /// The capacity.
    #[error("{0}")]
    Capacity(#[from] CapacityOptionsError),
    /// Nothing could be in time.
    #[error("deadline_ms is 0, expected at least 1, or none for no deadline")]
    Deadline,
}

/// What a request brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Time left until the answer is of no use any more; absent where the request does not say.
    pub time_left: Option<Duration>,
    /// How often it will be tried elsewhere if it is refused here and there: 0 where a refusal is for good, or its balancer
    /// knows of nothing better.
    /// Only the egress knows, and says so in a header ([`Retries::tries_left`](crate::Retries::tries_left)).
    pub tries_left: u32,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It goes to the application.
    Admit(Permit),
    /// It goes back.
    Reject(Reason),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// As many are in flight as may be.
    Full,
    /// It would be answered too late, for those that wait before it: the backend is busy.
    Queue,
    /// It would be answered too late even if no other were here, as far as is known: says how little time it had,
    /// and nothing of the backend.
    Deadline {
        /// None is. Where others always are, what one takes alone is no safe guess.
        is_idle: bool,
    },
}

impl Reason {
    /// Whether the request could be served elsewhere, by a backend that is no faster but has fewer.
    pub fn is_worth_a_retry(self) -> bool {
        self != Reason::Deadline { is_idle: true }
    }
}

/// Held by a request that was admitted, until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// How many were before it, those that no client waits for included.
    found: u32,
    at: Nanos,
    /// Its number among those that were admitted, where the capacity is learned.
    turn: u64,
    /// What it had left of its deadline, where it had one.
    left: Option<Duration>,
    /// It was expected to take longer.
    is_trial: bool,
}

/// How an admitted request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The application did what it was asked.
    Answered,
    /// The application failed, or broke off: it is done with it, but that took no usual time.
    Failed,
    /// Given up by the client or by a timeout: says nothing of the application.
    Abandoned,
}

/// What was decided so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionCounts {
    /// Admitted.
    pub admitted: u64,
    /// Refused for [`Reason::Full`].
    pub full: u64,
    /// Refused for [`Reason::Queue`] or [`Reason::Deadline`].
    pub deadline: u64,
}

/// One ingress; see the module's description.
#[derive(Clone, Debug)]
pub struct Admission {
    capacity: Capacity,
    deadline: Option<Duration>,
    knee: Box<Knee>,
    left_behind: LeftBehind,
    last: Nanos,
    /// When a request was last answered, or a trial let in.
    last_answer: Nanos,
    counts: AdmissionCounts,
}

impl Admission {
    /// An ingress that has seen nothing yet.
    ///
    /// # Errors
    /// [`AdmissionOptionsError`] when an option is out of range.
    pub fn new(options: &AdmissionOptions) -> Result<Self, AdmissionOptionsError> {
        if options.deadline_ms == Some(0) {
            return Err(AdmissionOptionsError::Deadline);
        }
        Ok(Admission {
            capacity: Capacity::new(options.capacity)?,
            deadline: options.deadline_ms.map(Duration::from_millis),
            knee: Box::default(),
            left_behind: LeftBehind::default(),
            last: Nanos::ZERO,
            last_answer: Nanos::ZERO,
            counts: AdmissionCounts::default(),
        })
    }

    /// Decides on a request that finds so many in flight.
    pub fn decide(&mut self, now: Nanos, in_flight: u32, arrival: Arrival) -> Decision {
        self.pass(now, in_flight);
        let knee = &mut self.knee;
        self.left_behind.expire(now, |lost, took| knee.observe(lost.found, took));
        let found = in_flight.saturating_add(self.left_behind.len());
        let verdict = self.judge(in_flight, found, arrival);
        let is_late = matches!(verdict, Some(Reason::Queue | Reason::Deadline { .. }));
        let is_trial = is_late && self.may_try(now, found);
        if let Some(reason) = verdict.filter(|_| !is_trial) {
            match reason {
                Reason::Full => self.counts.full += 1,
                Reason::Queue | Reason::Deadline { .. } => self.counts.deadline += 1,
            }
            // A request without a chance is no lost throughput: it would have been served in vain.
            if let (Capacity::Adaptive(adaptive), Reason::Full) = (&mut self.capacity, reason) {
                adaptive.refuse(arrival.tries_left == 0);
            }
            return Decision::Reject(reason);
        }
        self.counts.admitted += 1;
        let turn = match &mut self.capacity {
            Capacity::Adaptive(adaptive) => adaptive.enter(),
            Capacity::Average(average) => {
                average.on_admitted(now, in_flight + 1);
                0
            }
            Capacity::Static(_) => 0,
        };
        let left = self.left(arrival);
        Decision::Admit(Permit { found, at: now, turn, left, is_trial })
    }

    /// The chip of a response, when its headers leave; `in_flight` with the request that it answers. A refusal
    /// for [`Reason::Deadline`] has one, too: it says nothing of the backend, and should not cost it a chip.
    pub fn chip(&self, in_flight: u32, rng: &mut dyn RngCore) -> bool {
        let Some(capacity) = self.capacity.limit(0) else { return true };
        let luck = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        luck >= f64::from(in_flight) / (CHIP_SHARE * capacity)
    }

    /// An admitted request has ended; `in_flight` are left.
    pub fn finish(&mut self, now: Nanos, in_flight: u32, permit: Permit, ended: Ended) {
        // Until now there was one more.
        self.pass(now, in_flight + 1);
        if let Capacity::Adaptive(adaptive) = &mut self.capacity {
            adaptive.leave(permit.turn, in_flight + 1, ended == Ended::Answered);
        }
        let took = now.since(permit.at);
        if ended == Ended::Abandoned {
            self.leave_behind(permit, took);
            return;
        }
        if ended == Ended::Answered {
            let knee = &mut self.knee;
            self.left_behind.overtaken(permit.at, |lost| {
                knee.observe(lost.found, now.since(lost.at));
            });
            if permit.is_trial && permit.left.is_some_and(|left| took <= left) {
                self.knee.contradict(permit.found, took);
            }
            self.knee.observe(permit.found, took);
            self.last_answer = self.last_answer.max(now);
        }
        if let Capacity::Adaptive(adaptive) = &mut self.capacity {
            adaptive.complete(&self.knee);
        }
    }

    /// The most that may be in flight now, for a request on its last try; absent where all is admitted.
    pub fn limit(&self) -> Option<f64> {
        self.capacity.limit(0)
    }

    /// How many requests the application can work on at once, once requests were seen to wait; `None` before, and for a
    /// capacity that is not learned so.
    pub fn cores(&self) -> Option<f64> {
        match &self.capacity {
            Capacity::Adaptive(adaptive) => adaptive.cores(),
            Capacity::Static(_) | Capacity::Average(_) => None,
        }
    }

    /// How long requests take, as far as it is known.
    pub fn delay(&self) -> Option<Delay> {
        self.knee.delay()
    }

    /// What was decided so far.
    pub fn counts(&self) -> AdmissionCounts {
        self.counts
    }

    /// No client waits for it any more; the application may work on it for as long again.
    fn leave_behind(&mut self, permit: Permit, took: Duration) {
        let Permit { found, at, left, .. } = permit;
        let expected = self.knee.delay().map_or(Duration::ZERO, |delay| delay.expected(found));
        let until = at + expected.max(took.saturating_mul(2));
        // A client that leaves before the time is over says nothing of the application's.
        let is_late = left.is_some_and(|left| took >= left.mul_f64(NEARLY));
        self.left_behind.push(Lost { found, at, until, is_late });
    }

    /// `found` is `in_flight` and those that no client waits for.
    fn judge(&self, in_flight: u32, found: u32, arrival: Arrival) -> Option<Reason> {
        let limit = self.capacity.limit(arrival.tries_left);
        if limit.is_some_and(|limit| f64::from(in_flight) + 1.0 > limit) {
            return Some(Reason::Full);
        }
        let left = self.left(arrival)?;
        let delay = self.knee.delay()?;
        let is_late = |found| delay.expected(found) > left;
        let reason = match is_late(0) {
            true => Reason::Deadline { is_idle: found == 0 },
            false => Reason::Queue,
        };
        is_late(found).then_some(reason)
    }

    fn left(&self, arrival: Arrival) -> Option<Duration> {
        arrival.time_left.or(self.deadline)
    }

    /// Whether one is let in though it is expected to be late.
    fn may_try(&mut self, now: Nanos, found: u32) -> bool {
        let Some(delay) = self.knee.delay() else { return false };
        let service = delay.expected(0);
        let every = match found.checked_sub(1) {
            None => TRIAL_EVERY.max(service),
            Some(found) => TRIAL_EVERY_BUSY
                .max(service.saturating_mul(QUIET_SERVICES))
                .max(delay.expected(found).saturating_mul(2)),
        };
        if now.since(self.last_answer) < every {
            return false;
        }
        self.last_answer = now;
        true
    }

    fn pass(&mut self, now: Nanos, in_flight: u32) {
        let seconds = now.since(self.last).as_secs_f64();
        self.last = self.last.max(now);
        if let Capacity::Adaptive(adaptive) = &mut self.capacity {
            adaptive.pass(in_flight, seconds);
        }
    }
}
