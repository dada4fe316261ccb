//! One backend: what it is now, its requests, and what it answers. No sockets.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use plimsoll_model::Nanos;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use super::change::Change;
use super::mode::Mode;
use super::queue::{Discipline, Job, Queue};
use super::reply::{Replies, ReplyKind};
use super::service::Service;
use super::spec::BackendSpec;

/// What to do with a request that just came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is in service or waits; [`Backend::pop_finished`] will name it.
    Queued,
    Reply(ReplyKind),
    Ignore,
    Reset,
    HangHeaders,
    Huge,
}

/// What a backend has done and is doing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BackendStats {
    /// As in the specification.
    pub name: String,
    /// Always true: no reader shall mistake it for a real one.
    pub emulated: bool,
    /// Where it listens.
    pub address: SocketAddr,
    /// At present.
    pub cores: u32,
    /// At present.
    pub speed: f64,
    /// At present.
    pub service: Service,
    /// At present.
    pub discipline: Discipline,
    /// At present.
    pub queue_limit: Option<u32>,
    /// At present.
    pub error_rate: f64,
    /// At present.
    pub fast_fail: bool,
    /// At present.
    pub mode: Mode,
    /// `cores · speed / mean`, requests per second.
    pub capacity_rps: f64,
    /// Requests served, light ones not counted.
    pub served: u64,
    /// Requests answered 500 by the error rate.
    pub errors: u64,
    /// Requests answered 503 by the queue limit.
    pub rejected: u64,
    /// Requests for light paths.
    pub light: u64,
    /// Requests that a mode other than normal mistreated.
    pub mistreated: u64,
    /// Requests in service or waiting, those of clients that have gone included.
    pub in_flight: u64,
    /// Seconds that cores worked, summed over them.
    pub busy_core_seconds: f64,
}

pub(super) struct Backend {
    spec: BackendSpec,
    address: SocketAddr,
    queue: Queue,
    rng: Xoshiro256PlusPlus,
    replies: Replies,
    /// Requests in service that will be answered 500.
    failing: BTreeSet<u64>,
    served: u64,
    errors: u64,
    rejected: u64,
    light: u64,
    mistreated: u64,
    /// Core-nanoseconds of queues before the present one.
    busy_before: f64,
}

/// FNV-1a: mixes the name into the seed, so that backends with one seed differ.
fn hash(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

impl Backend {
    pub(super) fn new(spec: BackendSpec, address: SocketAddr, now: Nanos) -> Self {
        Backend {
            queue: Queue::new(spec.discipline, spec.cores, spec.speed, now),
            rng: Xoshiro256PlusPlus::seed_from_u64(spec.seed ^ hash(&spec.name)),
            replies: replies_for(&spec),
            spec,
            address,
            failing: BTreeSet::new(),
            served: 0,
            errors: 0,
            rejected: 0,
            light: 0,
            mistreated: 0,
            busy_before: 0.0,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(super) fn mode(&self) -> Mode {
        self.spec.mode
    }

    pub(super) fn service(&self) -> &Service {
        &self.spec.service
    }

    pub(super) fn replies(&self) -> &Replies {
        &self.replies
    }

    /// The work of a request for this path, as a multiple of the usual; none for light paths.
    pub(super) fn cost(&self, path: &str) -> Option<f64> {
        self.spec.cost(path)
    }

    /// Decides about a request of this cost; `id` is the caller's name for it.
    pub(super) fn admit(&mut self, now: Nanos, id: u64, cost: Option<f64>) -> Verdict {
        let verdict = match (self.spec.mode, cost) {
            (Mode::Normal, None) => {
                self.light += 1;
                return Verdict::Reply(ReplyKind::Ok);
            }
            (Mode::Normal, Some(cost)) => return self.admit_work(now, id, cost),
            // Its listener is closed; what still came in is cut off.
            (Mode::Refuse | Mode::Reset, _) => Verdict::Reset,
            (Mode::Silent, _) => Verdict::Ignore,
            (Mode::HangHeaders, _) => Verdict::HangHeaders,
            (Mode::Huge, _) => Verdict::Huge,
            (Mode::Status(_), _) => Verdict::Reply(ReplyKind::Forced),
        };
        self.mistreated += 1;
        verdict
    }

    fn admit_work(&mut self, now: Nanos, id: u64, cost: f64) -> Verdict {
        let spec = &self.spec;
        // Without an error rate nothing is drawn, so that service times do not depend on it being 0.
        let fails = spec.error_rate > 0.0 && self.rng.random::<f64>() < spec.error_rate;
        if fails && spec.fast_fail {
            self.errors += 1;
            return Verdict::Reply(ReplyKind::Error);
        }
        let room = spec.queue_limit.map(|limit| u64::from(limit) + u64::from(spec.cores));
        if room.is_some_and(|room| self.queue.len() as u64 >= room) {
            self.rejected += 1;
            return Verdict::Reply(ReplyKind::Rejected);
        }
        if fails {
            self.failing.insert(id);
        }
        let work = cost * spec.service.sample(&mut self.rng);
        self.queue.arrive(now, Job { id, work });
        Verdict::Queued
    }

    /// When the next request will be done.
    pub(super) fn next_finish(&self) -> Option<Nanos> {
        self.queue.next_finish()
    }

    /// The next request that is done by `now`, its answer, and when it was done.
    pub(super) fn pop_finished(&mut self, now: Nanos) -> Option<(u64, ReplyKind, Nanos)> {
        let done = self.queue.pop_finished(now)?;
        if !self.failing.is_empty() && self.failing.remove(&done.id) {
            self.errors += 1;
            return Some((done.id, ReplyKind::Error, done.at));
        }
        self.served += 1;
        Some((done.id, ReplyKind::Ok, done.at))
    }

    /// Changes it. What is done by `now` must have been popped; the caller sees to the sockets that a
    /// change of mode concerns.
    pub(super) fn apply(&mut self, now: Nanos, change: &Change) {
        let spec = &mut self.spec;
        spec.speed = change.speed.unwrap_or(spec.speed);
        spec.cores = change.cores.unwrap_or(spec.cores);
        spec.discipline = change.discipline.unwrap_or(spec.discipline);
        spec.service = change.service.unwrap_or(spec.service);
        spec.error_rate = change.error_rate.unwrap_or(spec.error_rate);
        spec.fast_fail = change.fast_fail.unwrap_or(spec.fast_fail);
        spec.queue_limit = change.queue_limit.unwrap_or(spec.queue_limit);
        spec.mode = change.mode.unwrap_or(spec.mode);
        self.replies = replies_for(&self.spec);
        let reshaped =
            change.speed.is_some() || change.cores.is_some() || change.discipline.is_some();
        // A killed process forgets what it was doing.
        let killed = change.mode == Some(Mode::Refuse);
        if reshaped || killed {
            let jobs = self.queue.take_jobs(now);
            self.busy_before += self.queue.busy(now);
            let spec = &self.spec;
            self.queue = Queue::new(spec.discipline, spec.cores, spec.speed, now);
            if killed {
                self.failing.clear();
            } else {
                jobs.into_iter().for_each(|job| self.queue.arrive(now, job));
            }
        }
    }

    /// Its state; what is done by `now` must have been popped.
    pub(super) fn stats(&self, now: Nanos) -> BackendStats {
        let spec = &self.spec;
        BackendStats {
            name: spec.name.clone(),
            emulated: true,
            address: self.address,
            cores: spec.cores,
            speed: spec.speed,
            service: spec.service,
            discipline: spec.discipline,
            queue_limit: spec.queue_limit,
            error_rate: spec.error_rate,
            fast_fail: spec.fast_fail,
            mode: spec.mode,
            capacity_rps: spec.capacity_rps(),
            served: self.served,
            errors: self.errors,
            rejected: self.rejected,
            light: self.light,
            mistreated: self.mistreated,
            in_flight: self.queue.len() as u64,
            busy_core_seconds: (self.busy_before + self.queue.busy(now)) / 1e9,
        }
    }
}

fn replies_for(spec: &BackendSpec) -> Replies {
    let forced = if let Mode::Status(code) = spec.mode { code } else { 200 };
    Replies::new(spec, forced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MS: u64 = 1_000_000;
    const USUAL: Option<f64> = Some(1.0);

    fn backend(edit: impl FnOnce(&mut BackendSpec)) -> Backend {
        let mut spec = BackendSpec::new("s1", Service::deterministic(Duration::from_millis(10)));
        edit(&mut spec);
        let address = spec.listen;
        Backend::new(spec, address, Nanos::ZERO)
    }

    #[test]
    fn more_than_the_queue_holds_is_rejected() {
        let mut b = backend(|s| s.queue_limit = Some(1));
        let verdicts: Vec<Verdict> = (0..3).map(|id| b.admit(Nanos(0), id, USUAL)).collect();
        let rejected = Verdict::Reply(ReplyKind::Rejected);
        assert_eq!(verdicts, [Verdict::Queued, Verdict::Queued, rejected]);
        assert_eq!(b.admit(Nanos(0), 9, None), Verdict::Reply(ReplyKind::Ok));
        assert_eq!(b.pop_finished(Nanos(10 * MS)), Some((0, ReplyKind::Ok, Nanos(10 * MS))));
        assert_eq!(b.admit(Nanos(10 * MS), 4, USUAL), Verdict::Queued);
    }

    #[test]
    fn requests_for_a_path_may_take_more_work() {
        let mut b = backend(|s| s.costs = [("/report".to_owned(), 30.0)].into());
        assert_eq!(b.cost("/health"), None);
        assert_eq!(b.cost("/"), USUAL);
        let cost = b.cost("/report");
        assert_eq!(b.admit(Nanos(0), 1, cost), Verdict::Queued);
        assert_eq!(b.next_finish(), Some(Nanos(300 * MS)));
    }

    #[test]
    fn errors_come_at_their_rate_fast_or_after_service() {
        let mut fast = backend(|s| s.error_rate = 0.3);
        let n = 10_000;
        let failed =
            (0..n).filter(|id| fast.admit(Nanos(0), *id, USUAL) != Verdict::Queued).count();
        assert!((failed as f64 / n as f64 - 0.3).abs() < 0.02, "{failed}");

        let mut slow = backend(|s| (s.error_rate, s.fast_fail) = (1.0, false));
        assert_eq!(slow.admit(Nanos(0), 1, USUAL), Verdict::Queued);
        let done = slow.pop_finished(Nanos(10 * MS));
        assert_eq!(done, Some((1, ReplyKind::Error, Nanos(10 * MS))));
        assert_eq!((slow.errors, slow.served), (1, 0));
    }

    #[test]
    fn a_change_of_speed_reaches_requests_in_service() {
        let mut b = backend(|_| {});
        b.admit(Nanos(0), 1, USUAL);
        b.apply(Nanos(5 * MS), &Change::speed(0.5));
        assert_eq!(b.next_finish(), Some(Nanos(15 * MS)));
        b.apply(Nanos(5 * MS), &Change::mode(Mode::Refuse));
        assert_eq!((b.next_finish(), b.queue.len()), (None, 0));
        assert!((b.stats(Nanos(5 * MS)).busy_core_seconds - 0.005).abs() < 1e-9);
    }

    #[test]
    fn same_seed_same_requests_other_name_others() {
        let exponential = Service::exponential(Duration::from_millis(10));
        let draw = |name: &str| {
            let mut b = Backend::new(
                BackendSpec::new(name, exponential),
                SocketAddr::from(([127, 0, 0, 1], 1)),
                Nanos::ZERO,
            );
            b.admit(Nanos(0), 1, USUAL);
            b.next_finish()
        };
        assert_eq!(draw("a"), draw("a"));
        assert_ne!(draw("a"), draw("b"));
    }
}
