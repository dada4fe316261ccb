//! One backend in the controller's books.

use std::time::Duration;

use plimsoll_learn::drift::{Change, RateWatch};
use plimsoll_model::{BackendId, Nanos, ServerStatus};

use crate::belief::knowledge::{Knowledge, Setting};
use crate::experiments::refresh::Due;
use crate::members::health::Health;
use crate::members::life::Life;
use crate::observe::traffic::{Meter, Window};
use crate::propose::backlog::Corrected;
use crate::show::view::BackendState;
use crate::spec::BackendSpec;

/// In flight beyond `a·cores + b` a backend is overrun.
const OVERRUN: (f64, f64) = (4.0, 10.0);
/// What is kept of the past per window in smoothed response times.
const FADING: f64 = 0.8;
/// From so long without an answer on a backend hangs.
const HUNG: Duration = Duration::from_secs(2);
/// A backend completes more than it was thought to bear when it does so for some ten seconds, by so much
/// and so many standard deviations.
const OUTDONE: f64 = 0.1;
const OUTDONE_SIGMA: f64 = 6.0;
const OUTDONE_KEPT: f64 = 0.9;
/// With less traffic than this part of what it bears a backend is idle.
const IDLE: f64 = 0.05;
/// Where the ramp begins, as a part of the whole share.
const RAMP_START: f64 = 0.1;

/// What one window told, kept for decisions and for people.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Recent {
    pub rate_rps: f64,
    pub in_flight: f64,
    pub latency_us: Option<f64>,
}

/// A load that is given to a backend on purpose, whatever the packing says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pin {
    /// Requests per second.
    Exactly(f64),
    /// This multiple of its weight.
    Times(f64),
}

/// What is wanted of a backend, and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wanted {
    pub weight: u32,
    pub share: f64,
    pub expected_us: Option<f64>,
    pub reason: String,
}

/// One backend.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    pub id: BackendId,
    pub name: String,
    pub health: Health,
    pub knowledge: Knowledge,
    pub meter: Meter,
    /// What the balancer holds.
    pub programmed: Option<u32>,
    /// The weight that corrects for its backlog, and the planned one in its place.
    pub corrected: Option<Corrected>,
    pub status: Option<ServerStatus>,
    /// In flight as of the last report.
    pub in_flight: u32,
    pub recent: Recent,
    /// Request-seconds and requests, fading.
    pub smoothed: (f64, f64),
    /// Requests completed, and seconds, fading.
    pub done: (f64, f64),
    /// Since when its share ramps up.
    pub ramping_since: Option<Nanos>,
    /// Its signs of life.
    pub life: Life,
    /// It does not answer, and gets nothing until it does.
    pub aside: bool,
    /// It was set aside, and asked again when nobody waited there any longer.
    pub tried: bool,
    /// It was said that its checks fail though it answers clients.
    pub warned_checks: bool,
    /// How it is checked for life, as last asked for.
    pub checked: Option<Duration>,
    /// That was asked for because something speaks against it.
    pub suspected: bool,
    /// When it was last looked at at once.
    pub looked_at: Nanos,
    pub wanted: Wanted,
    /// Its share by the last plan that is known to be in force.
    pub granted_share: f64,
    /// What it is asked to bear under an in-flight method, requests per second.
    pub ask_rps: f64,
    /// What was seen of it when it was last offered several times that.
    pub offered_rps: Option<f64>,
    /// The probing last asked for.
    pub probing: Option<(Duration, u32)>,
    /// Watches its service under traffic, and at rest by its probes.
    pub watch: Option<RateWatch>,
    /// Takes over with other cores once it knows what to hold against.
    pub next_watch: Option<RateWatch>,
    /// For how long other cores than those watched with were believed in.
    pub other_cores_s: f64,
    /// The cores last believed in, and for how long.
    pub cores_held: f64,
    pub same_cores_s: f64,
    /// From when on what it does is held against what is known of it.
    pub judged_from: Option<Nanos>,
    pub probe_watch: Option<RateWatch>,
    /// When that last took a probe.
    pub probe_watched_at: Option<Nanos>,
    /// When it last changed, and to which multiple of its rate.
    pub changed: Option<(Nanos, f64)>,
    /// Since when it is learned anew, and what it was thought to bear, requests per second.
    pub relearned: Option<(Nanos, f64)>,
    /// The last probe that was answered well: when, microseconds.
    pub probed: Option<(Nanos, f64)>,
    /// Mean time of the last probes, however they ended, microseconds, and how many they were.
    pub probe_time: (f64, f64),
    /// What it is given on purpose.
    pub pin: Option<Pin>,
    pub refresh_due: Due,
    /// Since which report it has had next to nothing to do, and since which nothing at all.
    idle_since: Option<Nanos>,
    rest_since: Option<Nanos>,
    /// When it last got a request.
    pub served_at: Nanos,
    /// Since when it has been at 0 with requests still in flight.
    pub zeroed_at: Option<Nanos>,
    /// How long its share ramps up.
    pub slow_start: Duration,
    /// It was said that asking it costs more than the budget.
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
            probed: None,
            probe_time: (0.0, 0.0),
            pin: None,
            refresh_due: Due::default(),
            idle_since: None,
            rest_since: None,
            served_at: Nanos::ZERO,
            zeroed_at: None,
            slow_start,
            warned_cost: false,
        }
    }

    /// An administrator drains it or has it in maintenance: none of our business.
    pub fn is_reserved(&self) -> bool {
        matches!(self.status, Some(ServerStatus::Drain | ServerStatus::Maintenance))
    }

    /// The weight that the balancer holds by plan: less what corrects it for a backlog.
    pub fn planned_weight(&self) -> Option<u32> {
        let corrected = self.corrected.filter(|c| self.programmed == Some(c.held));
        corrected.map_or(self.programmed, |c| Some(c.planned))
    }

    /// It may be given traffic.
    pub fn is_usable(&self) -> bool {
        !self.health.is_down() && !self.is_reserved()
    }

    /// The part of its share that it may have now, by how long it has been back.
    pub fn ramp(&self, now: Nanos) -> f64 {
        // The balancer's own slowstart ramps already: two ramps multiply.
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

    /// From now on its share ramps up, to what was seen of it: more is asked of it when it has that.
    pub fn begin_ramp(&mut self, now: Nanos) {
        self.ramping_since = Some(now);
        self.ask_rps = 0.0;
    }

    /// Takes a window of traffic.
    pub fn observe(
        &mut self,
        window: &Window,
        steady: bool,
        setting: Setting,
        typical_us: Option<f64>,
    ) {
        let latency_us = (window.started > 0.0).then(|| window.in_flight / window.rate_rps() * 1e6);
        self.recent =
            Recent { rate_rps: window.rate_rps(), in_flight: window.in_flight, latency_us };
        self.smoothed.0 = FADING * self.smoothed.0 + window.in_flight * window.seconds;
        self.smoothed.1 = FADING * self.smoothed.1 + window.started;
        self.health.answers(window.completed, window.wrong_answers);
        // What hangs has a capacity of its own, that of a hung backend.
        let hung = HUNG.max(self.life.usual_pause().mul_f64(2.0));
        if self.life.silent().is_none_or(|silent| silent < hung) {
            self.knowledge.observe(window, steady, setting, typical_us);
        }
        let kept = OUTDONE_KEPT;
        self.done.0 = kept * self.done.0 + window.completed;
        self.done.1 = kept * self.done.1 + window.seconds;
    }

    /// No traffic does not mean that no request of before is left.
    fn is_idle(&self) -> bool {
        self.recent.rate_rps < IDLE * self.knowledge.capacity_rps().unwrap_or(1.0)
            && f64::from(self.in_flight) < self.knowledge.cores()
    }

    fn is_at_rest(&self) -> bool {
        self.programmed == Some(0) && self.in_flight == 0
    }

    /// Takes down, once per report, since when it has had nothing to do.
    pub fn note_idle(&mut self, at: Nanos) {
        self.idle_since = self.is_idle().then(|| self.idle_since.unwrap_or(at));
        self.rest_since = self.is_at_rest().then(|| self.rest_since.unwrap_or(at));
    }

    /// A probe that began at this time had no more company than a core each. (One that began earlier may
    /// have waited behind what is gone by now.)
    pub fn was_idle_from(&self, began: Nanos) -> bool {
        self.is_idle() && self.idle_since.is_some_and(|since| since <= began)
    }

    /// The same, and no company at all.
    pub fn was_at_rest_from(&self, began: Nanos) -> bool {
        self.is_at_rest() && self.rest_since.is_some_and(|since| since <= began)
    }

    /// It completes more than it is thought to bear: by how much, when that is beyond chance.
    pub fn outdoes(&self) -> Option<Change> {
        let (completed, seconds) = self.done;
        let bears = self.knowledge.capacity_rps().filter(|_| self.knowledge.is_known())? * seconds;
        let beyond = completed - bears;
        (beyond > OUTDONE_SIGMA * bears.max(completed).sqrt() && beyond > OUTDONE * bears).then(
            || Change {
                ratio: completed / bears,
                requests: completed,
                seconds,
                is_beyond_cores: false,
            },
        )
    }

    /// What it completes over what it is thought to bear, lately.
    pub fn completed_part(&self) -> f64 {
        let (completed, seconds) = self.done;
        let bears = self.knowledge.capacity_rps().unwrap_or(0.0) * seconds;
        if bears > 0.0 { completed / bears } else { 0.0 }
    }

    /// Response time over the time at rest, where both are known.
    pub fn stretch(&self) -> Option<f64> {
        Some(self.recent.latency_us? / self.knowledge.service_us()?)
    }

    /// The same over some tens of seconds, so that chance does not move weights.
    pub fn calm_stretch(&self) -> Option<f64> {
        let (area, started) = self.smoothed;
        (started >= 10.0).then_some(())?;
        Some(area / started * 1e6 / self.knowledge.service_us()?)
    }

    /// Whether it has more to do than it can: far more in flight than the chance of a well-loaded queue
    /// brings (one core at 80 % load passes this for 3 % of the time), and slow for it.
    pub fn is_over_utilised(&self, latency_factor: f64) -> bool {
        let many = OVERRUN.0 * self.knowledge.cores() + OVERRUN.1;
        f64::from(self.in_flight) > many
            && self.recent.in_flight > 0.7 * many
            && self.stretch().is_none_or(|s| s > latency_factor)
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
    use super::*;

    #[test]
    fn a_probe_that_may_have_waited_behind_others_does_not_tell_of_rest() {
        let at = |s: u64| Nanos(s * 1_000_000_000);
        let spec = BackendSpec { id: BackendId(1), name: "s1".to_owned() };
        let mut b = Backend::new(&spec, Duration::ZERO);
        (b.programmed, b.in_flight) = (Some(0), 3);
        b.note_idle(at(10));
        b.in_flight = 0;
        for second in 11..14 {
            b.note_idle(at(second));
        }
        assert!(!b.was_at_rest_from(at(10)) && !b.was_idle_from(at(10)), "three were before it");
        assert!(b.was_at_rest_from(at(11)) && b.was_idle_from(at(11)));
        b.programmed = Some(5);
        assert!(!b.was_at_rest_from(at(12)), "it gets traffic by now");
    }
}
