//! Backends that do not answer: set aside until they do, or failed once the silence is certain to be a failure.
//!
//! A backend that is set aside has weight 0, as an overlay on the decided weights: its first answer restores its full
//! weight, without slow start. Regular decisions wait meanwhile, for the state is short.

use std::time::Duration;

use plimsoll_model::{BackendId, Nanos};

use crate::backend::Backend;
use crate::commit::plan::Decision;
use crate::controller::{Controller, record};
use crate::event::{Action, RecordKind};
use crate::gate::pace::Urgent;
use crate::members::health::Cause;
use crate::tuning::members::life::LATELY;
use crate::tuning::members::silence::SUSPECT;

/// What a silence calls for.
enum Verdict {
    Fail,
    SetAside,
    /// No request waits there any longer, so no answer can come: it is tried again once.
    TryAgain,
    Restore,
}

impl Backend {
    /// The time that its waiting requests take it, as far as known.
    fn backlog(&self) -> Duration {
        let capacity_rps = self.knowledge.capacity_rps().unwrap_or(f64::INFINITY);
        Duration::try_from_secs_f64(f64::from(self.in_flight) / capacity_rps)
            .unwrap_or(Duration::MAX)
    }

    /// The time without an answer after which it counts as failed.
    pub(crate) fn failed_after(&self, now: Nanos) -> Duration {
        self.life.failed_after(now, self.backlog())
    }

    fn is_silent_for(&self, part: f64, now: Nanos) -> bool {
        self.life.silent().is_some_and(|silent| silent >= self.life.aside_after(now).mul_f64(part))
    }

    fn judge_silence(&self, now: Nanos) -> Option<Verdict> {
        let Some(silent) = self.life.silent() else {
            return self.aside.then_some(Verdict::Restore);
        };
        if silent >= self.failed_after(now) {
            return Some(Verdict::Fail);
        }
        if self.aside {
            let again = if self.tried { Verdict::Fail } else { Verdict::TryAgain };
            return (self.in_flight == 0).then_some(again);
        }
        (silent >= self.life.aside_after(now)).then_some(Verdict::SetAside)
    }
}

impl Controller {
    /// After every reading: sets silent backends aside, restores or fails them.
    pub(crate) fn judge_silence(&mut self, now: Nanos, out: &mut Vec<Action>) {
        self.fail_broken(now, out);
        if self.is_silence_shared(now) {
            let held: Vec<BackendId> = self.aside().map(|b| b.id).collect();
            held.into_iter()
                .for_each(|id| self.restore(id, "most other backends are silent as well", out));
            return;
        }
        let serves = |b: &&Backend| b.is_usable();
        let mut due: Vec<(Duration, BackendId, Verdict)> = self
            .backends
            .iter()
            .filter(serves)
            .filter_map(|b| {
                Some((b.life.silent().unwrap_or_default(), b.id, b.judge_silence(now)?))
            })
            .collect();
        due.sort_by_key(|(silent, ..)| std::cmp::Reverse(*silent));
        for (silent, id, verdict) in due {
            match verdict {
                Verdict::Fail => {
                    let turn = self.get(id).and_then(|b| b.health.fail_silent(now, silent));
                    self.on_turn(now, id, turn, out);
                }
                Verdict::SetAside => self.set_aside(id, silent, out),
                Verdict::TryAgain => {
                    if let Some(b) = self.get(id) {
                        b.life.wait_anew();
                        b.tried = true;
                    }
                    self.restore(id, "no request waits there any longer: it is tried again", out);
                }
                Verdict::Restore => self.restore(id, "it answers", out),
            }
        }
        for b in &mut self.backends {
            b.tried &= !b.life.answered_within(now, LATELY);
        }
    }

    /// Fails backends whose requests fail immediately, without waiting for a check. Where a check was refused, one lost
    /// request is enough.
    fn fail_broken(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let losing = self.backends.iter_mut().filter(|b| b.is_usable() && b.life.has_lost());
        let turns = losing.filter_map(|b| {
            let refused = b.health.believe_refusal(now, LATELY);
            let broken = || b.life.is_broken().then(|| b.health.fail_broken(now)).flatten();
            Some((b.id, refused.or_else(broken)?))
        });
        for (id, turn) in turns.collect::<Vec<_>>() {
            self.on_turn(now, id, Some(turn), out);
        }
    }

    /// Whether most backends with traffic are silent at once: then none of them is to blame.
    fn is_silence_shared(&self, now: Nanos) -> bool {
        let has_traffic =
            |b: &&Backend| b.life.silent().is_some() || b.life.answered_within(now, LATELY);
        let asked: Vec<&Backend> =
            self.backends.iter().filter(|b| b.is_usable()).filter(has_traffic).collect();
        let silent = asked.iter().filter(|b| b.is_silent_for(SUSPECT, now)).count();
        asked.len() > 1 && 2 * silent > asked.len()
    }

    pub(crate) fn aside(&self) -> impl Iterator<Item = &Backend> {
        self.backends.iter().filter(|b| b.aside && b.is_usable())
    }

    fn set_aside(&mut self, id: BackendId, silent: Duration, out: &mut Vec<Action>) {
        if !self.can_spare(id) {
            return;
        }
        let Some(b) = self.get(id) else { return };
        b.aside = true;
        let name = b.name.clone();
        let reason = format!(
            "no answer for {:.1} s, and {} requests wait",
            silent.as_secs_f64(),
            b.in_flight
        );
        record(out, RecordKind::SetAside, Some(&name), reason.clone());
        self.drop_trial_and_search();
        self.gate.raise(Urgent::Silence(format!("{name} was set aside: {reason}")));
    }

    fn restore(&mut self, id: BackendId, why: &str, out: &mut Vec<Action>) {
        let Some(b) = self.get(id).filter(|b| b.aside) else { return };
        b.aside = false;
        let name = b.name.clone();
        record(out, RecordKind::Restored, Some(&name), why.to_owned());
        self.gate.raise(Urgent::Silence(format!("{name} is restored: {why}")));
    }

    /// Whether the others can carry the traffic. While their capacities are unknown, half of the pool must remain.
    fn can_spare(&self, id: BackendId) -> bool {
        let members: Vec<&Backend> = self.backends.iter().filter(|b| b.is_usable()).collect();
        let left: Vec<&Backend> =
            members.iter().copied().filter(|b| b.id != id && !b.aside).collect();
        let holds = |b: &&Backend| b.wanted.weight > 0 || b.programmed.is_some_and(|w| w > 0);
        // The loss of one more backend must not be the loss of all.
        if left.iter().filter(|b| holds(b)).count() < left.len().min(2) || left.is_empty() {
            return false;
        }
        let known_rps =
            |b: &&Backend| b.knowledge.capacity_rps().filter(|_| !b.knowledge.is_lower_bound());
        match left.iter().map(known_rps).sum::<Option<f64>>() {
            Some(room) => room > self.traffic.rate(),
            None => 2 * left.len() >= members.len(),
        }
    }

    /// The decision with weight 0 for backends that are set aside, unless no backend would be left.
    pub(crate) fn without_set_aside(&self, decision: &Decision) -> Decision {
        let is_aside = |id| self.aside().any(|b| b.id == id);
        let kept = || decision.wishes.iter().filter(|w| !is_aside(w.id));
        let sum: f64 = kept().map(|w| w.share).sum();
        let mut decision = decision.clone();
        if sum <= 0.0 || kept().all(|w| w.weight == 0) {
            return decision;
        }
        for wish in &mut decision.wishes {
            if is_aside(wish.id) {
                (wish.share, wish.weight, wish.expected_us) = (0.0, 0, None);
                "set aside: it does not answer at present".clone_into(&mut wish.reason);
            } else {
                wish.share /= sum;
            }
        }
        decision
    }
}

impl Cause {
    /// The cause for display.
    pub(crate) fn silence(silent: Duration) -> Cause {
        Cause::Silence(u32::try_from(silent.as_millis()).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{
        Applied, BalancerReport, Method, MethodKind, Plan, ServerReport, ServerStatus,
    };

    use super::*;
    use crate::event::Event;
    use crate::show::view::BackendState;
    use crate::spec::{BackendSpec, ServiceSpec};

    /// A controller and its servers with 25 requests per second each, read every 100 ms.
    struct Pool {
        controller: Controller,
        tenths: u64,
        servers: Vec<ServerReport>,
        records: Vec<(RecordKind, String)>,
    }

    impl Pool {
        fn new(n: u32) -> Self {
            let backend = |i| BackendSpec { id: BackendId(i), name: format!("s{i}") };
            let spec = ServiceSpec::new("shop", (0..n).map(backend).collect());
            let server = |i| ServerReport {
                in_flight: 1,
                started_total: 100,
                answered_total: Some(99),
                ..ServerReport::new(BackendId(i), 10, ServerStatus::Up)
            };
            Pool {
                controller: Controller::new(spec, None, Nanos::ZERO, 1),
                tenths: 0,
                servers: (0..n).map(server).collect(),
                records: Vec::new(),
            }
        }

        /// Simulates this many tenths of a second, in which these servers answer nothing.
        fn run(&mut self, tenths: u64, silent: &[usize]) {
            for _ in 0..tenths {
                self.tenths += 1;
                for (i, s) in self.servers.iter_mut().enumerate().filter(|(_, s)| s.weight > 0) {
                    let started = 2 + u64::from(self.tenths.is_multiple_of(2));
                    s.started_total += started;
                    if silent.contains(&i) {
                        s.in_flight += started as u32;
                    } else {
                        s.in_flight = 1;
                        s.answered_total = Some(s.started_total - 1);
                    }
                }
                let at = Nanos(self.tenths * 100_000_000);
                let report = BalancerReport {
                    at,
                    method: Method { name: "roundrobin".to_owned(), kind: MethodKind::Split },
                    generation: 1,
                    traffic: plimsoll_model::Traffic::Counted,
                    servers: self.servers.clone(),
                };
                self.step(at, Event::Balancer(report));
                self.step(at, Event::Tick);
            }
        }

        fn step(&mut self, at: Nanos, event: Event) {
            for action in self.controller.step(at, event) {
                match action {
                    Action::Program(plan) | Action::Correct(plan) => self.apply(at, &plan),
                    Action::Record(record) => {
                        self.records.push((record.kind, record.backend.unwrap_or_default()));
                    }
                    _ => {}
                }
            }
        }

        fn apply(&mut self, at: Nanos, plan: &Plan) {
            for entry in &plan.entries {
                self.servers[entry.backend.0 as usize].weight = entry.weight;
            }
            let weights = plan.entries.iter().map(|e| (e.backend, e.weight)).collect();
            let applied = Applied { epoch: plan.epoch, weights, commands: 1 };
            self.step(at, Event::Applied(applied));
        }

        fn weights(&self) -> Vec<u32> {
            self.servers.iter().map(|s| s.weight).collect()
        }

        fn count(&self, kind: RecordKind) -> usize {
            self.records.iter().filter(|(k, _)| *k == kind).count()
        }

        fn state(&self, i: usize) -> BackendState {
            self.controller.view(Nanos(self.tenths * 100_000_000)).backends[i].state
        }
    }

    #[test]
    fn pausing_backend_is_set_aside_and_regains_its_full_weight_with_its_first_answer() {
        let mut pool = Pool::new(4);
        pool.run(900, &[]);
        let before = pool.weights();
        pool.run(9, &[2]);
        assert_eq!((pool.weights()[2], pool.state(2)), (0, BackendState::SetAside));
        // The waiting requests are answered.
        pool.servers[2].in_flight = 0;
        pool.servers[2].answered_total = Some(pool.servers[2].started_total);
        pool.run(1, &[]);
        assert_eq!(pool.weights(), before, "the very weights of before, at once");
        assert_eq!((pool.count(RecordKind::SetAside), pool.count(RecordKind::Restored)), (1, 1));
        assert_eq!(pool.count(RecordKind::Failed), 0);
    }

    #[test]
    fn silence_beyond_its_past_fails_a_backend_but_not_one_that_most_share() {
        let mut pool = Pool::new(4);
        pool.run(900, &[]);
        pool.run(25, &[1]);
        assert_eq!((pool.state(1), pool.weights()[1]), (BackendState::Failed, 0));
        let mut pool = Pool::new(4);
        pool.run(900, &[]);
        pool.run(100, &[0, 1, 2]);
        assert!(pool.weights().iter().all(|w| *w > 0));
        assert_eq!(pool.count(RecordKind::SetAside) + pool.count(RecordKind::Failed), 0);
    }

    #[test]
    fn backend_is_not_set_aside_when_the_others_cannot_carry_the_traffic() {
        let mut pool = Pool::new(1);
        pool.run(900, &[]);
        pool.run(15, &[0]);
        assert_eq!((pool.weights()[0] > 0, pool.count(RecordKind::SetAside)), (true, 0));
        let mut pool = Pool::new(3);
        pool.run(900, &[]);
        for b in &mut pool.controller.backends {
            let service_us = 1e6 / if b.id.0 == 0 { 100.0 } else { 22.5 };
            b.knowledge = crate::belief::knowledge::Knowledge::known(service_us);
        }
        assert!(!pool.controller.can_spare(BackendId(0)), "45 req/s of 75 would be left");
        assert!(pool.controller.can_spare(BackendId(1)));
    }

    #[test]
    fn backend_without_waiting_requests_is_tried_once_more() {
        let mut pool = Pool::new(4);
        pool.run(900, &[]);
        pool.run(9, &[2]);
        assert_eq!(pool.state(2), BackendState::SetAside);
        let gave_up = |pool: &mut Pool| {
            let s = &mut pool.servers[2];
            s.errors_total += u64::from(std::mem::take(&mut s.in_flight));
        };
        // Clients gave up one after the other, long before.
        pool.servers[2].in_flight = 0;
        pool.run(1, &[]);
        assert!(pool.weights()[2] > 0, "it is tried again");
        pool.run(9, &[2]);
        assert_eq!(pool.state(2), BackendState::SetAside);
        gave_up(&mut pool);
        pool.run(1, &[]);
        assert_eq!(pool.state(2), BackendState::Failed);
    }
}
