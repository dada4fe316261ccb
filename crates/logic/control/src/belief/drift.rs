//! Detects that a backend's service rate has changed: its curve is rescaled, and weights follow at once. The curves of
//! the others stay as they are.
//!
//! Changes of traffic need no test here: its rate is counted, curves are over requests per second, and another rate
//! leads to another packing of the same curves (`decide`).

use std::time::Duration;

use plimsoll_learn::drift::{Change, Interval, RateWatch, Tolerance};
use plimsoll_model::{BackendId, Nanos};

use crate::backend::Backend;
use crate::belief::grain;
use crate::belief::typical::Typical;
use crate::controller::{Controller, record};
use crate::event::{Action, RecordKind};
use crate::gate::pace::Urgent;
use crate::spec::{CurveChoice, DriftTest};
use crate::tuning::belief::drift::{
    CAUTION, GROWN_BY, LASTING_CHANGE_S, LASTING_S, LEARNING, MOST, OTHER_CORES, PAUSES,
    RELEARNING, SAME_CORES, SHARED_NATS, SURE_S, SUSPECT, TOGETHER,
};

impl Backend {
    /// Processes what the last two reports show; returns a change of the service rate, if there is one.
    pub(crate) fn watch_traffic(&mut self, now: Nanos) -> Option<Change> {
        let interval = self.meter.interval()?;
        if !self.is_usable() || self.knowledge.service_us().is_none() {
            self.watch = None;
            return None;
        }
        self.judged_from.get_or_insert(now + LEARNING);
        let lasting_s = LASTING_CHANGE_S.max(PAUSES * self.life.longest_pause().as_secs_f64());
        let moved = self.knowledge.note_interval(&interval, lasting_s);
        if self.knowledge.may_be_held() {
            self.watch = None;
            return moved.map(|grain::Moved { ratio, requests, seconds }| Change {
                ratio,
                requests,
                seconds,
                is_beyond_cores: true,
            });
        }
        let (cores, bounded) = (self.knowledge.cores(), self.knowledge.is_lower_bound());
        let watch = self.watch.get_or_insert_with(|| RateWatch::new(cores, Tolerance::default()));
        let apart = (cores / watch.cores() - 1.0).abs();
        let held = (cores / self.cores_held - 1.0).abs() < SAME_CORES;
        self.same_cores_s = if held { self.same_cores_s + interval.seconds } else { 0.0 };
        self.cores_held = cores;
        let other = apart > if bounded { OTHER_CORES.1 } else { OTHER_CORES.0 };
        self.other_cores_s = if other { self.other_cores_s + interval.seconds } else { 0.0 };
        // A change also disturbs the estimate of the cores: that must not replace the detector that is about to find
        // it.
        if !other {
            self.next_watch = None;
        } else if self.other_cores_s > LASTING_S && watch.suspicion().0 < SUSPECT {
            self.watch_other_cores(now, cores, &interval);
        }
        let watch = self.watch.as_mut()?;
        // A higher rate than a lower bound is no change, unless it is more than the estimated cores can do.
        let is_news = |change: &Change| !bounded || change.ratio < 1.0 || change.is_beyond_cores;
        watch.wait_for(lasting_s);
        watch.note(&interval).filter(is_news)
    }

    /// Begins a detector with these cores, which replaces the present one only once it has a baseline: without one it
    /// detects nothing, and the present one, with wrong cores, still detects most.
    fn watch_other_cores(&mut self, now: Nanos, cores: f64, interval: &Interval) {
        let fresh = || RateWatch::new(cores, Tolerance::default());
        let is_judged = self.judged_from.is_some_and(|from| from <= now);
        if !is_judged || !self.watch.as_ref().is_some_and(RateWatch::is_sure) {
            self.watch = Some(fresh());
            self.next_watch = None;
            self.other_cores_s = 0.0;
            return;
        }
        let next = self.next_watch.get_or_insert_with(fresh);
        if (cores / next.cores() - 1.0).abs() > OTHER_CORES.0 {
            *next = fresh();
        }
        if next.is_sure() {
            self.watch = self.next_watch.take();
            self.other_cores_s = 0.0;
        } else {
            next.note(interval);
        }
    }

    /// Processes a probe of the unloaded backend.
    pub(crate) fn watch_probe(&mut self, now: Nanos, latency_us: f64) -> Option<Change> {
        let watch =
            self.probe_watch.get_or_insert_with(|| RateWatch::new(1.0, Tolerance::default()));
        let latency_s = latency_us / 1e6;
        let last = self.probe_watched_at.replace(now);
        watch.note_probe(latency_s, last.map_or(latency_s, |at| now.since(at).as_secs_f64()))
    }

    /// Rescales its curve as well: the next plan may be made before the next window.
    fn rescale(&mut self, now: Nanos, ratio: f64, choice: CurveChoice, typical: Typical) {
        self.knowledge.rescale_quota(ratio);
        self.take_scale(now, ratio, choice, typical);
    }

    /// The same where its quota has been estimated anew.
    fn take_scale(&mut self, now: Nanos, ratio: f64, choice: CurveChoice, typical: Typical) {
        self.knowledge.rescale(ratio);
        self.knowledge.refit(choice, typical);
        self.ask_rps *= ratio;
        self.asked.rescale(ratio);
        self.offered_rps = self.offered_rps.map(|rps| rps * ratio);
        self.smoothed = (0.0, 0.0);
        self.done = (0.0, 0.0);
        self.forget_watched();
        self.changed = Some((now, ratio));
    }

    /// `ratio` is how it seemed to change.
    fn relearn(&mut self, now: Nanos, ratio: f64) {
        self.relearned = self.knowledge.capacity_rps().map(|capacity| (now, capacity));
        self.knowledge.relearn();
        self.forget_watched();
        self.changed = Some((now, ratio));
    }

    /// Discards the baselines of both detectors, so that each change is reported once, by the detector that is first.
    pub(crate) fn forget_watched(&mut self) {
        self.watch = None;
        self.next_watch = None;
        (self.probe_watch, self.probe_watched_at) = (None, None);
    }

    fn changes_like(&self, now: Nanos, ratio: f64) -> bool {
        let suspected = self.watch.as_ref().map(RateWatch::suspicion);
        let suspected =
            suspected.is_some_and(|(part, other)| part > SUSPECT && is_alike(other, ratio));
        self.changed_like(now, ratio) || suspected
    }

    /// Whether such a change of it was found lately.
    fn changed_like(&self, now: Nanos, ratio: f64) -> bool {
        self.changed.is_some_and(|(at, other)| now.since(at) < TOGETHER && is_alike(other, ratio))
    }
}

impl Controller {
    /// Whether backends are watched for changes.
    pub(crate) fn watches(&self) -> bool {
        self.spec.drift == DriftTest::Sequential
    }

    /// Once per window: rescales backends that complete more than their estimated capacity.
    pub(crate) fn correct_underestimates(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if !self.watches() {
            return;
        }
        let exceeding: Vec<(BackendId, Change)> =
            self.backends.iter().filter_map(|b| Some((b.id, b.exceeds_capacity()?))).collect();
        let (choice, typical) = (self.spec.curve, Typical::of(&self.backends));
        for (id, change) in exceeding {
            let Some(b) = self.get(id) else { continue };
            b.rescale(now, change.ratio.min(MOST), choice, typical);
            let line = format!(
                "it completes {:.2} times its estimated capacity: its curve is rescaled",
                change.ratio
            );
            record(out, RecordKind::Underestimated, Some(&b.name.clone()), line);
            self.experiments.end(id, &mut self.backends);
            self.drifted("a backend completes more than its estimated capacity".to_owned());
        }
        self.conclude_relearning(now, out);
    }

    /// Ends the relearning of backends that may have become faster, and records a greater capacity.
    fn conclude_relearning(&mut self, now: Nanos, out: &mut Vec<Action>) {
        for b in &mut self.backends {
            let Some((since, before)) = b.relearned else { continue };
            let Some(capacity) = b.knowledge.capacity_rps() else { continue };
            let ratio = capacity / before;
            let has_grown = b.knowledge.is_known() && ratio > GROWN_BY;
            if has_grown {
                let line =
                    format!("its capacity, learned again, is {ratio:.2} times the one before");
                record(out, RecordKind::Relearned, Some(&b.name), line);
            }
            if has_grown || now.since(since) > RELEARNING {
                b.relearned = None;
            }
        }
    }

    /// Processes a change of a backend's service rate.
    pub(crate) fn on_change(
        &mut self,
        now: Nanos,
        id: BackendId,
        change: Change,
        out: &mut Vec<Action>,
    ) {
        if self.get(id).is_some_and(|b| b.knowledge.quota().is_some()) {
            return self.on_quota_change(now, id, &change, out);
        }
        let others = self.backends.iter().filter(|b| b.id != id && b.watch.is_some());
        let (watched, alike) = others.fold((0, 0), |(watched, alike), b| {
            (watched + 1, alike + usize::from(b.changes_like(now, change.ratio)))
        });
        let (choice, typical) = (self.spec.curve, Typical::of(&self.backends));
        let is_shared = watched >= 2 && 2 * alike >= watched;
        let Some(b) = self.get(id) else { return };
        if is_shared {
            b.relearn(now, change.ratio);
            let line = format!(
                "it works at {:.2} of its rate before, and so do {alike} of the {watched} others: \
                 attributed to none of them, it is learned again",
                change.ratio
            );
            record(out, RecordKind::Doubted, Some(&b.name), line);
            return;
        }
        let began = now - Duration::from_secs_f64(change.seconds);
        let is_judged = b.judged_from.is_some_and(|from| from <= began);
        // A detector with other cores than the present estimate may only show that the cores differ.
        let is_sure = b.other_cores_s == 0.0 && b.same_cores_s >= SURE_S.max(change.seconds);
        let may_be_cores = !change.is_beyond_cores && !is_sure;
        if !is_judged || may_be_cores {
            // Under changing load, wrong cores look like a change of the rate: the backend's own traffic will show
            // which it is.
            b.relearn(now, 1.0 + f64::EPSILON);
            let line = format!(
                "it may work at {:.2} of its rate before, or have more or fewer cores than estimated: it is learned again from \
                 its own traffic",
                change.ratio
            );
            record(out, RecordKind::Doubted, Some(&b.name), line);
            return;
        }
        // Increases are taken with caution: a backend that is given too much queues at once.
        let caution =
            if change.ratio > 1.0 { 1.0 + CAUTION / change.requests.max(1.0).sqrt() } else { 1.0 };
        let ratio = (change.ratio / caution).clamp(1.0 / MOST, MOST);
        b.rescale(now, ratio, choice, typical);
        self.record_change(id, ratio, &change, out);
    }

    /// Processes a change of what a backend's quota gives. It is shared where the work of the others, all together,
    /// speaks for it: one of few requests says little alone.
    fn on_quota_change(
        &mut self,
        now: Nanos,
        id: BackendId,
        change: &Change,
        out: &mut Vec<Action>,
    ) {
        let others = self.backends.iter().filter(|b| b.id != id && b.is_usable());
        // Alarms come from samples that exaggerate: half of the change is asked for.
        let half = change.ratio.sqrt();
        let nats: f64 = others.map(|b| b.knowledge.nats_for(half, change.seconds)).sum();
        let (choice, typical) = (self.spec.curve, Typical::of(&self.backends));
        if nats < SHARED_NATS {
            let ratio = change.ratio.clamp(1.0 / MOST, MOST);
            let Some(b) = self.get(id) else { return };
            b.knowledge.take_quota(change);
            b.take_scale(now, ratio, choice, typical);
            return self.record_change(id, ratio, change, out);
        }
        let is_recorded = self.backends.iter().any(|b| b.changed_like(now, change.ratio));
        self.backends.iter_mut().for_each(|b| b.knowledge.share_quota());
        let Some(b) = self.get(id).filter(|_| !is_recorded) else { return };
        b.changed = Some((now, change.ratio));
        let line = format!(
            "it works at {:.2} of its rate before, and so do the others, all together: attributed to none of them, they are \
             learned again",
            change.ratio
        );
        record(out, RecordKind::Doubted, Some(&b.name), line);
    }

    fn record_change(&mut self, id: BackendId, ratio: f64, change: &Change, out: &mut Vec<Action>) {
        let Some(name) = self.get(id).map(|b| b.name.clone()) else { return };
        let line = format!(
            "it works at {ratio:.2} of its rate before, by {:.0} requests in {:.1} s: its curve is rescaled",
            change.requests, change.seconds
        );
        record(out, RecordKind::Drift, Some(&name), line);
        self.experiments.end(id, &mut self.backends);
        self.drifted(format!("{name} works at {ratio:.2} of its rate before"));
    }

    fn drifted(&mut self, reason: String) {
        self.drop_trial_and_search();
        self.gate.raise(Urgent::Drift(reason));
    }
}

fn is_alike(ratio: f64, other: f64) -> bool {
    (ratio < 1.0) == (other < 1.0)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::gate::trial::PoolWindow;
    use crate::spec::{BackendSpec, ServiceSpec};

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    /// A controller that has counted this rate.
    fn controller(rate_rps: f64) -> Controller {
        let backends = (0..3).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        for second in 1..10 {
            let window = PoolWindow {
                at: at(second),
                seconds: 1.0,
                started: rate_rps,
                request_seconds: 1.0,
            };
            controller.traffic.push(window);
        }
        controller
    }

    #[test]
    fn a_change_is_reported_once_by_traffic_or_by_probes() {
        let spec = BackendSpec { id: BackendId(1), name: "s1".to_owned() };
        let mut b = Backend::new(&spec, Duration::ZERO);
        // Probes of 5 to 15 ms, then of three times as much.
        let probes = |b: &mut Backend, scale: f64| {
            let probe = |i: u32| b.watch_probe(at(i.into()), scale * 5e3 * f64::from(1 + i % 3));
            (0..2_000).filter_map(probe).count()
        };
        assert_eq!(probes(&mut b, 1.0), 0);
        let mut inferred = b.clone();
        inferred.rescale(at(1), 1.0 / 3.0, CurveChoice::Auto, Typical::default());
        assert_eq!(probes(&mut inferred, 3.0), 0, "its traffic has shown it already");
        let mut again = b.clone();
        again.relearn(at(1), 1.0 / 3.0);
        assert_eq!(probes(&mut again, 3.0), 0, "it is being relearned already");
        assert_eq!(probes(&mut b, 3.0), 1, "nothing has shown it yet");
    }

    #[test]
    fn a_change_that_began_while_learning_is_relearned_and_a_later_one_is_a_change() {
        let change = Change { ratio: 0.6, requests: 500.0, seconds: 30.0, is_beyond_cores: false };
        let found_with = |now: Nanos, (other_cores_s, change): (f64, Change)| {
            let mut controller = controller(100.0);
            let b = &mut controller.backends[0];
            (b.same_cores_s, b.judged_from) = (600.0, Some(at(120)));
            b.other_cores_s = other_cores_s;
            let mut out = Vec::new();
            controller.on_change(now, BackendId(0), change, &mut out);
            let is_drift =
                |a: &Action| matches!(a, Action::Record(r) if r.kind == RecordKind::Drift);
            (out.iter().any(is_drift), controller.gate.urgent().is_some())
        };
        let inferred = |now: Nanos| found_with(now, (0.0, change));
        assert_eq!(inferred(at(149)), (false, false));
        assert_eq!(inferred(at(150)), (true, true), "at once");
        let seen = |change: Change| found_with(at(150), (61.0, change));
        assert_eq!(seen(change), (false, false), "the watch has other cores than are believed");
        let beyond = Change { is_beyond_cores: true, ..change };
        assert_eq!(seen(beyond), (true, true), "which does not matter where none explain it");
    }
}
