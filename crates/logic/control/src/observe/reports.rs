//! Processes reports of the balancer: counters become windows, and changes by other parties are detected.

use std::time::Duration;

use plimsoll_learn::drift::Change;
use plimsoll_model::{
    BackendId, BalancerReport, MethodKind, Nanos, ServerReport, ServerStatus, Traffic,
};

use crate::backend::Backend;
use crate::belief::knowledge::Setting;
use crate::controller::{Controller, record};
use crate::event::{Action, RecordKind};
use crate::gate::pace::Urgent;
use crate::gate::trial::PoolWindow;
use crate::show::view::Phase;
use crate::tuning::observe::reports::STALE;

/// A weight that was set by another party.
struct ForeignWeight {
    name: String,
    ours: u32,
    theirs: u32,
    /// It gives traffic to a failed backend.
    of_failed: bool,
}

impl ForeignWeight {
    /// The foreign weight, if the balancer holds another one than at the last reading.
    fn seen(b: &Backend, theirs: u32) -> Option<ForeignWeight> {
        let ours = b.programmed.filter(|&ours| ours != theirs)?;
        let of_failed = (b.health.is_down() || b.aside) && !b.is_reserved() && theirs > 0;
        Some(ForeignWeight { name: b.name.clone(), ours, theirs, of_failed })
    }
}

/// What the servers of one report show.
struct Observed {
    pool: PoolWindow,
    /// Backends that an administrator took out of service (true) or put back (false).
    reserved: Vec<(String, bool)>,
    drifted: Vec<(BackendId, Change)>,
    foreign: Option<ForeignWeight>,
}

impl Controller {
    pub(crate) fn on_report(&mut self, now: Nanos, report: &BalancerReport, out: &mut Vec<Action>) {
        self.note_method(report, out);
        let restarted = self.balancer.note_generation(report.generation);
        if restarted {
            self.on_restart(now, out);
        }
        let resolved = self.balancer.recover().filter(|_| self.balancer.seen_at().is_some());
        if let Some(trouble) = resolved {
            let line = format!("the balancer can be reached again (before: {trouble})");
            record(out, RecordKind::Balancer, None, line);
        }
        let unseen = self.balancer.seen_at().map_or(Duration::ZERO, |at| report.at.since(at));
        if unseen >= STALE {
            self.backends.iter_mut().for_each(|b| b.health.fade(unseen.as_secs_f64()));
        }
        // A report that was read late, because this process had no CPU time, is as old as its own time.
        self.balancer.note_seen(report.at.min(now));
        let observed = self.read_servers(now, report, restarted);
        let bare = self.spec.checks.requests == 0;
        for (hint, server) in report.servers.iter().enumerate() {
            let down = server.status == ServerStatus::Down;
            let vouched = server.checked && server.status.takes_traffic() && bare;
            let at = self.place(hint, server.backend);
            let turn = at.and_then(|at| {
                let b = &mut self.backends[at];
                b.checked_by_balancer = server.checked;
                let turn = b.health.balancer(now, down);
                turn.or_else(|| vouched.then(|| b.health.vouched_for(now)).flatten())
            });
            self.on_turn(now, server.backend, turn, out);
        }
        self.note_answers(now, out);
        self.judge_silence(now, out);
        self.return_if_none_serves(now, out);
        for (name, reserved) in observed.reserved {
            self.stop_refreshing(now);
            let why = if reserved { "taken out of service" } else { "put back into service" };
            let reason = format!("{why} by an administrator");
            let kind = if reserved { RecordKind::Left } else { RecordKind::GivenBack };
            record(out, kind, Some(&name), reason);
            self.gate.raise(Urgent::Pool(format!("{name} was {why} by an administrator")));
        }
        if let Some(foreign) = observed.foreign {
            self.on_foreign(now, &foreign, out);
        }
        self.experiments.note_drained(now, &mut self.backends);
        // A backend that has just been judged silent or failed does not work at all: that is no change of its rate.
        let works = |b: &Backend| b.is_usable() && !b.aside;
        for (id, change) in observed.drifted {
            if !self.get(id).is_some_and(|b| works(b)) {
                continue;
            }
            self.on_change(now, id, change, out);
        }
        if observed.pool.seconds > 0.0 {
            // Means that began before the traffic did belong to no load.
            let is_first = observed.pool.started > 0.0 && self.traffic.rate() <= 0.0;
            if is_first && !self.balancer.traffic().lag().is_zero() {
                self.traffic.note_change(now);
            }
            self.traffic.push(observed.pool);
            self.on_window(now, out);
        }
    }

    /// A backend that failed for its silence and answers a client after all had only paused.
    fn note_answers(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let since = |b: &Backend| {
            b.life.counts_answers() && b.life.answered_at() == self.balancer.seen_at()
        };
        let back: Vec<BackendId> =
            self.backends.iter().filter(|b| since(b)).map(|b| b.id).collect();
        for id in back {
            let turn = self.get(id).and_then(|b| b.health.answered(now));
            self.on_turn(now, id, turn, out);
        }
    }

    pub(crate) fn on_lost(&mut self, reason: String, conflict: bool, out: &mut Vec<Action>) {
        if self.balancer.lose(reason.clone(), conflict) {
            let kind = if conflict { RecordKind::Warning } else { RecordKind::Balancer };
            record(out, kind, None, reason);
        }
        // The plan that was under way has to be sent again.
        if self.commitment.abandon() || conflict {
            self.commitment.owe("the balancer can be steered again");
        }
    }

    /// The others are steered on: it is recorded and shown, and nothing waits for it.
    pub(crate) fn on_degraded(&mut self, reason: Option<String>, out: &mut Vec<Action>) {
        if !self.balancer.set_degraded(reason.clone()) {
            return;
        }
        let back = || {
            (RecordKind::Balancer, "all balancers, and their source, are there again".to_owned())
        };
        let (kind, line) = reason.map_or_else(back, |why| (RecordKind::Warning, why));
        record(out, kind, None, line);
    }

    fn on_restart(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let line = "the balancer was restarted or reloaded";
        record(out, RecordKind::Balancer, None, line.to_owned());
        self.reset_meters();
        self.traffic.restart(now);
        self.gate.end_trial();
        self.commitment.abandon();
        self.commitment.owe("the balancer was restarted or reloaded and lost its weights");
    }

    /// Discards the open windows.
    pub(crate) fn reset_meters(&mut self) {
        self.backends.iter_mut().for_each(|b| b.meter.reset());
        self.traffic.reset_window();
    }

    /// Position of a backend. Reports list servers in the same order, so the hint is nearly always right.
    fn place(&self, hint: usize, id: BackendId) -> Option<usize> {
        let is_it = |b: &Backend| b.id == id;
        match self.backends.get(hint) {
            Some(b) if is_it(b) => Some(hint),
            _ => self.backends.iter().position(is_it),
        }
    }

    /// Gives every backend its server's counters.
    fn read_servers(&mut self, now: Nanos, report: &BalancerReport, restarted: bool) -> Observed {
        let steady = self.is_calm(now);
        self.balancer.set_traffic(report.traffic);
        if report.traffic == Traffic::Unknown {
            self.traffic.reset_window();
        }
        if report.traffic != Traffic::Counted {
            self.stop_refreshing(now);
        }
        let closed_s = self.traffic.tick(report.at);
        let seconds = closed_s.unwrap_or(0.0);
        let pool = PoolWindow { at: now, seconds: 0.0, started: 0.0, request_seconds: 0.0 };
        let mut observed =
            Observed { pool, reserved: Vec::new(), drifted: Vec::new(), foreign: None };
        let typical_us = self.traffic.typical_us();
        // The traffic that a weight gives: its part of the sum over serving backends, times the rate.
        let planned = |(hint, s): (usize, &ServerReport)| {
            let b = self.place(hint, s.backend).map(|at| &self.backends[at]);
            let planned =
                b.filter(|b| b.programmed == Some(s.weight)).and_then(Backend::planned_weight);
            f64::from(planned.unwrap_or(s.weight))
        };
        let servers = report.servers.iter().enumerate();
        let sum: f64 = servers.filter(|(_, s)| s.status.takes_traffic()).map(planned).sum();
        let per_weight =
            self.traffic.history().rate_rps().filter(|_| sum > 0.0).map(|rate| rate / sum);
        let is_split = report.method.kind == MethodKind::Split;
        // A report that was read too late is no evidence of a change either: later ones will show it again.
        let watches = self.watches() && now.since(report.at) < STALE;
        let expects = !self.commitment.is_pending() && !restarted;
        let undecided = self.commitment.decision().is_none();
        for (hint, server) in report.servers.iter().enumerate() {
            let Some(at) = self.place(hint, server.backend) else { continue };
            let b = &mut self.backends[at];
            if let Some(foreign) = ForeignWeight::seen(b, server.weight).filter(|_| expects) {
                observed.foreign = observed.foreign.filter(|f| f.of_failed).or(Some(foreign));
            }
            b.programmed = Some(server.weight);
            b.in_flight = server.in_flight;
            if report.traffic == Traffic::Counted {
                b.life.observe(report.at.min(now), server);
            }
            let was_reserved = b.is_reserved();
            b.status = Some(server.status);
            if b.is_reserved() != was_reserved {
                observed.reserved.push((b.name.clone(), b.is_reserved()));
                if was_reserved {
                    b.begin_ramp(now);
                }
            }
            let service_us = b.knowledge.service_us();
            let closes = closed_s.is_some();
            let window = match report.traffic {
                Traffic::Counted => b.meter.observe(report.at, server, closes, service_us),
                Traffic::Averaged { .. } => b.meter.observe_means(report.at, server, closes),
                Traffic::Unknown => {
                    b.meter.reset();
                    None
                }
            };
            if let Some(change) = b.watch_traffic(now).filter(|_| watches) {
                observed.drifted.push((b.id, change));
            }
            if let Some(window) = window {
                if window.started > 0.0 {
                    b.served_at = now;
                }
                let is_whole = window.seconds >= seconds;
                // A backend seen for a part of the window is scaled to all of it.
                let scale = if is_whole { 1.0 } else { seconds / window.seconds };
                observed.pool.seconds = seconds;
                observed.pool.started += window.started * scale;
                observed.pool.request_seconds += window.request_seconds() * scale;
                let planned = b.planned_weight().unwrap_or(server.weight);
                let rps = per_weight.map(|rps| rps * f64::from(planned));
                let setting = Setting { rps, is_split };
                if is_whole {
                    b.observe(&window, steady, setting, typical_us);
                }
            }
            // Until the first decision the weights found are the wanted ones.
            if undecided {
                b.wanted.weight = server.weight;
                let part = f64::from(server.weight) / sum.max(1.0);
                b.wanted.share = if server.status.takes_traffic() { part } else { 0.0 };
                "unchanged: no decision has been made yet".clone_into(&mut b.wanted.reason);
            }
            b.note_idle(report.at.min(now));
        }
        observed
    }

    fn note_method(&mut self, report: &BalancerReport, out: &mut Vec<Action>) {
        if self.balancer.method() == Some(&report.method) {
            return;
        }
        let name = &report.method.name;
        match report.method.kind {
            MethodKind::NoLiveWeights => {
                let reason = format!(
                    "`{name}` does not accept weights at run time: use a method that does (HAProxy: \
                     roundrobin, leastconn, random, a consistent hash; layer 4: all but round_robin and \
                     awrr)"
                );
                record(out, RecordKind::Warning, None, reason);
                self.phase.set(
                    Phase::Observing,
                    "the balancer does not accept weights at run time",
                    out,
                );
            }
            kind => {
                let means = if kind == MethodKind::Split {
                    "split traffic"
                } else {
                    "scale requests in flight"
                };
                record(out, RecordKind::Balancer, None, format!("`{name}`: weights {means}"));
                if self.balancer.method().is_some() && !self.spec.observe {
                    self.phase.set(Phase::Exploring, "the balancer's method changed", out);
                    self.phase.unsettle();
                }
            }
        }
        self.proposals.abandon();
        self.advisor.forget();
        self.balancer.set_method(report.method.clone());
    }

    fn on_foreign(&mut self, now: Nanos, foreign: &ForeignWeight, out: &mut Vec<Action>) {
        let ForeignWeight { name, ours, theirs, of_failed } = foreign;
        let fight_begins = self.commitment.note_foreign(now);
        let reason = format!("its weight was changed from {ours} to {theirs}, not by Plimsoll");
        record(out, RecordKind::Foreign, Some(name), reason);
        self.gate.end_trial();
        if *of_failed {
            // However often it happens: clients would get errors.
            let reason = format!("failed backend {name} was given a weight, not by Plimsoll");
            self.gate.raise(Urgent::Refilled(reason));
        }
        self.commitment.owe(format!("the weight of {name} was changed, not by Plimsoll"));
        // A failed backend that still holds a weight is corrected at once, fight or not.
        let owes =
            |b: &Backend| !b.is_usable() && !b.is_reserved() && b.programmed.is_some_and(|w| w > 0);
        if !self.backends.iter().any(owes) {
            self.commitment.wait_in_fight(now);
        }
        if fight_begins {
            let line = "another party keeps changing weights: ours are programmed again only at the usual interval";
            record(out, RecordKind::Warning, None, line.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{FailureKind, Method, Outcome, ResponseTimes, ServerReport};

    use super::*;
    use crate::event::Event;
    use crate::spec::{BackendSpec, ServiceSpec};

    fn spec(n: u32) -> ServiceSpec {
        let backend = |i| BackendSpec { id: BackendId(i), name: format!("s{i}") };
        ServiceSpec { observe: true, ..ServiceSpec::new("shop", (0..n).map(backend).collect()) }
    }

    /// A report of servers with these request totals, at this time in tenths of a second.
    fn report(tenths: u64, totals: &[u64]) -> Event {
        let server = |(i, &started_total): (usize, &u64)| ServerReport {
            in_flight: 1,
            started_total,
            ..ServerReport::new(BackendId(i as u32), 1, ServerStatus::Up)
        };
        Event::Balancer(BalancerReport {
            at: Nanos(tenths * 100_000_000),
            method: Method { name: "roundrobin".to_owned(), kind: MethodKind::Split },
            generation: 1,
            traffic: plimsoll_model::Traffic::Counted,
            servers: totals.iter().enumerate().map(server).collect(),
        })
    }

    /// A controller that observes three servers of 100 requests per second, where `disturb` changes the servers and
    /// their totals at 10.5 s: the times at which windows closed after that, in tenths of a second, and the rate
    /// believed at each report from 5 s on.
    fn rates(disturb: impl Fn(&mut Controller, &mut Vec<u64>)) -> (Vec<u64>, Vec<f64>) {
        let mut controller = Controller::new(spec(3), None, Nanos::ZERO, 1);
        let (mut totals, mut closed, mut rates) = (vec![0; 3], Vec::new(), Vec::new());
        for tenths in 1..400 {
            totals.iter_mut().for_each(|total| *total += 10);
            if tenths == 105 {
                disturb(&mut controller, &mut totals);
            }
            let before = controller.traffic.windows();
            controller.step(Nanos(tenths * 100_000_000), report(tenths, &totals));
            if tenths > 105 && controller.traffic.windows() > before {
                closed.push(tenths);
            }
            if tenths > 50 {
                rates.push(controller.traffic.rate());
            }
        }
        (closed, rates)
    }

    #[test]
    fn backend_that_joins_between_two_windows_is_counted_in_the_common_ones() {
        let (closed, rates) = rates(|controller, totals| {
            totals.push(0);
            let now = Nanos(10_500_000_000);
            controller.step(now, Event::Reconfigured(Box::new(spec(4))));
        });
        assert!(closed.windows(2).all(|pair| pair[1] - pair[0] == 10), "{closed:?}");
        let wrong = |rate: &f64| !(299.0..401.0).contains(rate);
        assert_eq!(rates.iter().copied().find(wrong), None);
        assert!(rates[100..].iter().all(|rate| (rate - 400.0).abs() < 1.0), "{:?}", &rates[100..]);
    }

    #[test]
    fn backend_whose_counters_fall_is_counted_in_the_common_windows() {
        let (closed, rates) = rates(|_, totals| totals[1] = 0);
        assert!(closed.windows(2).all(|pair| pair[1] - pair[0] == 10), "{closed:?}");
        let wrong = |rate: &f64| (rate - 300.0).abs() > 1.0;
        assert_eq!(rates.iter().copied().find(wrong), None);
    }

    #[test]
    fn response_times_of_the_pool_are_those_that_the_balancer_measured() {
        let mut controller = Controller::new(spec(2), None, Nanos::ZERO, 1);
        for tenths in 1..40 {
            // One request in flight at 100 requests per second would be 10 ms; they are measured to be 4 ms.
            let Event::Balancer(mut report) = report(tenths, &[10 * tenths; 2]) else { return };
            for server in &mut report.servers {
                let count = 10 * tenths;
                server.response_times = Some(ResponseTimes { count, sum_us: 4_000 * count });
            }
            controller.step(Nanos(tenths * 100_000_000), Event::Balancer(report));
        }
        let view = controller.view(Nanos(4_000_000_000));
        assert!(view.latency_ms.is_some_and(|ms| (ms - 4.0).abs() < 1e-9), "{:?}", view.latency_ms);
    }

    #[test]
    fn degraded_balancers_are_recorded_once_and_shown_until_all_are_steered_again() {
        let mut controller = Controller::new(spec(2), None, Nanos::ZERO, 1);
        let mut said = Vec::new();
        let why = "the second has no server s2";
        for tenths in 1..40 {
            let now = Nanos(tenths * 100_000_000);
            let degraded = (tenths < 30).then(|| why.to_owned());
            let mut actions = controller.step(now, Event::BalancersDegraded(degraded));
            actions.extend(controller.step(now, report(tenths, &[10 * tenths; 2])));
            said.extend(actions.into_iter().filter_map(|action| match action {
                Action::Record(r) if r.reason == why || r.reason.contains("again") => {
                    Some((tenths, r.kind, r.reason))
                }
                _ => None,
            }));
            let shown = controller.view(now).trouble;
            assert_eq!(shown.as_deref(), (tenths < 30).then_some(why), "{tenths}");
            assert!(!controller.balancer.is_in_conflict(), "the others are steered");
        }
        let back = "all balancers, and their source, are there again".to_owned();
        let expected = [(1, RecordKind::Warning, why.to_owned()), (30, RecordKind::Balancer, back)];
        assert_eq!(said, expected);
    }

    #[test]
    fn contested_weights_wait_unless_a_failed_backend_holds_one() {
        for failed in [false, true] {
            let mut controller = Controller::new(spec(2), None, Nanos::ZERO, 1);
            let b = &mut controller.backends[1];
            b.programmed = Some(16);
            if failed {
                let wrong = Outcome::Failure(FailureKind::Status);
                (0..3).for_each(|_| {
                    b.health.work(Nanos::ZERO, wrong, true);
                });
                assert!(!b.is_usable());
            }
            let name = "s0".to_owned();
            let foreign = ForeignWeight { name, ours: 1, theirs: 2, of_failed: false };
            for _ in 0..10 {
                controller.on_foreign(Nanos::ZERO, &foreign, &mut Vec::new());
            }
            let waits = !controller.commitment.may_answer_foreign(Nanos::ZERO);
            assert_eq!(waits, !failed);
        }
    }
}
