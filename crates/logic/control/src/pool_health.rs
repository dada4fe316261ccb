//! Health, seen over the whole pool: a fault that many share is rarely the backends'.

use plimsoll_model::{BackendId, FailureKind, Nanos};

use crate::backend::Backend;
use crate::controller::{Controller, STALE, Urgent, record};
use crate::event::{Action, RecordKind};
use crate::health::Turn;
use crate::traffic::WINDOW;

/// At most this part of the pool is taken out for errors.
const MOST_EJECTED: f64 = 0.34;
/// A backend whose answers take this multiple of its time at rest is overloaded, whatever it answers:
/// taking it out would only overload the next.
const SLOW: f64 = 3.0;
/// When fewer than this part of those that may be alive are well, doubtful failures are not believed
/// (Envoy calls it panic).
const PANIC: f64 = 0.5;

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
        let turn = self.get(id).and_then(|b| {
            let turn = b.health.liveness(now, started, successes, failure);
            // Where nobody serves, who is alive need not prove it any longer.
            let last_hope = successes > 0 && !anybody && !b.is_reserved();
            if last_hope { turn.or_else(|| b.health.return_at_once(now)) } else { turn }
        });
        self.on_turn(now, id, turn, out);
        let again = self.get(id).is_some_and(|b| successes == 0 && b.health.failed_last_round());
        self.revoke_pardon(id, again, out);
    }

    /// The same where the balancer's word was the last that was missing, where no rounds come, or where who served
    /// has just left: of several, for whom the most speaks.
    pub(crate) fn call_last_hope(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if self.backends.iter().any(|b| b.is_usable()) {
            return;
        }
        let alive = self.backends.iter_mut().filter(|b| !b.is_reserved());
        let alive = alive.filter_map(|b| Some((b.health.hope()?, b)));
        let Some((_, best)) = alive.max_by_key(|(hope, _)| *hope) else {
            return self.pardon_who_answers(now, out);
        };
        let (id, turn) = (best.id, best.health.return_at_once(now));
        self.on_turn(now, id, turn, out);
    }

    /// Who was pardoned and turns out to be dead, or is given nothing by the balancer, is out after all; so is who fails `again` when most of the
    /// pool is well, for then the fault is its own.
    pub(crate) fn revoke_pardon(&mut self, id: BackendId, again: bool, out: &mut Vec<Action>) {
        let its_own = again && self.panic().is_none();
        let Some(b) = self.get(id) else { return };
        let is_dead = b.health.is_surely_dead() || b.health.is_held_down();
        let guilty = b.pardoned && (its_own || is_dead);
        let Some(cause) = b.health.cause().filter(|_| guilty) else { return };
        b.pardoned = false;
        let (name, why) = (b.name.clone(), cause.describe());
        record(out, RecordKind::Failed, Some(&name), why.clone());
        self.raise(Urgent::Pool(format!("{name} failed: {why}")));
    }

    /// Takes out the backend with the most errors, if it fails fast, the others are well and can bear
    /// its load.
    pub(crate) fn eject_failing(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let again = self.backends.iter().filter(|b| b.pardoned && b.health.is_failing_fast());
        for id in again.map(|b| b.id).collect::<Vec<_>>() {
            self.revoke_pardon(id, true, out);
        }
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
                b.forget_watched();
                let why = cause.describe();
                record(out, RecordKind::Failed, Some(&name), why.clone());
                self.raise(Urgent::Pool(format!("{name} failed: {why}")));
                self.panic_or_not(out);
                self.paper_lost(id);
            }
            Turn::Returned => {
                // Who serves already need not be brought back.
                if std::mem::take(&mut b.pardoned) {
                    b.ramping_since = None;
                } else {
                    b.begin_ramp(now);
                }
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

    /// Nobody serves, and clients are answered by some whose checks fail in doubtful ways: they may serve.
    fn pardon_who_answers(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let Some((_, alive)) = self.panic() else { return };
        let mut names = Vec::new();
        for b in &mut self.backends {
            let doubtful = b.health.is_down() && !b.health.is_surely_dead();
            let lately = |from: &Nanos| now.since(*from) < WINDOW + STALE;
            let answers = b.answers_from.filter(lately);
            let answers = answers.is_some_and(|from| b.health.has_listened_since(from));
            if doubtful && answers && !b.health.is_held_down() && !b.is_reserved() {
                b.pardoned = true;
                b.ask_rps = 0.0;
                names.push(b.name.clone());
            }
        }
        if names.is_empty() {
            return;
        }
        let names = names.join(", ");
        let line = format!(
            "none of {alive} backends passes its checks, and clients are answered: {names} may serve"
        );
        record(out, RecordKind::Warning, None, line);
        self.warned_all_failed = false;
        self.raise(Urgent::Pool(format!("{names} answer clients")));
        self.stop_refreshing(now);
        self.trial = None;
        self.search = None;
    }

    /// How many are well of how many that may be alive, where that is too few to believe it.
    fn panic(&self) -> Option<(usize, usize)> {
        let members = || self.backends.iter().filter(|b| !b.is_reserved());
        let dead = members().filter(|b| b.health.is_surely_dead()).count();
        let well = members().filter(|b| !b.health.is_down()).count();
        let alive = members().count() - dead;
        (alive >= 2 && (well as f64) < PANIC * alive as f64).then_some((well, alive))
    }

    /// When most of the pool fails at once in ways that the network, the prober or sheer overload can
    /// cause, nobody is taken out for it.
    fn panic_or_not(&mut self, out: &mut Vec<Action>) {
        let Some((well, alive)) = self.panic() else { return };
        let mut pardoned = 0;
        for b in &mut self.backends {
            let is_dead = b.health.is_surely_dead() || b.health.is_held_down();
            let doubtful = b.health.is_down() && !is_dead;
            if doubtful && !b.pardoned && !b.is_reserved() && b.answers_clients() {
                b.pardoned = true;
                pardoned += 1;
            }
        }
        if pardoned > 0 {
            let line = format!(
                "only {well} of {alive} backends pass their checks: {pardoned} that still answer \
                 clients stay in"
            );
            record(out, RecordKind::Warning, None, line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_flight;
    use crate::spec::{BackendSpec, ServiceSpec};

    #[test]
    fn where_nobody_serves_the_most_alive_is_back_by_the_balancers_word() {
        let backends = (0..3).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let now = Nanos::ZERO;
        let mut controller = Controller::new(spec, None, now, 1);
        for (b, rounds) in controller.backends.iter_mut().zip([1, 2, 0]) {
            b.health.liveness(now, now, 0, Some(FailureKind::Refused));
            b.health.balancer(now, true);
            (0..rounds).for_each(|_| {
                b.health.liveness(now, now, 3, None);
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
    fn where_nobody_serves_who_was_dead_and_answers_clients_is_in_whatever_checks_say_since() {
        let backends = (0..3).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let now = Nanos(10_000_000_000);
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        let second = |s: u64| Nanos(s * 1_000_000_000);
        let round = |controller: &mut Controller, kind| {
            for i in (0..3).map(BackendId) {
                controller.on_liveness(second(5), i, 0, Some(kind), second(5), &mut Vec::new());
            }
        };
        let hope = |controller: &mut Controller| -> Vec<bool> {
            controller.call_last_hope(now, &mut Vec::new());
            controller.backends.iter().map(Backend::is_usable).collect()
        };
        let answer = |controller: &mut Controller, from: u64| {
            controller.backends[1].answers_from = Some(second(from));
            controller.backends[2].answers_from = Some(second(from));
        };
        round(&mut controller, FailureKind::Refused);
        answer(&mut controller, 9);
        assert_eq!(hope(&mut controller), [false; 3], "they are surely dead");
        round(&mut controller, FailureKind::Timeout);
        answer(&mut controller, 4);
        assert_eq!(hope(&mut controller), [false; 3], "that was before they died");
        answer(&mut controller, 6);
        assert_eq!(hope(&mut controller), [false; 3], "that was long ago");
        answer(&mut controller, 9);
        controller.backends[2].health.balancer(now, true);
        controller.urgent = None;
        assert_eq!(hope(&mut controller), [false, true, false], "the balancer holds it down");
        assert!(controller.urgent.is_some(), "who serves is decided on anew");
        round(&mut controller, FailureKind::Timeout);
        assert_eq!(hope(&mut controller), [false, true, false], "most of the pool fails like that");
        controller.backends[1].health.balancer(now, true);
        controller.revoke_pardon(BackendId(1), false, &mut Vec::new());
        assert_eq!(hope(&mut controller), [false; 3], "the balancer holds it down, too");
        controller.backends[1].health.balancer(now, false);
        assert_eq!(hope(&mut controller), [false, true, false]);
        round(&mut controller, FailureKind::Refused);
        assert_eq!(hope(&mut controller), [false; 3], "it is dead");
    }

    #[test]
    fn who_is_back_is_asked_for_no_more_than_was_seen_of_it() {
        let spec = BackendSpec { id: BackendId(0), name: "s0".to_owned() };
        let now = Nanos::ZERO;
        let mut controller = Controller::new(ServiceSpec::new("shop", vec![spec]), None, now, 1);
        controller.backends[0].ask_rps = 700.0;
        let refused = Some(FailureKind::Refused);
        controller.on_liveness(now, BackendId(0), 0, refused, now, &mut Vec::new());
        assert_eq!(controller.backends[0].ask_rps, 700.0);
        controller.on_liveness(now, BackendId(0), 3, None, now, &mut Vec::new());
        assert!(controller.backends[0].is_usable());
        let asked = |controller: &mut Controller, second: u64| {
            let at = Nanos(second * 1_000_000_000);
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
        let probe = |h: &mut crate::health::Health, outcome| h.work(now, outcome, true).is_some();
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
        let now = Nanos::ZERO;
        controller.backends[0].watch_probe(now, 1e3);
        assert!(controller.backends[0].probe_watch.is_some());
        let refused = Some(FailureKind::Refused);
        controller.on_liveness(now, BackendId(0), 0, refused, now, &mut Vec::new());
        assert!(controller.backends[0].probe_watch.is_none());
    }

    #[test]
    fn a_pardon_ends_when_its_owner_fails_again_and_most_are_well() {
        use plimsoll_model::Outcome;
        let backends = (0..6).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let now = Nanos::ZERO;
        let mut controller = Controller::new(spec, None, now, 1);
        let mut out = Vec::new();
        let round = |controller: &mut Controller, i: u32, well: bool, out: &mut Vec<Action>| {
            let failure = (!well).then_some(FailureKind::Timeout);
            controller.on_liveness(now, BackendId(i), u32::from(well), failure, now, out);
        };
        let in_use = |controller: &Controller| -> Vec<bool> {
            controller.backends.iter().map(Backend::is_usable).collect()
        };
        (0..4).for_each(|i| round(&mut controller, i, false, &mut out));
        round(&mut controller, 0, false, &mut out);
        assert_eq!(in_use(&controller), [true; 6], "most fail: nobody is taken out");
        for i in [1, 2, 3] {
            (0..3).for_each(|_| round(&mut controller, i, true, &mut out));
        }
        assert_eq!(in_use(&controller), [true; 6], "who has not failed since is not judged");
        round(&mut controller, 0, false, &mut out);
        assert_eq!(in_use(&controller), [false, true, true, true, true, true]);
        // By its work as by its rounds.
        controller.on_probe(now, BackendId(1), Outcome::Success, 1e3, &mut out);
        let wrong = Outcome::Failure(FailureKind::Status);
        (0..2).for_each(|_| controller.on_probe(now, BackendId(4), wrong, 1e3, &mut out));
        assert!(controller.backends[4].is_usable(), "twice may be chance");
        controller.on_probe(now, BackendId(4), wrong, 1e3, &mut out);
        assert!(!controller.backends[4].is_usable());
    }
}
