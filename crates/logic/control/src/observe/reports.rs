//! What the balancer reports: counters become windows, and what changed behind our back is noticed.

use std::time::Duration;

use plimsoll_learn::drift::Change;
use plimsoll_model::{BackendId, BalancerReport, MethodKind, Nanos, ServerReport, ServerStatus};

use crate::backend::Backend;
use crate::belief::knowledge::Setting;
use crate::controller::{Controller, STALE, Urgent, record};
use crate::event::{Action, RecordKind};
use crate::gate::trial::PoolWindow;
use crate::show::view::Phase;

/// How fast the least response time is forgotten, per second: a service can become slower for good.
const TYPICAL_CREEP: f64 = 1.002;
/// Somebody who changes our weights back more often than this within a minute is fighting us.
const FOREIGN_LIMIT: u32 = 5;
/// … and is answered at this pace only.
const USUAL_PACE: Duration = Duration::from_secs(10);

/// A weight that somebody else has set.
struct ForeignWeight {
    name: String,
    ours: u32,
    theirs: u32,
    /// It gives traffic to a backend that failed.
    of_failed: bool,
}

impl ForeignWeight {
    /// The weight that the balancer holds, where it is not the one it held when it was last read.
    fn seen(b: &Backend, theirs: u32) -> Option<ForeignWeight> {
        let ours = b.programmed.filter(|&ours| ours != theirs)?;
        let of_failed = (b.health.is_down() || b.aside) && !b.is_reserved() && theirs > 0;
        Some(ForeignWeight { name: b.name.clone(), ours, theirs, of_failed })
    }
}

/// What the servers of one report tell.
struct Told {
    pool: PoolWindow,
    /// Whom an administrator took out (true) or gave back.
    reserved: Vec<(String, bool)>,
    drifted: Vec<(BackendId, Change)>,
    foreign: Option<ForeignWeight>,
}

impl Controller {
    pub(crate) fn on_report(&mut self, now: Nanos, report: &BalancerReport, out: &mut Vec<Action>) {
        self.note_method(report, out);
        let restarted = self.generation.is_some_and(|g| g != report.generation);
        if restarted {
            self.on_restart(now, out);
        }
        self.generation = Some(report.generation);
        if let Some(trouble) = self.trouble.take() {
            if self.seen_at.is_some() {
                let line = format!("the balancer can be reached again (before: {trouble})");
                record(out, RecordKind::Balancer, None, line);
            }
            self.conflict = false;
        }
        let unseen = self.seen_at.map_or(Duration::ZERO, |at| report.at.since(at));
        if unseen >= STALE {
            self.backends.iter_mut().for_each(|b| b.health.fade(unseen.as_secs_f64()));
        }
        // What waited to be read, for this process had no time, is as old as it is.
        self.seen_at = Some(report.at.min(now));
        let told = self.read_servers(now, report, restarted);
        for (hint, server) in report.servers.iter().enumerate() {
            let down = server.status == ServerStatus::Down;
            let at = self.place(hint, server.backend);
            let turn = at.and_then(|at| self.backends[at].health.balancer(now, down));
            self.on_turn(now, server.backend, turn, out);
        }
        self.note_answers(now, out);
        self.judge_silence(now, out);
        self.call_last_hope(now, out);
        for (name, reserved) in told.reserved {
            self.stop_refreshing(now);
            let why = if reserved { "taken out of service" } else { "put back into service" };
            let reason = format!("{why} by an administrator");
            let kind = if reserved { RecordKind::Left } else { RecordKind::GivenBack };
            record(out, kind, Some(&name), reason);
            self.raise(Urgent::Pool(format!("{name} was {why} by an administrator")));
        }
        if let Some(foreign) = told.foreign {
            self.on_foreign(now, &foreign, out);
        }
        self.note_drained(now);
        // Whose silence has just been judged has not changed, as far as is known: it does not work.
        let works = |b: &Backend| b.is_usable() && !b.aside;
        for (id, change) in told.drifted {
            if !self.get(id).is_some_and(|b| works(b)) {
                continue;
            }
            self.on_change(now, id, change, out);
        }
        if told.pool.seconds > 0.0 {
            self.history.push(told.pool);
            self.on_window(now, out);
        }
    }

    /// Who failed for its silence and answers a client after all had only paused.
    fn note_answers(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let since = |b: &Backend| b.life.is_told() && b.life.answered_at() == self.seen_at;
        let back: Vec<BackendId> =
            self.backends.iter().filter(|b| since(b)).map(|b| b.id).collect();
        for id in back {
            let turn = self.get(id).and_then(|b| b.health.answered(now));
            self.on_turn(now, id, turn, out);
        }
    }

    fn on_restart(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let line = "the balancer was restarted or reloaded";
        record(out, RecordKind::Balancer, None, line.to_owned());
        self.reset_meters();
        self.history.clear();
        self.calm_since = now;
        self.trial = None;
        self.pending = None;
        self.reassert =
            Some("the balancer was restarted or reloaded and lost its weights".to_owned());
    }

    /// Forgets the windows that are open.
    pub(crate) fn reset_meters(&mut self) {
        self.backends.iter_mut().for_each(|b| b.meter.reset());
        self.window_clock.reset();
    }

    /// Where a backend is. Reports have them in the same order, so that the hint is nearly always right.
    fn place(&self, hint: usize, id: BackendId) -> Option<usize> {
        let is_it = |b: &Backend| b.id == id;
        match self.backends.get(hint) {
            Some(b) if is_it(b) => Some(hint),
            _ => self.backends.iter().position(is_it),
        }
    }

    /// Gives every backend what its server shows.
    fn read_servers(&mut self, now: Nanos, report: &BalancerReport, restarted: bool) -> Told {
        let steady = self.is_calm(now);
        let closed_s = self.window_clock.tick(report.at);
        let seconds = closed_s.unwrap_or(0.0);
        let pool = PoolWindow { at: now, seconds: 0.0, started: 0.0, in_flight: 0.0 };
        let mut told = Told { pool, reserved: Vec::new(), drifted: Vec::new(), foreign: None };
        let typical_us = self.typical_us;
        // What a weight comes to: its part of the sum of those who serve, of the traffic there is.
        let planned = |(hint, s): (usize, &ServerReport)| {
            let b = self.place(hint, s.backend).map(|at| &self.backends[at]);
            let planned =
                b.filter(|b| b.programmed == Some(s.weight)).and_then(Backend::planned_weight);
            f64::from(planned.unwrap_or(s.weight))
        };
        let servers = report.servers.iter().enumerate();
        let sum: f64 = servers.filter(|(_, s)| s.status.takes_traffic()).map(planned).sum();
        let per_weight = self.history.rate_rps().filter(|_| sum > 0.0).map(|rate| rate / sum);
        let is_split = report.method.kind == MethodKind::Split;
        // What waited to be read for too long is no ground for a change either: the next readings tell it again.
        let watches = self.watches() && now.since(report.at) < STALE;
        let expects = self.pending.is_none() && !restarted;
        let undecided = self.decision.is_none();
        for (hint, server) in report.servers.iter().enumerate() {
            let Some(at) = self.place(hint, server.backend) else { continue };
            let b = &mut self.backends[at];
            if let Some(foreign) = ForeignWeight::seen(b, server.weight).filter(|_| expects) {
                told.foreign = told.foreign.filter(|f| f.of_failed).or(Some(foreign));
            }
            b.programmed = Some(server.weight);
            b.in_flight = server.in_flight;
            b.life.observe(report.at.min(now), server);
            let was_reserved = b.is_reserved();
            b.status = Some(server.status);
            if b.is_reserved() != was_reserved {
                told.reserved.push((b.name.clone(), b.is_reserved()));
                if was_reserved {
                    b.begin_ramp(now);
                }
            }
            let service_us = b.knowledge.service_us();
            let window = b.meter.observe(report.at, server, closed_s.is_some(), service_us);
            if let Some(change) = b.watch_traffic(now).filter(|_| watches) {
                told.drifted.push((b.id, change));
            }
            if let Some(window) = window {
                if window.started > 0.0 {
                    b.served_at = now;
                }
                let is_whole = window.seconds >= seconds;
                // Of whom a part was seen, that speaks for the whole.
                let scale = if is_whole { 1.0 } else { seconds / window.seconds };
                told.pool.seconds = seconds;
                told.pool.started += window.started * scale;
                told.pool.in_flight += window.in_flight;
                let planned = b.planned_weight().unwrap_or(server.weight);
                let rps = per_weight.map(|rps| rps * f64::from(planned));
                let setting = Setting { rps, is_split };
                if is_whole {
                    b.observe(&window, steady, setting, typical_us);
                }
            }
            // Until there is a decision, what is there is what is wanted.
            if undecided {
                b.wanted.weight = server.weight;
                let part = f64::from(server.weight) / sum.max(1.0);
                b.wanted.share = if server.status.takes_traffic() { part } else { 0.0 };
                "unchanged: no decision has been made yet".clone_into(&mut b.wanted.reason);
            }
            b.note_idle(report.at.min(now));
        }
        told
    }

    /// Response time of the pool's quicker backends when it was at its least, microseconds: near their
    /// time at rest, which an overloaded backend does not show.
    pub(crate) fn note_typical_service(&mut self) {
        let told = self.backends.iter().filter_map(|b| b.recent.latency_us);
        // Polls that never met one in flight tell no time.
        let mut all: Vec<f64> = told.filter(|us| *us > 0.0).collect();
        all.sort_by(f64::total_cmp);
        if let Some(&quick) = all.get(all.len() / 4) {
            let held = self.typical_us.map_or(f64::INFINITY, |us| us * TYPICAL_CREEP);
            self.typical_us = Some(quick.min(held));
        }
    }

    fn note_method(&mut self, report: &BalancerReport, out: &mut Vec<Action>) {
        if self.method.as_ref() == Some(&report.method) {
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
                self.set_phase(
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
                if self.method.is_some() && !self.spec.observe {
                    self.set_phase(Phase::Exploring, "the balancer's method changed", out);
                    self.settled = 0;
                }
            }
        }
        self.search = None;
        self.advice = None;
        self.method = Some(report.method.clone());
    }

    fn on_foreign(&mut self, now: Nanos, foreign: &ForeignWeight, out: &mut Vec<Action>) {
        let ForeignWeight { name, ours, theirs, of_failed } = foreign;
        if now.since(self.foreign.0) > Duration::from_secs(60) {
            self.foreign = (now, 0);
        }
        self.foreign.1 += 1;
        let reason = format!("its weight was changed from {ours} to {theirs}, not by Plimsoll");
        record(out, RecordKind::Foreign, Some(name), reason);
        self.trial = None;
        if *of_failed {
            // However often: clients would get errors.
            let reason = format!("failed backend {name} was given a weight, not by Plimsoll");
            self.raise(Urgent::Refilled(reason));
        }
        self.reassert = Some(format!("the weight of {name} was changed, not by Plimsoll"));
        // Who failed and still holds a weight is no matter of taste.
        let owes =
            |b: &Backend| !b.is_usable() && !b.is_reserved() && b.programmed.is_some_and(|w| w > 0);
        if self.foreign.1 > FOREIGN_LIMIT && !self.backends.iter().any(owes) {
            self.foreign_until = self.last_program.unwrap_or(now) + USUAL_PACE;
        }
        if self.foreign.1 == FOREIGN_LIMIT + 1 {
            let line = "another party keeps changing weights: ours are programmed again only at the usual interval";
            record(out, RecordKind::Warning, None, line.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{FailureKind, Method, Outcome, ServerReport};

    use super::*;
    use crate::event::Event;
    use crate::spec::{BackendSpec, ServiceSpec};

    fn spec(n: u32) -> ServiceSpec {
        let backend = |i| BackendSpec { id: BackendId(i), name: format!("s{i}") };
        ServiceSpec { observe: true, ..ServiceSpec::new("shop", (0..n).map(backend).collect()) }
    }

    /// What so many servers with so many requests each show after so many tenths of a second.
    fn report(tenths: u64, totals: &[u64]) -> Event {
        let server = |(i, &started_total): (usize, &u64)| ServerReport {
            backend: BackendId(i as u32),
            weight: 1,
            status: ServerStatus::Up,
            in_flight: 1,
            queued: 0,
            started_total,
            errors_total: 0,
            answered_total: None,
        };
        Event::Balancer(BalancerReport {
            at: Nanos(tenths * 100_000_000),
            method: Method { name: "roundrobin".to_owned(), kind: MethodKind::Split },
            generation: 1,
            servers: totals.iter().enumerate().map(server).collect(),
        })
    }

    /// A controller that observes three servers of 100 requests per second, and what becomes of its windows
    /// when at 10.5 s `disturb` changes the number of servers and their totals: the times at which windows
    /// closed after that, in tenths of a second, and the rates believed at each from 5 s on.
    fn rates(disturb: impl Fn(&mut Controller, &mut Vec<u64>)) -> (Vec<u64>, Vec<f64>) {
        let mut controller = Controller::new(spec(3), None, Nanos::ZERO, 1);
        let (mut totals, mut closed, mut rates) = (vec![0; 3], Vec::new(), Vec::new());
        for tenths in 1..400 {
            totals.iter_mut().for_each(|total| *total += 10);
            if tenths == 105 {
                disturb(&mut controller, &mut totals);
            }
            let before = controller.windows;
            controller.step(Nanos(tenths * 100_000_000), report(tenths, &totals));
            if tenths > 105 && controller.windows > before {
                closed.push(tenths);
            }
            if tenths > 50 {
                rates.push(controller.rate());
            }
        }
        (closed, rates)
    }

    #[test]
    fn who_joins_between_two_windows_is_counted_in_the_same_ones() {
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
    fn whose_counters_fall_is_counted_in_the_windows_of_the_others() {
        let (closed, rates) = rates(|_, totals| totals[1] = 0);
        assert!(closed.windows(2).all(|pair| pair[1] - pair[0] == 10), "{closed:?}");
        let wrong = |rate: &f64| (rate - 300.0).abs() > 1.0;
        assert_eq!(rates.iter().copied().find(wrong), None);
    }

    #[test]
    fn weights_that_are_fought_over_wait_but_not_those_of_who_failed() {
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
            for _ in 0..=FOREIGN_LIMIT {
                controller.on_foreign(Nanos::ZERO, &foreign, &mut Vec::new());
            }
            let waits = controller.foreign_until > Nanos::ZERO;
            assert_eq!(waits, !failed);
        }
    }
}
