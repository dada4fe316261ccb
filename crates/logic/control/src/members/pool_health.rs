//! Health, seen over the whole pool: a fault that many share is rarely the backends'.

use std::time::Duration;

use plimsoll_model::{BackendId, FailureKind, Nanos};

use crate::backend::Backend;
use crate::controller::{Controller, STALE, Urgent, record};
use crate::event::{Action, RecordKind};
use crate::members::health::{Cause, Round, Turn};

/// At most this part of the pool is taken out for errors.
const MOST_EJECTED: f64 = 0.34;
/// A backend whose answers take this multiple of its time at rest is overloaded, whatever it answers:
/// taking it out would only overload the next.
const SLOW: f64 = 3.0;
/// Checks are not believed against answers to clients that are no older than this.
pub(crate) const ANSWERS: Duration = Duration::from_secs(2);

impl Controller {
    pub(crate) fn on_liveness(
        &mut self,
        now: Nanos,
        id: BackendId,
        successes: u32,
        failure: Option<FailureKind>,
        started: Nanos,
        out: &mut Vec<Action>,
    ) {
        let timed_out = successes == 0 && failure == Some(FailureKind::Timeout);
        if timed_out && started < self.stalled_at {
            return;
        }
        let anybody = self.backends.iter().any(|b| b.is_usable());
        let shared = self.is_doubt_shared(id);
        // It has not been seen yet whether clients get answers.
        let is_new = now.since(self.began_at) < ANSWERS;
        let unread = self.seen_at.is_none();
        let Some(b) = self.get(id) else { return };
        let answers = b.life.answered_at().is_some_and(|at| at >= started)
            || b.life.answered_within(now, ANSWERS);
        let doubted = shared || answers || b.life.silent().is_some();
        let counts = b.life.is_told() || unread;
        let contradicted = counts && (answers || is_new) && !b.life.has_lost();
        let patience = b.failed_after(now);
        let round = Round { started, successes, why: failure, doubted, contradicted, patience };
        let is_contradicted = b.health.is_contradicted_by(b.life.answered_at());
        let turn = b.health.liveness(now, &round);
        // Where nobody serves, who is alive need not prove it any longer.
        let last_hope = successes > 0 && !anybody && !b.is_reserved();
        let turn = if last_hope { turn.or_else(|| b.health.return_at_once(now)) } else { turn };
        if successes == 0 && is_contradicted && b.is_usable() && !b.warned_checks {
            b.warned_checks = true;
            let name = b.name.clone();
            let line =
                "its health checks fail though clients get answers from it: the checks are ignored";
            record(out, RecordKind::Warning, Some(&name), line.to_owned());
        }
        self.on_turn(now, id, turn, out);
    }

    /// Of most of the pool the last word is a check that failed in a way that the network, the prober or sheer
    /// overload can cause: that is laid to nobody.
    fn is_doubt_shared(&self, id: BackendId) -> bool {
        let members = || self.backends.iter().filter(|b| !b.is_reserved());
        let doubted =
            members().filter(|b| b.id == id || b.health.is_doubted() || b.health.is_doubtful());
        members().count() > 1 && 2 * doubted.count() > members().count()
    }

    /// The same where the balancer's word was the last that was missing, where no rounds come, or where who served
    /// has just left: of several, for whom the most speaks; or who answers clients, though its checks fail in
    /// doubtful ways.
    pub(crate) fn call_last_hope(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if self.backends.iter().any(|b| b.is_usable()) {
            return;
        }
        let alive = self.backends.iter_mut().filter(|b| !b.is_reserved());
        let alive = alive.filter_map(|b| {
            let answers = b.health.is_doubtful() && b.life.answered_within(now, STALE);
            Some((b.health.hope().or(answers.then_some(0))?, b))
        });
        let Some((_, best)) = alive.max_by_key(|(hope, _)| *hope) else { return };
        let id = best.id;
        let turn = best.health.return_at_once(now).or_else(|| best.health.call_back(now));
        self.on_turn(now, id, turn, out);
    }

    /// Takes out the backend with the most errors, if it fails fast, the others are well and can bear
    /// its load.
    pub(crate) fn eject_failing(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let ended =
            self.backends.iter_mut().filter_map(|b| Some((b.id, b.health.end_ejection(now)?)));
        for (id, turn) in ended.collect::<Vec<_>>() {
            self.on_turn(now, id, Some(turn), out);
        }
        let members = self.backends.iter().filter(|b| !b.is_reserved()).count();
        let usable: Vec<&Backend> = self.backends.iter().filter(|b| b.is_usable()).collect();
        let fails_fast = |b: &&&Backend| {
            let errs = b.health.is_failing_fast() && !b.health.is_down();
            errs && b.stretch().is_none_or(|stretch| stretch < SLOW)
        };
        let Some(worst) = usable
            .iter()
            .filter(fails_fast)
            .max_by(|a, b| a.health.error_share().total_cmp(&b.health.error_share()))
        else {
            return;
        };
        let id = worst.id;
        let well = usable.iter().filter(|b| !b.health.is_failing_fast()).count();
        let ejected = self.backends.iter().filter(|b| b.health.is_ejected()).count() + 1;
        let room: f64 = usable
            .iter()
            .filter(|b| !b.health.is_failing_fast())
            .filter_map(|b| b.knowledge.capacity_rps())
            .sum();
        let total_failure = worst.health.error_share() > 0.5;
        let spare = room > self.history.rate_rps().unwrap_or(0.0);
        let few = ejected as f64 <= (MOST_EJECTED * members as f64).max(1.0);
        // Where most give errors, the fault is not a backend's.
        if 2 * well < members || !few || !(spare || total_failure) {
            return;
        }
        let turn = self.get(id).and_then(|b| b.health.eject(now));
        self.on_turn(now, id, turn, out);
    }

    pub(crate) fn on_turn(
        &mut self,
        now: Nanos,
        id: BackendId,
        turn: Option<Turn>,
        out: &mut Vec<Action>,
    ) {
        let Some(turn) = turn else { return };
        let Some(b) = self.get(id) else { return };
        let name = b.name.clone();
        match turn {
            Turn::Failed(cause) => {
                b.ramping_since = None;
                (b.aside, b.tried) = (false, false);
                b.life.wait_anew();
                b.forget_watched();
                let why = cause.describe();
                let kind =
                    if cause == Cause::Errors { RecordKind::Ejected } else { RecordKind::Failed };
                record(out, kind, Some(&name), why.clone());
                self.raise(Urgent::Pool(format!("{name} failed: {why}")));
                self.paper_lost(id);
            }
            Turn::Returned => {
                b.begin_ramp(now);
                b.life.wait_anew();
                record(out, RecordKind::Returned, Some(&name), "it serves again".to_owned());
                self.raise(Urgent::Pool(format!("{name} is back")));
                self.warned_all_failed = false;
            }
        }
        self.stop_refreshing(now);
        self.trial = None;
        self.search = None;
    }

    /// Where nobody serves, those whose answers are errors in part are better than nobody.
    pub(crate) fn call_back_ejected(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if self.backends.iter().any(|b| b.is_usable()) {
            return;
        }
        let ejected = self.backends.iter().filter(|b| b.health.is_ejected() && !b.is_reserved());
        for id in ejected.map(|b| b.id).collect::<Vec<_>>() {
            let turn = self.get(id).and_then(|b| b.health.call_back(now));
            self.on_turn(now, id, turn, out);
        }
        // The plan for it is the one that is being made.
        self.urgent = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::propose::in_flight;
    use crate::spec::{BackendSpec, ServiceSpec};

    fn told(started: Nanos, successes: u32, why: Option<FailureKind>) -> Round {
        let (doubted, contradicted, patience) = (false, false, Duration::ZERO);
        Round { started, successes, why, doubted, contradicted, patience }
    }

    #[test]
    fn where_nobody_serves_the_most_alive_is_back_by_the_balancers_word() {
        let backends = (0..3).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let now = Nanos::ZERO;
        let mut controller = Controller::new(spec, None, now, 1);
        for (b, rounds) in controller.backends.iter_mut().zip([1, 2, 0]) {
            b.health.liveness(now, &told(now, 0, Some(FailureKind::Refused)));
            b.health.balancer(now, true);
            (0..rounds).for_each(|_| {
                b.health.liveness(now, &told(now, 3, None));
            });
        }
        let down = |controller: &Controller| -> Vec<bool> {
            controller.backends.iter().map(|b| b.health.is_down()).collect()
        };
        controller.call_last_hope(now, &mut Vec::new());
        assert_eq!(down(&controller), [true; 3], "the balancer holds them down");
        controller.backends.iter_mut().for_each(|b| {
            b.health.balancer(now, false);
        });
        controller.call_last_hope(now, &mut Vec::new());
        assert_eq!(down(&controller), [true, false, true]);
        controller.call_last_hope(now, &mut Vec::new());
        assert_eq!(down(&controller), [true, false, true], "somebody serves");
    }

    #[test]
    fn who_is_back_is_asked_for_no_more_than_was_seen_of_it() {
        let spec = BackendSpec { id: BackendId(0), name: "s0".to_owned() };
        let now = Nanos(10_000_000_000);
        let spec = ServiceSpec::new("shop", vec![spec]);
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        controller.backends[0].ask_rps = 700.0;
        let refused = Some(FailureKind::Refused);
        controller.on_liveness(now, BackendId(0), 0, refused, now, &mut Vec::new());
        assert_eq!(controller.backends[0].ask_rps, 700.0);
        controller.on_liveness(now, BackendId(0), 3, None, now, &mut Vec::new());
        assert!(controller.backends[0].is_usable());
        let asked = |controller: &mut Controller, second: u64| {
            let at = now + Duration::from_secs(second);
            (0..4).for_each(|round| _ = in_flight::learn(at, &mut controller.backends, round));
            controller.backends[0].ask_rps
        };
        // 10 ms at rest, and no more under traffic.
        (0..20).for_each(|_| controller.backends[0].knowledge.observe_at_rest(1e4));
        controller.backends[0].smoothed = (0.1, 10.0);
        let seen = asked(&mut controller, 1);
        assert_eq!(seen, asked(&mut controller, 9), "it ramps up for 10 s");
        assert!(asked(&mut controller, 10) > seen);
    }

    #[test]
    fn where_nobody_serves_who_does_its_work_again_is_back_however_often_it_came_and_went() {
        use plimsoll_model::Outcome;
        let spec = BackendSpec { id: BackendId(0), name: "s0".to_owned() };
        let now = Nanos::ZERO;
        let mut controller = Controller::new(ServiceSpec::new("shop", vec![spec]), None, now, 1);
        let wrong = Outcome::Failure(FailureKind::Status);
        let h = &mut controller.backends[0].health;
        let probe =
            |h: &mut crate::members::health::Health, outcome| h.work(now, outcome, true).is_some();
        (0..3).for_each(|_| assert!(!probe(h, Outcome::Success)));
        let mut needed = Vec::new();
        for _ in 0..3 {
            assert!((0..3).any(|_| probe(h, wrong)), "fails");
            needed.push((1..20).find(|_| probe(h, Outcome::Success)));
        }
        assert_eq!(needed, [Some(3), Some(6), Some(12)]);
        assert!((0..3).any(|_| probe(h, wrong)));
        let round = |controller: &mut Controller| {
            controller.on_liveness(now, BackendId(0), 3, None, now, &mut Vec::new());
            controller.backends[0].is_usable()
        };
        for _ in 0..2 {
            probe(&mut controller.backends[0].health, Outcome::Success);
            assert!(!round(&mut controller), "twice may be chance");
        }
        probe(&mut controller.backends[0].health, Outcome::Success);
        assert!(round(&mut controller));
        // Where rounds do not come: with the next report of the balancer.
        let h = &mut controller.backends[0].health;
        assert!((0..3).any(|_| probe(h, wrong)));
        for hoped in [false, false, true] {
            probe(&mut controller.backends[0].health, Outcome::Success);
            controller.call_last_hope(now, &mut Vec::new());
            assert_eq!(controller.backends[0].is_usable(), hoped);
        }
    }

    #[test]
    fn who_fails_is_watched_anew_by_its_traffic_and_by_its_probes() {
        let spec = BackendSpec { id: BackendId(0), name: "s0".to_owned() };
        let mut controller =
            Controller::new(ServiceSpec::new("shop", vec![spec]), None, Nanos::ZERO, 1);
        let now = Nanos(10_000_000_000);
        controller.backends[0].watch_probe(now, 1e3);
        assert!(controller.backends[0].probe_watch.is_some());
        let refused = Some(FailureKind::Refused);
        controller.on_liveness(now, BackendId(0), 0, refused, now, &mut Vec::new());
        assert!(controller.backends[0].probe_watch.is_none());
    }

    #[test]
    fn checks_that_fail_on_most_of_the_pool_in_doubtful_ways_are_laid_to_nobody() {
        let backends = (0..6).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        let mut out = Vec::new();
        let mut rounds = |controller: &mut Controller,
                          failing: u32,
                          kind: FailureKind,
                          seconds: std::ops::Range<u64>| {
            for second in seconds {
                let at = Nanos(second * 1_000_000_000);
                for i in 0..6 {
                    let fails = i < failing;
                    let (n, why) = (u32::from(!fails), fails.then_some(kind));
                    controller.on_liveness(at, BackendId(i), n, why, at, &mut out);
                }
            }
            controller.backends.iter().filter(|b| b.is_usable()).count()
        };
        assert_eq!(rounds(&mut controller, 6, FailureKind::Timeout, 10..90), 3, "half at the most");
        assert_eq!(rounds(&mut controller, 0, FailureKind::Timeout, 90..100), 6);
        assert_eq!(
            rounds(&mut controller, 2, FailureKind::Timeout, 200..203),
            6,
            "too soon to tell"
        );
        assert_eq!(rounds(&mut controller, 2, FailureKind::Timeout, 203..230), 4);
        assert_eq!(rounds(&mut controller, 6, FailureKind::Refused, 300..301), 0, "no doubt");
    }
}
