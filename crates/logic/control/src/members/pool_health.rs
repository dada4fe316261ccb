//! Health in the context of the pool: a fault that many backends share is rarely theirs.

use plimsoll_model::{BackendId, FailureKind, Nanos, Outcome};

use crate::backend::Backend;
use crate::controller::{Controller, record};
use crate::event::{Action, RecordKind};
use crate::gate::pace::Urgent;
use crate::members::health::{Cause, Round, Turn};
use crate::tuning::members::life::LATELY;
use crate::tuning::members::pool_health::{MOST_EJECTED, SLOW};
use crate::tuning::observe::reports::STALE;

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
        let costs = self.spec.checks.requests > 0;
        if let Some(b) = self.get(id).filter(|_| costs) {
            b.note_check(now, started, failure);
        }
        let timed_out = successes == 0 && failure == Some(FailureKind::Timeout);
        if timed_out && self.process.has_stalled_since(started) {
            return;
        }
        let any_serves = self.backends.iter().any(|b| b.is_usable());
        let shared = self.is_doubt_shared(id);
        // It is not yet known whether clients get answers.
        let is_new = self.process.age(now) < LATELY;
        let unread = self.balancer.seen_at().is_none();
        let Some(b) = self.get(id) else { return };
        let answers = b.life.answered_at().is_some_and(|at| at >= started)
            || b.life.answered_within(now, LATELY);
        let doubted = shared || answers || b.life.silent().is_some();
        let counts = b.life.counts_answers() || unread;
        let contradicted = counts && (answers || is_new) && !b.life.has_lost();
        let patience = b.failed_after(now);
        let bare = !costs;
        let round =
            Round { started, successes, why: failure, doubted, contradicted, patience, bare };
        let is_contradicted = b.health.is_contradicted_by(b.life.answered_at());
        let turn = b.health.liveness(now, &round);
        // If no backend serves, one successful round is enough to return.
        let last_hope = successes > 0 && !any_serves && !b.is_reserved();
        let turn = if last_hope { turn.or_else(|| b.health.return_at_once(now)) } else { turn };
        if successes == 0 && is_contradicted && b.is_usable() && !b.warned_checks {
            b.warned_checks = true;
            let name = b.name.clone();
            let line =
                "its health checks fail though clients get answers from it: the checks are ignored";
            record(out, RecordKind::Warning, Some(&name), line.to_owned());
        }
        if successes == 0 && bare && !is_new {
            self.warn_of_the_way(id, out);
        }
        self.on_turn(now, id, turn, out);
    }

    /// Whether no check from here has ever reached a backend of the pool.
    fn reaches_none(&self) -> bool {
        self.backends.iter().all(|b| !b.health.is_reached())
    }

    /// No connection from here has ever reached this backend: says so once, and once for all where that is so of the
    /// whole pool, for then it tells of where Plimsoll runs.
    fn warn_of_the_way(&mut self, id: BackendId, out: &mut Vec<Action>) {
        let none = self.reaches_none();
        let Some(b) = self.get(id) else { return };
        if b.health.is_reached() || std::mem::replace(&mut b.warned_checks, true) {
            return;
        }
        let name = (!none).then(|| b.name.clone());
        if none {
            self.backends.iter_mut().for_each(|b| b.warned_checks = true);
        }
        let line = match none {
            true => {
                "no server can be reached at its address from here: whether one lives is told by traffic and the \
                     balancer's own checks alone"
            }
            false => {
                "it could not be reached at its address from here yet: until then, whether it lives is told by \
                      traffic and the balancer's own check alone"
            }
        };
        record(out, RecordKind::Warning, name.as_deref(), line.to_owned());
    }

    pub(crate) fn on_probe(
        &mut self,
        now: Nanos,
        id: BackendId,
        outcome: Outcome,
        latency_us: f64,
        out: &mut Vec<Action>,
    ) {
        // While no backend has ever answered as expected, the URL is wrong and not the backend.
        let watches = self.watches();
        let judged = self.backends.iter().any(|b| b.health.ever_worked());
        let Some(b) = self.get(id) else { return };
        b.note_probe(outcome, latency_us);
        let mut change = None;
        if outcome == Outcome::Success {
            let began = Nanos(now.0.saturating_sub((latency_us * 1e3) as u64));
            if b.was_idle_from(began) {
                b.knowledge.observe_unloaded(latency_us);
            }
            if watches && b.is_usable() && b.was_unloaded_from(began) {
                change = b.watch_probe(now, latency_us);
            }
        }
        // Answers to clients are stronger evidence than a probe.
        let doubted = b.life.answered_within(now, STALE) && !b.health.is_failing_fast();
        let turn = b.health.work(now, outcome, judged && !doubted);
        self.on_turn(now, id, turn, out);
        if let Some(change) = change {
            self.on_change(now, id, change, out);
        }
        let all_fail = self.backends.iter().all(|b| b.health.work_failure().is_some());
        if all_fail && !judged && self.process.may_warn_of_url() {
            let line = "the work URL fails on every backend: are probe.path and probe.expect right? \
                        No backend is taken out of service for it";
            record(out, RecordKind::Warning, None, line.to_owned());
        }
    }

    /// Whether the checks of most backends failed last in a way that the network, the prober or overload can cause:
    /// then no backend is failed for it.
    fn is_doubt_shared(&self, id: BackendId) -> bool {
        let members = || self.backends.iter().filter(|b| !b.is_reserved());
        let doubted =
            members().filter(|b| b.id == id || b.health.is_doubted() || b.health.is_doubtful());
        members().count() > 1 && 2 * doubted.count() > members().count()
    }

    /// If no backend serves: returns the one with the most evidence that it works, or that answers clients although its
    /// checks fail in inconclusive ways. Called where no check round does the same: after a word of the balancer,
    /// without rounds, or when the last serving backend has left.
    pub(crate) fn return_if_none_serves(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if self.backends.iter().any(|b| b.is_usable()) {
            return;
        }
        let alive = self.backends.iter_mut().filter(|b| !b.is_reserved());
        let alive = alive.filter_map(|b| {
            let answers = b.health.is_doubtful() && b.life.answered_within(now, STALE);
            Some((b.health.evidence().or(answers.then_some(0))?, b))
        });
        let Some((_, best)) = alive.max_by_key(|(evidence, _)| *evidence) else { return };
        let id = best.id;
        let turn = best.health.return_at_once(now).or_else(|| best.health.call_back(now));
        self.on_turn(now, id, turn, out);
    }

    /// Ejects the backend with the most errors, if it fails fast, the others are healthy and can carry its load.
    pub(crate) fn eject_failing(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let none = self.reaches_none();
        let ended = self
            .backends
            .iter_mut()
            .filter_map(|b| Some((b.id, b.health.end_ejection(now, none)?)));
        for (id, turn) in ended.collect::<Vec<_>>() {
            self.on_turn(now, id, Some(turn), out);
        }
        let members = self.backends.iter().filter(|b| !b.is_reserved()).count();
        let usable: Vec<&Backend> = self.backends.iter().filter(|b| b.is_usable()).collect();
        let fails_fast = |b: &&&Backend| {
            let errs = b.health.is_failing_fast() && !b.health.is_down();
            errs && b.slowdown().is_none_or(|slowdown| slowdown < SLOW)
        };
        let Some(worst) = usable
            .iter()
            .filter(fails_fast)
            .max_by(|a, b| a.health.error_share().total_cmp(&b.health.error_share()))
        else {
            self.process.note_no_errors();
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
        let spare = room > self.traffic.rate();
        let few = ejected as f64 <= (MOST_EJECTED * members as f64).max(1.0);
        // Where most backends give errors, the fault is not theirs.
        let most = 2 * well < members;
        if most && self.process.may_warn_of_errors() {
            let line = "most backends answer clients with errors: none is ejected for it";
            record(out, RecordKind::Warning, None, line.to_owned());
        }
        if most || !few || !(spare || total_failure) {
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
                self.gate.raise(Urgent::Pool(format!("{name} failed: {why}")));
            }
            Turn::Returned => {
                b.begin_ramp(now);
                b.life.wait_anew();
                record(out, RecordKind::Returned, Some(&name), "it serves again".to_owned());
                self.gate.raise(Urgent::Pool(format!("{name} is back")));
                self.process.note_return();
            }
        }
        self.stop_refreshing(now);
        self.drop_trial_and_search();
    }

    /// If no backend serves, ejected ones are returned: some of their answers are right.
    pub(crate) fn call_back_ejected(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if self.backends.iter().any(|b| b.is_usable()) {
            return;
        }
        let ejected = self.backends.iter().filter(|b| b.health.is_ejected() && !b.is_reserved());
        for id in ejected.map(|b| b.id).collect::<Vec<_>>() {
            let turn = self.get(id).and_then(|b| b.health.call_back(now));
            self.on_turn(now, id, turn, out);
        }
        // The plan in the making covers it.
        self.gate.take_urgent();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::propose::in_flight;
    use crate::spec::{BackendSpec, ServiceSpec};

    fn round(started: Nanos, successes: u32, why: Option<FailureKind>) -> Round {
        let (doubted, contradicted, patience) = (false, false, Duration::ZERO);
        Round { started, successes, why, doubted, contradicted, patience, bare: false }
    }

    #[test]
    fn if_no_backend_serves_the_one_with_most_evidence_returns_by_the_balancers_word() {
        let backends = (0..3).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let now = Nanos::ZERO;
        let mut controller = Controller::new(spec, None, now, 1);
        for (b, rounds) in controller.backends.iter_mut().zip([1, 2, 0]) {
            b.health.liveness(now, &round(now, 0, Some(FailureKind::Refused)));
            b.health.balancer(now, true);
            (0..rounds).for_each(|_| {
                b.health.liveness(now, &round(now, 3, None));
            });
        }
        let down = |controller: &Controller| -> Vec<bool> {
            controller.backends.iter().map(|b| b.health.is_down()).collect()
        };
        controller.return_if_none_serves(now, &mut Vec::new());
        assert_eq!(down(&controller), [true; 3], "the balancer holds them down");
        controller.backends.iter_mut().for_each(|b| {
            b.health.balancer(now, false);
        });
        controller.return_if_none_serves(now, &mut Vec::new());
        assert_eq!(down(&controller), [true, false, true]);
        controller.return_if_none_serves(now, &mut Vec::new());
        assert_eq!(down(&controller), [true, false, true], "another backend serves");
    }

    #[test]
    fn returned_backend_is_weighted_for_no_more_than_its_observed_throughput() {
        let spec = BackendSpec { id: BackendId(0), name: "s0".to_owned() };
        let now = Nanos(10_000_000_000);
        let spec = ServiceSpec::new("shop", vec![spec]);
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        controller.backends[0].ask_rps = 700.0;
        controller.on_liveness(Nanos::ZERO, BackendId(0), 3, None, Nanos::ZERO, &mut Vec::new());
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
        // 10 ms unloaded, and no longer under traffic.
        (0..20).for_each(|_| controller.backends[0].knowledge.observe_unloaded(1e4));
        controller.backends[0].smoothed = (0.1, 10.0);
        let seen = asked(&mut controller, 1);
        assert_eq!(seen, asked(&mut controller, 9), "it ramps up for 10 s");
        assert!(asked(&mut controller, 10) > seen);
    }

    #[test]
    fn if_no_backend_serves_a_recovered_one_returns_however_often_it_flapped() {
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
        // Without check rounds: with the next report of the balancer.
        let h = &mut controller.backends[0].health;
        assert!((0..3).any(|_| probe(h, wrong)));
        for hoped in [false, false, true] {
            probe(&mut controller.backends[0].health, Outcome::Success);
            controller.return_if_none_serves(now, &mut Vec::new());
            assert_eq!(controller.backends[0].is_usable(), hoped);
        }
    }

    #[test]
    fn errors_of_most_backends_eject_none_and_are_reported_once() {
        let backends = (0..3).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let now = Nanos::ZERO;
        let mut controller = Controller::new(spec, None, now, 1);
        let window = |controller: &mut Controller, failing: [bool; 3]| {
            let mut out = Vec::new();
            for (b, fails) in controller.backends.iter_mut().zip(failing) {
                let (completed, errors) = if fails { (10.0, 10.0) } else { (20.0, 0.0) };
                b.health.answers(completed, errors);
            }
            controller.eject_failing(now, &mut out);
            let warned = out.iter().filter(
                |action| matches!(action, Action::Record(r) if r.kind == RecordKind::Warning),
            );
            (warned.count(), controller.backends.iter().filter(|b| b.is_usable()).count())
        };
        assert_eq!(window(&mut controller, [false, true, true]), (1, 3));
        assert_eq!(window(&mut controller, [true; 3]), (0, 3), "said before");
        let share = controller.view(now).backends[1].error_share;
        assert!((share - 0.5).abs() < 1e-9, "{share}");
        while controller.backends.iter().any(|b| b.health.is_failing_fast()) {
            window(&mut controller, [false; 3]);
        }
        window(&mut controller, [false; 3]);
        assert_eq!(window(&mut controller, [true; 3]), (1, 3), "they had ended");
    }

    #[test]
    fn change_detectors_of_a_failed_backend_start_again() {
        let spec = BackendSpec { id: BackendId(0), name: "s0".to_owned() };
        let mut controller =
            Controller::new(ServiceSpec::new("shop", vec![spec]), None, Nanos::ZERO, 1);
        let now = Nanos(10_000_000_000);
        controller.backends[0].watch_probe(now, 1e3);
        assert!(controller.backends[0].probe_watch.is_some());
        controller.on_liveness(Nanos::ZERO, BackendId(0), 3, None, Nanos::ZERO, &mut Vec::new());
        let refused = Some(FailureKind::Refused);
        controller.on_liveness(now, BackendId(0), 0, refused, now, &mut Vec::new());
        assert!(controller.backends[0].probe_watch.is_none());
    }

    #[test]
    fn inconclusive_check_failures_of_most_backends_fail_none_of_them() {
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
        assert_eq!(
            rounds(&mut controller, 6, FailureKind::Refused, 5..9),
            6,
            "none was reached yet"
        );
        assert_eq!(rounds(&mut controller, 0, FailureKind::Timeout, 9..10), 6);
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
