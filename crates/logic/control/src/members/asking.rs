//! How often backends are checked and probed. Checks that are requests, and probes of the work URL, share one budget: 1
//! % of a backend's capacity, where a probe counts by its response time against a client request's. It is a bound: no
//! check and no state of a backend is exempt, except that the first few of a backend of which nothing is known come
//! sooner, once, and that what is refused costs nothing, because the kernel answers. Traffic is better evidence than
//! either, so checks stop while there is traffic. An interval that an administrator configured is kept to.

use std::time::Duration;

use plimsoll_model::{FailureKind, Nanos, Outcome};

use crate::backend::Backend;
use crate::controller::record;
use crate::event::{Action, RecordKind};
use crate::spec::ServiceSpec;
use crate::tuning::members::asking::{
    ASSUMED_RPS, BUDGET, CARRIED_FADES, CARRIED_S, FIRST, FIRST_INTERVAL, IDLE, LONGEST_S,
    LOOKED_INTO, LOOKED_INTO_AT_COST, PROBES_KEPT, SUSPECT, WORTH_CHANGING,
};
use crate::tuning::members::life::LATELY;

/// What checks and probes of a backend have shown of their cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    /// Mean time of the last probes, and of the last checks, successful or not, microseconds, and their number.
    probe: (f64, f64),
    check: (f64, f64),
    /// Checks and probes that it had to serve while its capacity was unknown.
    first: u32,
    /// When the last check began that it had to serve.
    checked_at: Option<Nanos>,
    /// Its last check was refused, so that it served nothing.
    refuses: bool,
    /// The greatest throughput that it has carried, requests per second.
    carried_rps: f64,
}

impl Asked {
    fn note(mean: &mut (f64, f64), latency_us: f64) {
        let kept = mean.1.min(PROBES_KEPT);
        *mean = ((mean.0 * kept + latency_us) / (kept + 1.0), kept + 1.0);
    }

    /// Takes what its traffic completed in so many seconds.
    pub fn note_carried(&mut self, (completed, seconds): (f64, f64)) {
        self.carried_rps *= CARRIED_FADES;
        if seconds >= CARRIED_S {
            self.carried_rps = self.carried_rps.max(completed / seconds);
        }
    }

    /// Its service rate has changed.
    pub fn rescale(&mut self, ratio: f64) {
        self.carried_rps *= ratio.min(1.0);
    }
}

fn differ(was: Duration, is: Duration) -> bool {
    let ratio = is.as_secs_f64() / was.as_secs_f64().max(1e-9);
    !(1.0 / WORTH_CHANGING..=WORTH_CHANGING).contains(&ratio)
}

impl Backend {
    /// Whether there is evidence against it, or no longer any for it.
    fn is_suspect(&self, now: Nanos, costs: bool) -> bool {
        let waits = self.life.silent();
        let looked_into = match costs {
            true => self.life.aside_after(now).mul_f64(LOOKED_INTO_AT_COST),
            false => LOOKED_INTO,
        };
        self.health.is_down()
            || self.health.is_doubted()
            || self.aside
            || self.life.has_lost()
            || waits.is_some_and(|silent| silent >= looked_into)
    }

    /// Its capacity, or a lower bound, where it is known well enough to express a cost in it.
    fn calibrated_rps(&self) -> Option<f64> {
        self.knowledge.capacity_rps().filter(|_| self.knowledge.error() < 0.5)
    }

    /// What the budget is a part of. The inverse of an unloaded response time is no bound (a quota may allow a
    /// hundredth of it): without a known capacity only what was carried counts.
    fn proven_rps(&self) -> Option<f64> {
        let known = self.calibrated_rps().filter(|_| !self.knowledge.is_lower_bound());
        known.or(Some(self.asked.carried_rps).filter(|rps| *rps > ASSUMED_RPS))
    }

    /// Takes a probe and its duration.
    pub(crate) fn note_probe(&mut self, outcome: Outcome, latency_us: f64) {
        if outcome != Outcome::Failure(FailureKind::Refused) {
            self.asked.first = self.asked.first.saturating_add(1);
            Asked::note(&mut self.asked.probe, latency_us);
        }
    }

    /// Takes a round of checks and its duration.
    pub(crate) fn note_check(&mut self, now: Nanos, started: Nanos, failure: Option<FailureKind>) {
        self.asked.refuses = failure == Some(FailureKind::Refused);
        if !self.asked.refuses {
            self.asked.first = self.asked.first.saturating_add(1);
            self.asked.checked_at = self.asked.checked_at.max(Some(started));
            Asked::note(&mut self.asked.check, now.since(started).as_secs_f64() * 1e6);
        }
    }

    /// The work of a probe in client requests, at least one: its response time over a client request's service time,
    /// after subtracting the clients' queueing time, because probes queue as well.
    fn probe_cost(&self) -> f64 {
        let Some(rps) = self.calibrated_rps() else { return 1.0 };
        let request_us = self.knowledge.cores() * 1e6 / rps;
        let waits_us = self.recent.latency_us.map_or(0.0, |us| (us - request_us).max(0.0));
        ((self.asked.probe.0 - waits_us) / request_us).max(1.0)
    }

    /// The interval of what costs this many requests and takes this time, within this part of the budget. While a
    /// client request's service time is unknown, that is taken to occupy one core.
    fn within_budget(&self, requests: f64, time_us: f64, part: f64) -> Duration {
        let part = part * BUDGET;
        let busy_s = match self.calibrated_rps() {
            Some(_) => 0.0,
            None => time_us / 1e6 / part,
        };
        let afforded_s = match self.proven_rps() {
            Some(rps) => requests / (part * rps),
            None if self.asked.first < FIRST => FIRST_INTERVAL.as_secs_f64(),
            None => requests / (part * ASSUMED_RPS),
        };
        Duration::from_secs_f64(afforded_s.max(busy_s).min(LONGEST_S)).max(SUSPECT)
    }

    /// The interval between rounds of this many probes, within this part of the budget.
    fn probe_interval(&self, requests: u32, part: f64) -> Duration {
        let n = f64::from(requests);
        self.within_budget(n * self.probe_cost(), n * self.asked.probe.0, part)
    }

    /// The interval between checks of this many requests, within this part of the budget.
    fn check_interval(&self, requests: u32, part: f64) -> Duration {
        if requests == 0 || self.asked.refuses {
            return SUSPECT;
        }
        let n = f64::from(requests);
        self.within_budget(n, n * self.asked.check.0, part)
    }

    /// Requests per second that Plimsoll sends to it.
    pub(crate) fn asked_rps(&self, requests_per_check: u32) -> f64 {
        self.checks_rps(requests_per_check) + self.probes_rps()
    }

    fn checks_rps(&self, requests_per_check: u32) -> f64 {
        self.checked.map_or(0.0, |t| f64::from(requests_per_check) / t.as_secs_f64().max(1e-9))
    }

    fn probes_rps(&self) -> f64 {
        self.probing.map_or(0.0, |(t, n)| f64::from(n) / t.as_secs_f64().max(1e-9))
    }

    /// The same in requests of clients.
    fn cost_rps(&self, requests_per_check: u32) -> f64 {
        self.checks_rps(requests_per_check) + self.probes_rps() * self.probe_cost()
    }

    /// The part of its capacity that this costs at most, where that is known.
    pub(crate) fn asked_part(&self, requests_per_check: u32) -> Option<f64> {
        Some(self.cost_rps(requests_per_check) / self.proven_rps()?)
    }
}

/// Adapts the intervals of checks and probes of every backend.
pub(crate) fn ask(now: Nanos, spec: &ServiceSpec, backends: &mut [Backend], out: &mut Vec<Action>) {
    adapt_checks(now, spec, backends, out);
    adapt_probes(spec, backends, out);
    warn_of_cost(spec, backends, out);
}

fn adapt_checks(now: Nanos, spec: &ServiceSpec, backends: &mut [Backend], out: &mut Vec<Action>) {
    let checks = spec.checks;
    let probes = spec.probe.is_some();
    for b in backends.iter_mut() {
        let suspect = b.is_suspect(now, checks.requests > 0);
        let afforded = b.check_interval(checks.requests, if probes { 0.5 } else { 1.0 });
        // Immediate checks are no closer together than ordinary ones.
        if suspect && b.checked.is_none() && now.since(b.looked_at) < SUSPECT {
            continue;
        }
        let at_once = suspect && b.asked.checked_at.is_none_or(|at| now.since(at) >= afforded);
        let wanted = match checks.interval {
            Some(interval) => Some(interval),
            None if !suspect && b.life.counts_answers() && b.life.answered_within(now, LATELY) => {
                // Traffic tells more than checks, but not whether those could tell anything once there is none.
                let is_bare = checks.requests == 0;
                (is_bare && !b.health.is_reached()).then_some(FIRST_INTERVAL)
            }
            None => {
                let uncounted = !b.life.counts_answers() && now.since(b.served_at) < LATELY;
                let due = if suspect || uncounted { SUSPECT } else { IDLE };
                Some(due.max(afforded))
            }
        };
        // Where traffic is no evidence, a backend without suspicion is checked as often, but not at once.
        let turned = checks.requests == 0
            && suspect != b.suspected
            && !(suspect && now.since(b.looked_at) < SUSPECT);
        let changes = match (b.checked, wanted) {
            (None, None) => false,
            (Some(was), Some(is)) => turned || differ(was, is),
            _ => true,
        };
        if changes {
            (b.checked, b.suspected) = (wanted, suspect);
            if suspect {
                b.looked_at = now;
            }
            out.push(Action::CheckRate { backend: b.id, interval: wanted, at_once });
        }
    }
}

fn adapt_probes(spec: &ServiceSpec, backends: &mut [Backend], out: &mut Vec<Action>) {
    let Some(asked) = spec.probe else {
        for b in backends.iter_mut().filter(|b| b.probing.is_some()) {
            b.probing = None;
            out.push(Action::ProbeRate { backend: b.id, interval: Duration::ZERO, requests: 0 });
        }
        return;
    };
    let part = if spec.checks.requests > 0 { 0.5 } else { 1.0 };
    for b in backends.iter_mut() {
        let requests = asked.requests.unwrap_or(1).max(1);
        let interval = asked.interval.unwrap_or_else(|| b.probe_interval(requests, part));
        if b.probing.is_none_or(|(was, n)| n != requests || differ(was, interval)) {
            b.probing = Some((interval, requests));
            out.push(Action::ProbeRate { backend: b.id, interval, requests });
        }
    }
}

/// Configured intervals are kept to; a warning is recorded where they cost more than the budget.
fn warn_of_cost(spec: &ServiceSpec, backends: &mut [Backend], out: &mut Vec<Action>) {
    let requests = spec.checks.requests;
    let fixed_probes = spec.probe.is_some_and(|p| p.interval.is_some() || p.requests.is_some());
    if !fixed_probes && (requests == 0 || spec.checks.interval.is_none()) {
        return;
    }
    for b in backends.iter_mut() {
        let part = b.calibrated_rps().map(|rps| b.cost_rps(requests) / rps);
        let Some(part) = part.filter(|part| *part > 1.5 * BUDGET) else { continue };
        if !std::mem::replace(&mut b.warned_cost, true) {
            let line = format!(
                "the configured checks and probes cost {:.1} % of its capacity (probe.interval, \
                     probe.requests, liveness.interval, liveness.requests)",
                part * 100.0
            );
            record(out, RecordKind::Warning, Some(&b.name), line);
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{
        BackendId, BalancerReport, Method, MethodKind, ServerReport, ServerStatus,
    };

    use super::*;
    use crate::belief::knowledge::Knowledge;
    use crate::controller::Controller;
    use crate::event::Event;
    use crate::spec::{BackendSpec, CheckSpec, ProbeRate};

    /// A controller of one backend with a capacity of 200 requests per second, and its first actions.
    fn controller(probe: ProbeRate, checks: CheckSpec) -> (Controller, Vec<Action>) {
        let backend = BackendSpec { id: BackendId(0), name: "s0".to_owned() };
        let spec =
            ServiceSpec { probe: Some(probe), checks, ..ServiceSpec::new("shop", vec![backend]) };
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        controller.backends[0].knowledge = Knowledge::known(5_000.0);
        let out = controller.step(Nanos::ZERO, Event::Tick);
        (controller, out)
    }

    fn probe(controller: &mut Controller, outcome: Outcome, ms: f64) -> Vec<Action> {
        let event = Event::Probe {
            backend: BackendId(0),
            outcome,
            latency_us: ms * 1e3,
            detail: String::new(),
        };
        controller.step(Nanos(1), event)
    }

    fn interval(controller: &Controller) -> f64 {
        controller.backends[0].probing.expect("it is probed").0.as_secs_f64()
    }

    #[test]
    fn a_probe_that_costs_thirty_requests_is_sent_a_thirtieth_as_often_answered_or_not() {
        let (mut controller, _) = controller(ProbeRate::default(), CheckSpec::default());
        assert_eq!(interval(&controller), 0.5, "one of 200 a second is half a percent");
        probe(&mut controller, Outcome::Success, 5.0);
        assert_eq!(interval(&controller), 0.5);
        for outcome in [Outcome::Success, Outcome::Failure(FailureKind::Timeout)] {
            controller.backends[0].asked = Asked::default();
            probe(&mut controller, outcome, 150.0);
            assert!((interval(&controller) - 15.0).abs() < 0.1, "{}", interval(&controller));
            let part = controller.backends[0].asked_part(0).expect("a part");
            assert!((part - BUDGET).abs() < 1e-4, "{part}");
        }
        // A probe that queued as long as client requests do costs no more than one.
        controller.backends[0].asked = Asked::default();
        controller.backends[0].recent.latency_us = Some(80_000.0);
        probe(&mut controller, Outcome::Success, 80.0);
        assert!(interval(&controller) < 1.0, "{}", interval(&controller));
    }

    #[test]
    fn backend_whose_traffic_is_no_evidence_is_checked_at_once_when_a_request_is_lost() {
        let backend = BackendSpec { id: BackendId(0), name: "s0".to_owned() };
        let spec = ServiceSpec::new("shop", vec![backend]);
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        // Two requests every 100 ms; those of one tenth are lost.
        let mut asked = Vec::new();
        for tenths in 0..80u64 {
            let server = ServerReport {
                started_total: 2 * tenths,
                errors_total: 2 * tenths.saturating_sub(30).min(1),
                ..ServerReport::new(BackendId(0), 1, ServerStatus::Up)
            };
            let report = BalancerReport {
                at: Nanos(tenths * 100_000_000),
                method: Method { name: "leastconn".to_owned(), kind: MethodKind::InFlight },
                generation: 1,
                traffic: plimsoll_model::Traffic::Counted,
                servers: vec![server],
            };
            for action in controller.step(report.at, Event::Balancer(report)) {
                if let Action::CheckRate { interval, at_once, .. } = action {
                    asked.push((tenths, interval, at_once));
                }
            }
        }
        let (lost, answered) = ((31, Some(SUSPECT), true), (32, Some(SUSPECT), false));
        assert_eq!(asked[asked.len() - 2..], [lost, answered], "{asked:?}");
    }

    #[test]
    fn slow_probes_are_rare_before_the_service_time_is_known() {
        let (mut controller, _) = controller(ProbeRate::default(), CheckSpec::default());
        controller.backends[0].knowledge = Knowledge::default();
        controller.step(Nanos(1), Event::Tick);
        assert_eq!(interval(&controller), 5.0);
        // It is never idle, so the probe shows no unloaded service time.
        controller.backends[0].in_flight = 9;
        probe(&mut controller, Outcome::Success, 150.0);
        assert!((interval(&controller) - 15.0).abs() < 0.1, "{}", interval(&controller));
    }

    #[test]
    fn configured_intervals_are_kept_and_warned_of_once_where_they_exceed_the_budget() {
        let often = |ms| Some(Duration::from_millis(ms));
        let asked = |probe_ms, check_ms| {
            let probe = ProbeRate { interval: often(probe_ms), requests: Some(2) };
            controller(probe, CheckSpec { requests: 3, interval: often(check_ms) })
        };
        let warnings = |out: &[Action]| -> Vec<String> {
            let reason = |action: &Action| match action {
                Action::Record(record) => Some(record.reason.clone()),
                _ => None,
            };
            out.iter().filter_map(reason).collect()
        };
        let (mut dear, out) = asked(100, 100);
        let b = &dear.backends[0];
        assert_eq!((b.probing, b.checked), (Some((Duration::from_millis(100), 2)), often(100)));
        let warnings_given = warnings(&out);
        assert!(
            warnings_given.len() == 1 && warnings_given[0].contains("cost 25.0 % of its capacity"),
            "{warnings_given:?}"
        );
        assert!(warnings(&dear.step(Nanos(9), Event::Tick)).is_empty(), "once");
        let (cheap, out) = asked(2_000, 4_000);
        assert_eq!(warnings(&out), [""; 0]);
        assert!(cheap.backends[0].asked_part(3).is_some_and(|part| part < 0.015));
    }

    fn check(controller: &mut Controller, at_s: u64, ms: u64, failure: Option<FailureKind>) {
        let (started, now) = (Nanos(at_s * 1_000_000_000), Nanos((at_s * 1_000 + ms) * 1_000_000));
        let backend = BackendId(0);
        let successes = u32::from(failure.is_none());
        controller.step(now, Event::Liveness { backend, successes, failure, started });
    }

    #[test]
    fn the_budget_binds_however_little_a_backend_serves_or_is_known_of_it() {
        let by_request = CheckSpec { requests: 1, interval: None };
        let every = |known: Knowledge, ms: u64, failure: Option<FailureKind>| {
            let (mut controller, _) = controller(ProbeRate::default(), by_request);
            controller.spec.probe = None;
            controller.backends[0].knowledge = known;
            (0..8).for_each(|i| check(&mut controller, 10 * i, ms, failure));
            controller.backends[0].checked.expect("it is checked").as_secs_f64()
        };
        assert_eq!(every(Knowledge::known(4e6), 900, None), 400.0, "a request in four seconds");
        // Of one that is idle nothing bounds the capacity: a quota may allow a hundredth of its unloaded pace.
        let mut unloaded = Knowledge::default();
        (0..20).for_each(|_| unloaded.observe_unloaded(5_000.0));
        assert_eq!(every(unloaded, 5, None), 100.0);
        assert_eq!(every(Knowledge::default(), 5, None), 100.0);
        assert_eq!(every(Knowledge::default(), 5_000, None), 500.0, "it may keep a core busy");
        let refused = every(Knowledge::default(), 1, Some(FailureKind::Refused));
        assert_eq!(refused, SUSPECT.as_secs_f64(), "the kernel answers");
    }

    #[test]
    fn suspicions_in_a_row_bring_no_checks_beyond_the_budget() {
        let by_request = CheckSpec { requests: 1, interval: None };
        let (mut controller, _) = controller(ProbeRate::default(), by_request);
        controller.spec.probe = None;
        controller.backends[0].knowledge = Knowledge::known(1e6);
        let (mut asked, mut errors) = (0, 0u64);
        // Two requests are lost every second, and answers follow.
        for tenths in 1..900u64 {
            errors += 2 * u64::from(tenths % 10 == 5);
            let server = ServerReport {
                started_total: 2 * tenths,
                errors_total: errors,
                answered_total: Some(2 * tenths - errors),
                ..ServerReport::new(BackendId(0), 1, ServerStatus::Up)
            };
            let report = BalancerReport {
                at: Nanos(tenths * 100_000_000),
                method: Method { name: "leastconn".to_owned(), kind: MethodKind::InFlight },
                generation: 1,
                traffic: plimsoll_model::Traffic::Counted,
                servers: vec![server],
            };
            let at_once = |action: &Action| {
                matches!(action, Action::CheckRate { at_once: true, interval: Some(_), .. })
            };
            if controller.step(report.at, Event::Balancer(report)).iter().any(at_once) {
                asked += 1;
                check(&mut controller, tenths / 10, 200, None);
            }
        }
        let served = 2 * 899 - errors;
        assert!(asked > 1 && 100 * (asked - 1) <= served, "{asked} beside {served}");
    }
}
