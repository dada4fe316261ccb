//! State of one backend.

use std::time::Duration;

use plimsoll_learn::drift::{Change, RateWatch};
use plimsoll_model::{BackendId, Nanos, ServerStatus};

use crate::belief::knowledge::{Knowledge, Setting};
use crate::experiments::refresh::Due;
use crate::members::asking::Asked;
use crate::members::health::Health;
use crate::members::life::Life;
use crate::observe::traffic::{Meter, Window};
use crate::propose::backlog::Corrected;
use crate::show::view::{BackendState, Belief};
use crate::spec::BackendSpec;
use crate::tuning::members::backend::{
    ENOUGH, EXCESS, EXCESS_KEPT, EXCESS_SIGMA, FADING, HUNG, IDLE, OVERRUN, RAMP_START,
    SLOWEST_FADING,
};

/// Results of the last window, for decisions and for display.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Recent {
    pub rate_rps: f64,
    pub in_flight: f64,
    pub latency_us: Option<f64>,
}

/// A load that a backend is given in order to measure it, whatever the packing says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pin {
    /// Requests per second.
    Exactly(f64),
    /// This multiple of its weight.
    Times(f64),
}

/// The weight wanted for a backend, and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wanted {
    pub weight: u32,
    pub share: f64,
    pub expected_us: Option<f64>,
    pub reason: String,
}

/// A backend as the controller knows it.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    pub id: BackendId,
    pub name: String,
    pub health: Health,
    pub knowledge: Knowledge,
    pub meter: Meter,
    /// The weight that the balancer holds.
    pub programmed: Option<u32>,
    /// The weight that corrects for the backend's backlog, and the planned weight that it replaces.
    pub corrected: Option<Corrected>,
    pub status: Option<ServerStatus>,
    /// Requests in flight in the last report.
    pub in_flight: u32,
    pub recent: Recent,
    /// Request-seconds and requests, exponentially decayed.
    pub smoothed: (f64, f64),
    /// Completed requests and seconds, exponentially decayed.
    pub done: (f64, f64),
    /// When slow start began.
    pub ramping_since: Option<Nanos>,
    /// Answers and silences, as counted by the balancer.
    pub life: Life,
    /// Set aside: it does not answer, and has weight 0 until it does.
    pub aside: bool,
    /// It was set aside and restored once without an answer, because no request waited there any longer.
    pub tried: bool,
    /// The warning that its checks fail though it answers clients, or that none has ever reached it, was recorded.
    pub warned_checks: bool,
    /// The balancer checks its health by itself.
    pub checked_by_balancer: bool,
    /// Interval of its liveness checks as last requested.
    pub checked: Option<Duration>,
    /// That interval was requested because the backend is suspected to have failed.
    pub suspected: bool,
    /// When an immediate check was last requested.
    pub looked_at: Nanos,
    pub wanted: Wanted,
    /// Its share in the last plan known to be in force.
    pub granted_share: f64,
    /// The load that its weight is set for under an in-flight method, requests per second.
    pub ask_rps: f64,
    /// The throughput observed when it was last offered several times as much.
    pub offered_rps: Option<f64>,
    /// Interval and requests of its probes as last requested.
    pub probing: Option<(Duration, u32)>,
    /// Change detectors: for service under traffic, and for unloaded probes.
    pub watch: Option<RateWatch>,
    /// Replaces `watch` after the estimate of the cores changed, once it has a baseline.
    pub next_watch: Option<RateWatch>,
    /// For how long the estimate of the cores has differed from that of `watch`, seconds.
    pub other_cores_s: f64,
    /// The last estimate of the cores, and for how long it has held, seconds.
    pub cores_held: f64,
    pub same_cores_s: f64,
    /// Since when alarms of the detectors are accepted.
    pub judged_from: Option<Nanos>,
    pub probe_watch: Option<RateWatch>,
    /// When `probe_watch` last took a probe.
    pub probe_watched_at: Option<Nanos>,
    /// When its curve was last rescaled or relearned, and the multiple of its former rate.
    pub changed: Option<(Nanos, f64)>,
    /// Since when it is being relearned, and its capacity estimate before, requests per second.
    pub relearned: Option<(Nanos, f64)>,
    /// What its checks and probes have cost.
    pub asked: Asked,
    /// The load that it is given to be measured, if any.
    pub pin: Option<Pin>,
    pub refresh_due: Due,
    /// Time of the first of the consecutive reports in which it was idle, and in which it was unloaded.
    idle_since: Option<Nanos>,
    unloaded_since: Option<Nanos>,
    /// When it last got a request.
    pub served_at: Nanos,
    /// Since when it has weight 0 and requests still in flight.
    pub zeroed_at: Option<Nanos>,
    /// Duration of its slow start.
    pub slow_start: Duration,
    /// The warning that checks and probes exceed the budget was recorded.
    pub warned_cost: bool,
}

impl Backend {
    pub fn new(spec: &BackendSpec, slow_start: Duration) -> Self {
        Backend {
            id: spec.id,
            name: spec.name.clone(),
            health: Health::default(),
            knowledge: Knowledge::default(),
            meter: Meter::default(),
            programmed: None,
            corrected: None,
            status: None,
            in_flight: 0,
            recent: Recent::default(),
            smoothed: (0.0, 0.0),
            done: (0.0, 0.0),
            ramping_since: None,
            life: Life::default(),
            aside: false,
            tried: false,
            warned_checks: false,
            checked_by_balancer: false,
            checked: None,
            suspected: false,
            looked_at: Nanos::ZERO,
            wanted: Wanted::default(),
            granted_share: 0.0,
            ask_rps: 0.0,
            offered_rps: None,
            probing: None,
            watch: None,
            next_watch: None,
            other_cores_s: 0.0,
            cores_held: 1.0,
            same_cores_s: 0.0,
            judged_from: None,
            probe_watch: None,
            probe_watched_at: None,
            changed: None,
            relearned: None,
            asked: Asked::default(),
            pin: None,
            refresh_due: Due::default(),
            idle_since: None,
            unloaded_since: None,
            served_at: Nanos::ZERO,
            zeroed_at: None,
            slow_start,
            warned_cost: false,
        }
    }

    /// Drained or in maintenance by an administrator: Plimsoll does not touch it.
    pub fn is_reserved(&self) -> bool {
        matches!(self.status, Some(ServerStatus::Drain | ServerStatus::Maintenance))
    }

    /// The planned weight behind the one that the balancer holds: a correction for a backlog is undone.
    pub fn planned_weight(&self) -> Option<u32> {
        let corrected = self.corrected.filter(|c| self.programmed == Some(c.held));
        corrected.map_or(self.programmed, |c| Some(c.planned))
    }

    /// Whether it may be given traffic.
    pub fn is_usable(&self) -> bool {
        !self.health.is_down() && !self.is_reserved()
    }

    /// The part of its full share that slow start allows now.
    pub fn ramp(&self, now: Nanos) -> f64 {
        // The balancer's own slowstart is at work: two ramps would multiply.
        if self.status == Some(ServerStatus::Starting) {
            return 1.0;
        }
        match self.ramping_since {
            Some(since) if !self.slow_start.is_zero() => {
                let passed = now.since(since).as_secs_f64() / self.slow_start.as_secs_f64();
                (RAMP_START + (1.0 - RAMP_START) * passed).min(1.0)
            }
            _ => 1.0,
        }
    }

    /// Begins slow start, towards the throughput observed so far: `ask_rps` is raised again from there.
    pub fn begin_ramp(&mut self, now: Nanos) {
        self.ramping_since = Some(now);
        self.ask_rps = 0.0;
    }

    /// Processes a window of traffic.
    pub fn observe(
        &mut self,
        window: &Window,
        steady: bool,
        setting: Setting,
        typical_us: Option<f64>,
    ) {
        let latency_us = window.latency_us();
        self.recent =
            Recent { rate_rps: window.rate_rps(), in_flight: window.in_flight, latency_us };
        if window.is_timed {
            // Of a backend with few requests what is enough stays, for some time, and a window later still is.
            let kept = (ENOUGH / FADING / self.smoothed.1).clamp(FADING, SLOWEST_FADING);
            self.smoothed.0 = kept * self.smoothed.0 + window.request_seconds();
            self.smoothed.1 = kept * self.smoothed.1 + window.started;
        }
        self.health.answers(window.completed, window.wrong_answers);
        // While it hangs its throughput says nothing of its capacity.
        let hung = HUNG.max(self.life.usual_pause().mul_f64(2.0));
        if self.life.silent().is_none_or(|silent| silent < hung) {
            self.knowledge.observe(window, steady, setting, typical_us);
        }
        let kept = EXCESS_KEPT;
        self.done.0 = kept * self.done.0 + window.completed;
        self.done.1 = kept * self.done.1 + window.seconds;
        self.asked.note_carried(self.done);
    }

    /// Without traffic there may still be earlier requests in flight.
    fn is_idle(&self) -> bool {
        self.recent.rate_rps < IDLE * self.knowledge.capacity_rps().unwrap_or(1.0)
            && f64::from(self.in_flight) < self.knowledge.cores()
    }

    fn is_unloaded(&self) -> bool {
        self.programmed == Some(0) && self.in_flight == 0
    }

    /// Called once per report: records since when it is idle and unloaded.
    pub fn note_idle(&mut self, at: Nanos) {
        self.idle_since = self.is_idle().then(|| self.idle_since.unwrap_or(at));
        self.unloaded_since = self.is_unloaded().then(|| self.unloaded_since.unwrap_or(at));
    }

    /// Whether it was idle, at most one request per core, since this time, when a probe began. (A probe that began
    /// earlier may have waited behind requests that are gone by now.)
    pub fn was_idle_from(&self, began: Nanos) -> bool {
        self.is_idle() && self.idle_since.is_some_and(|since| since <= began)
    }

    /// The same for unloaded: weight 0 and nothing in flight.
    pub fn was_unloaded_from(&self, began: Nanos) -> bool {
        self.is_unloaded() && self.unloaded_since.is_some_and(|since| since <= began)
    }

    /// The change to its estimates if it completes significantly more than its estimated capacity.
    pub fn exceeds_capacity(&self) -> Option<Change> {
        let (completed, seconds) = self.done;
        let expected =
            self.knowledge.capacity_rps().filter(|_| self.knowledge.is_known())? * seconds;
        let beyond = completed - expected;
        (beyond > EXCESS_SIGMA * expected.max(completed).sqrt() && beyond > EXCESS * expected).then(
            || Change {
                ratio: completed / expected,
                requests: completed,
                seconds,
                is_beyond_cores: false,
            },
        )
    }

    /// Response time over unloaded service time, where both are known.
    pub fn slowdown(&self) -> Option<f64> {
        Some(self.recent.latency_us? / self.knowledge.service_us()?)
    }

    /// The same over some tens of seconds, so that noise does not move weights.
    pub fn smoothed_slowdown(&self) -> Option<f64> {
        let (area, started) = self.smoothed;
        (started >= ENOUGH).then_some(())?;
        Some(area / started * 1e6 / self.knowledge.service_us()?)
    }

    /// Whether what [`Backend::smoothed_slowdown`] tells is of the last windows.
    pub fn has_many_requests(&self) -> bool {
        self.smoothed.1 > ENOUGH / FADING
    }

    /// Whether it is overloaded: more requests in flight than a well-loaded queue has by chance (one core at 80 % load
    /// has so many for 3 % of the time), and slow because of them.
    pub fn is_over_utilised(&self, latency_factor: f64) -> bool {
        let many = OVERRUN.0 * self.knowledge.cores() + OVERRUN.1;
        f64::from(self.in_flight) > many
            && self.recent.in_flight > 0.7 * many
            && self.slowdown().is_none_or(|s| s > latency_factor)
    }

    /// What is estimated of it.
    pub fn belief(&self) -> Belief {
        Belief {
            backend: self.id,
            programmed: self.programmed,
            wanted: self.wanted.weight,
            capacity_rps: self.knowledge.capacity_rps(),
            capacity_error: self.knowledge.error(),
            is_lower_bound: self.knowledge.is_lower_bound(),
            service_us: self.knowledge.service_us(),
            changed: self.changed,
            is_measured: self.pin.is_some(),
        }
    }

    pub fn state(&self, now: Nanos) -> BackendState {
        if self.health.is_down() {
            BackendState::Failed
        } else if self.aside && !self.is_reserved() {
            BackendState::SetAside
        } else if self.is_reserved() {
            BackendState::Draining
        } else if self.ramp(now) < 1.0 {
            BackendState::Joining
        } else if self.wanted.weight == 0 && self.programmed == Some(0) {
            BackendState::Parked
        } else if self.knowledge.is_known() {
            BackendState::Ready
        } else {
            BackendState::Exploring
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_learn::Lagged;

    use super::*;
    use crate::belief::typical::Typical;
    use crate::spec::CurveChoice;

    #[test]
    fn a_probe_that_may_have_waited_behind_others_is_not_an_unloaded_one() {
        let at = |s: u64| Nanos(s * 1_000_000_000);
        let spec = BackendSpec { id: BackendId(1), name: "s1".to_owned() };
        let mut b = Backend::new(&spec, Duration::ZERO);
        (b.programmed, b.in_flight) = (Some(0), 3);
        b.note_idle(at(10));
        b.in_flight = 0;
        for second in 11..14 {
            b.note_idle(at(second));
        }
        assert!(!b.was_unloaded_from(at(10)) && !b.was_idle_from(at(10)), "three were before it");
        assert!(b.was_unloaded_from(at(11)) && b.was_idle_from(at(11)));
        b.programmed = Some(5);
        assert!(!b.was_unloaded_from(at(12)), "it gets traffic by now");
    }

    #[test]
    fn a_backend_of_few_requests_shows_that_it_is_slow_and_forgets_it_without_any() {
        let spec = BackendSpec { id: BackendId(1), name: "s1".to_owned() };
        let mut b = Backend::new(&spec, Duration::ZERO);
        // Alone a request takes a second.
        (0..10).for_each(|_| b.knowledge.observe_unloaded(1e6));
        b.knowledge.refit(CurveChoice::Auto, Typical::default());
        // Every third second one comes; with two in flight it takes six seconds.
        let second = |started: f64, in_flight: f64| Window {
            seconds: 1.0,
            started,
            completed: started,
            errors: 0.0,
            wrong_answers: 0.0,
            measured_us: None,
            is_timed: true,
            in_flight,
            seen: vec![(in_flight as u32, 10)],
            growth: 0.0,
            lagged: Lagged::default(),
            long_lagged: Lagged::default(),
            is_averaged: false,
        };
        let setting = Setting { rps: None, is_split: false };
        let mut watch = |seconds: u32, started: f64, in_flight: f64| {
            for k in 0..seconds {
                let started = if k % 3 == 0 { started } else { 0.0 };
                b.observe(&second(started, in_flight), false, setting, None);
            }
            b.smoothed_slowdown()
        };
        assert_eq!(watch(12, 1.0, 2.0), None, "four requests are too few");
        let slowdown = watch(60, 1.0, 2.0).expect("twenty more");
        assert!((5.0..7.0).contains(&slowdown), "{slowdown}");
        assert_eq!(watch(60, 0.0, 0.0), None);
    }
}
