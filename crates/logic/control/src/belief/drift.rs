//! A backend works at another rate than before: its curve is rescaled, and weights follow at once. The
//! curves of the others stay as they are.
//!
//! Traffic needs no test here: its rate is counted, curves are over requests per second, and a change of
//! rate leads to another packing of the same curves (`decide`).

use std::time::Duration;

use plimsoll_learn::drift::{
    Change, Interval, Judgement, Moved, PAPER_THRESHOLD, RateWatch, Tolerance, compare,
};
use plimsoll_model::{BackendId, Curve, Nanos};

use crate::backend::Backend;
use crate::belief::grain;
use crate::belief::shape::Shape;
use crate::belief::typical::Typical;
use crate::commit::plan::Decision;
use crate::controller::{Controller, Urgent, record};
use crate::event::{Action, RecordKind};
use crate::show::view::Phase;
use crate::spec::{CurveChoice, DriftTest};

/// Cores that differ by more than this part from those watched with, known or bounded, make another
/// measure of work.
const OTHER_CORES: (f64, f64) = (0.1, 0.5);
/// … when that lasts.
const LASTING_S: f64 = 15.0;
/// Cores within this are the same, and are sure when nothing else was believed for so long.
const SAME_CORES: f64 = 0.1;
const SURE_S: f64 = 60.0;
/// So long after anything was first known of a backend its load and what is believed of its cores still move,
/// and the one passes for the other.
const LEARNING: Duration = Duration::from_secs(120);
/// What is shorter than this, or than so many of the longest pauses, is no change.
const LASTING_CHANGE_S: f64 = 3.0;
const PAUSES: f64 = 3.0;
/// Changes this close to one another have one cause …
const TOGETHER: Duration = Duration::from_secs(30);
/// … and so has one that this part of the evidence for is there.
const SUSPECT: f64 = 0.4;
/// Who is learned anew has become faster when it bears this much more, and is waited for so long.
const BEARS_MORE: f64 = 1.15;
const RELEARNING: Duration = Duration::from_secs(120);
/// Standard errors by which less is believed of who has become faster: alarms come from what exaggerates.
const CAUTION: f64 = 2.0;
/// A curve is never rescaled by more than this at once.
const MOST: f64 = 5.0;
/// The paper's way acts at most this often: a window of the new weights must be seen first.
const LITERAL_EVERY: Duration = Duration::from_secs(3);

impl Backend {
    /// Takes what the last two reports show; says whether it has changed.
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
        // A change unsettles what is known of cores, too: that must not end the watch that is to find it.
        if !other {
            self.next_watch = None;
        } else if self.other_cores_s > LASTING_S && watch.suspicion().0 < SUSPECT {
            self.watch_other_cores(now, cores, &interval);
        }
        let watch = self.watch.as_mut()?;
        // More than a lower bound is no news, unless fewer are there who do it.
        let is_news = |change: &Change| !bounded || change.ratio < 1.0 || change.is_beyond_cores;
        watch.wait_for(lasting_s);
        watch.note(&interval).filter(is_news)
    }

    /// Watches with these cores from now on, but only once the new watch knows what to hold against: one that knows
    /// nothing sees nothing, one with wrong cores most.
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

    /// Takes a probe that it answered with nothing else to do.
    pub(crate) fn watch_probe(&mut self, now: Nanos, latency_us: f64) -> Option<Change> {
        let watch =
            self.probe_watch.get_or_insert_with(|| RateWatch::new(1.0, Tolerance::default()));
        let latency_s = latency_us / 1e6;
        let last = self.probe_watched_at.replace(now);
        watch.note_probe(latency_s, last.map_or(latency_s, |at| now.since(at).as_secs_f64()))
    }

    /// Its curve, too: the next plan may be made before the next window.
    fn rescale(&mut self, now: Nanos, ratio: f64, choice: CurveChoice, typical: Typical) {
        self.knowledge.rescale_quota(ratio);
        self.take_scale(now, ratio, choice, typical);
    }

    /// The same where its quota is known anew already.
    fn take_scale(&mut self, now: Nanos, ratio: f64, choice: CurveChoice, typical: Typical) {
        self.knowledge.rescale(ratio);
        self.knowledge.refit(choice, typical);
        self.ask_rps *= ratio;
        self.offered_rps = self.offered_rps.map(|rps| rps * ratio);
        self.smoothed = (0.0, 0.0);
        self.done = (0.0, 0.0);
        self.forget_watched();
        self.changed = Some((now, ratio));
    }

    fn relearn(&mut self, now: Nanos) {
        self.relearned = self.knowledge.capacity_rps().map(|capacity| (now, capacity));
        self.knowledge.relearn();
        self.forget_watched();
        self.changed = Some((now, 1.0 + f64::EPSILON));
    }

    /// What it was held against is no longer what it is: one change is told once, by whichever watch is
    /// first.
    pub(crate) fn forget_watched(&mut self) {
        self.watch = None;
        self.next_watch = None;
        (self.probe_watch, self.probe_watched_at) = (None, None);
    }

    fn changes_like(&self, now: Nanos, ratio: f64) -> bool {
        let alike = |other: f64| (other < 1.0) == (ratio < 1.0);
        let lately = self.changed.is_some_and(|(at, r)| now.since(at) < TOGETHER && alike(r));
        let suspected = self.watch.as_ref().map(RateWatch::suspicion);
        lately || suspected.is_some_and(|(part, r)| part > SUSPECT && alike(r))
    }
}

impl Controller {
    /// Whether backends are watched for changes.
    pub(crate) fn watches(&self) -> bool {
        self.spec.drift == DriftTest::Sequential && !self.explores_by_paper()
    }

    /// Once a window: who completes more than it was thought to bear, is known wrongly.
    pub(crate) fn correct_underestimates(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if !self.watches() {
            return;
        }
        let outdone: Vec<(BackendId, Change)> =
            self.backends.iter().filter_map(|b| Some((b.id, b.outdoes()?))).collect();
        let (choice, typical) = (self.spec.curve, self.typical());
        for (id, change) in outdone {
            let Some(b) = self.get(id) else { continue };
            b.rescale(now, change.ratio.min(MOST), choice, typical);
            let line = format!(
                "it completes {:.2} times its estimated capacity: its curve is rescaled",
                change.ratio
            );
            record(out, RecordKind::Underestimated, Some(&b.name.clone()), line);
            self.end_refresh(id);
            self.drifted("a backend completes more than its estimated capacity".to_owned());
        }
        self.conclude_relearning(now, out);
    }

    /// Who may have become faster is learned anew, and spoken of once its capacity is known to be greater.
    fn conclude_relearning(&mut self, now: Nanos, out: &mut Vec<Action>) {
        for b in &mut self.backends {
            let Some((since, before)) = b.relearned else { continue };
            let Some(capacity) = b.knowledge.capacity_rps() else { continue };
            let ratio = capacity / before;
            let bears_more = b.knowledge.is_known() && ratio > BEARS_MORE;
            if bears_more {
                let line =
                    format!("its capacity, learned again, is {ratio:.2} times the one before");
                record(out, RecordKind::Relearned, Some(&b.name), line);
            }
            if bears_more || now.since(since) > RELEARNING {
                b.relearned = None;
            }
        }
    }

    /// A backend has changed.
    pub(crate) fn on_change(
        &mut self,
        now: Nanos,
        id: BackendId,
        change: Change,
        out: &mut Vec<Action>,
    ) {
        let others = self.backends.iter().filter(|b| b.id != id && b.watch.is_some());
        let (watched, alike) = others.fold((0, 0), |(watched, alike), b| {
            (watched + 1, alike + usize::from(b.changes_like(now, change.ratio)))
        });
        let (choice, typical) = (self.spec.curve, self.typical());
        let is_shared = watched >= 2 && 2 * alike >= watched;
        let Some(b) = self.get(id) else { return };
        if b.knowledge.quota().is_some() {
            b.take_scale(now, change.ratio.clamp(1.0 / MOST, MOST), choice, typical);
            return self.say_changed(id, change.ratio, &change, out);
        }
        if is_shared {
            b.relearn(now);
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
        // What is watched with other cores than those believed now says no more than that they are others.
        let is_sure = b.other_cores_s == 0.0 && b.same_cores_s >= SURE_S.max(change.seconds);
        let may_be_cores = !change.is_beyond_cores && !is_sure;
        if !is_judged || may_be_cores {
            // Other cores than believed look the same when load changes: its own traffic will tell which.
            b.relearn(now);
            let line = format!(
                "it may work at {:.2} of its rate before, or have more or fewer cores than estimated: it is learned again from \
                 its own traffic",
                change.ratio
            );
            record(out, RecordKind::Doubted, Some(&b.name), line);
            return;
        }
        // More is believed with caution: what is given too much pays for it at once.
        let caution =
            if change.ratio > 1.0 { 1.0 + CAUTION / change.requests.max(1.0).sqrt() } else { 1.0 };
        let ratio = (change.ratio / caution).clamp(1.0 / MOST, MOST);
        b.rescale(now, ratio, choice, typical);
        self.say_changed(id, ratio, &change, out);
    }

    fn say_changed(&mut self, id: BackendId, ratio: f64, change: &Change, out: &mut Vec<Action>) {
        let Some(name) = self.get(id).map(|b| b.name.clone()) else { return };
        let line = format!(
            "it works at {ratio:.2} of its rate before, by {:.0} requests in {:.1} s: its curve is rescaled",
            change.requests, change.seconds
        );
        record(out, RecordKind::Drift, Some(&name), line);
        self.end_refresh(id);
        self.drifted(format!("{name} works at {ratio:.2} of its rate before"));
    }

    fn drifted(&mut self, reason: String) {
        self.trial = None;
        self.search = None;
        self.raise(Urgent::Drift(reason));
    }

    /// Once a window, when asked to do as the paper does.
    pub(crate) fn drift_by_paper(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let due = self.spec.drift == DriftTest::Literal
            && self.phase != Phase::Exploring
            && self.is_calm(now)
            && self.is_fresh(now)
            && now >= self.literal_at;
        let Some(decision) = self.decision.clone().filter(|_| due) else { return };
        // Where more is planned for than the pool can bear curves expect no time, and no latency would ever speak against it.
        let counted = self.counted_rate();
        let bears = plimsoll_learn::USABLE_CAPACITY * decision.capacity_rps;
        let beyond = |told: &f64| *told > bears && counted < bears;
        if let Some(told) = self.literal_rate.filter(beyond) {
            self.literal_rate = None;
            self.literal_at = now + LITERAL_EVERY;
            let line = format!(
                "latencies implied {told:.0} req/s, more than the pool's capacity: planning for the counted {counted:.0} req/s again"
            );
            record(out, RecordKind::Drift, None, line.clone());
            self.drifted(line);
            return;
        }
        let pool: Vec<Option<Moved>> = self.backends.iter().map(|b| moved(b, &decision)).collect();
        match compare(&pool, PAPER_THRESHOLD) {
            Judgement::Nothing => return,
            Judgement::Traffic { grown } => {
                // Those that moved this way, as far as a load explains it.
                let ratios = self.backends.iter().filter_map(|b| self.load_ratio(b, &decision));
                let mut ratios: Vec<f64> = ratios.filter(|r| (*r > 1.0) == grown).collect();
                ratios.sort_by(f64::total_cmp);
                let Some(ratio) = ratios.get(ratios.len() / 2) else { return };
                self.literal_rate = Some(decision.rate_rps * ratio);
                let word = if grown { "grown" } else { "fallen" };
                let line = format!(
                    "most latencies moved: traffic has {word} to {ratio:.2} times the rate before"
                );
                record(out, RecordKind::Drift, None, line.clone());
                self.drifted(line);
            }
            Judgement::Backends(which) => {
                let (choice, typical) = (self.spec.curve, self.typical());
                for i in which {
                    let Some(ratio) = self.load_ratio(&self.backends[i], &decision) else {
                        continue;
                    };
                    let b = &mut self.backends[i];
                    // It bears what it completes, whatever its latency says.
                    let scale = (1.0 / ratio).max(b.completed_part().min(1.0));
                    if scale == 1.0 {
                        continue;
                    }
                    b.rescale(now, scale, choice, typical);
                    let name = self.backends[i].name.clone();
                    let line = format!("its latency moved: its curve is rescaled by {scale:.2}");
                    record(out, RecordKind::Drift, Some(&name), line.clone());
                    self.drifted(format!("{name}: {line}"));
                }
            }
        }
        self.literal_at = now + LITERAL_EVERY;
    }

    /// The load that its curve has at the latency measured, over the load planned; `None` where no load
    /// has it, for it is less than the time at rest.
    fn load_ratio(&self, b: &Backend, decision: &Decision) -> Option<f64> {
        let planned = planned_rps(b, decision)?;
        let at = invert(b.knowledge.shape()?, b.recent.latency_us?)?;
        Some((at / planned).clamp(1.0 / MOST, MOST))
    }

    /// The traffic that latencies speak for, where it is within reason of what is counted: a bare threshold
    /// errs again and again, and errors that multiply lead anywhere.
    pub(crate) fn literal_rate_beside(&self, counted: f64) -> Option<f64> {
        self.literal_rate.map(|rate| rate.clamp(counted / MOST, counted * MOST))
    }
}

/// What it was to get. (A share that is rounded to a weight of 0 is none.)
fn planned_rps(b: &Backend, decision: &Decision) -> Option<f64> {
    let wish = decision.wishes.iter().find(|w| w.id == b.id && w.weight > 0)?;
    Some(wish.share * decision.rate_rps).filter(|rps| *rps > 0.0)
}

fn moved(b: &Backend, decision: &Decision) -> Option<Moved> {
    // Who is out answers probes only, or nothing.
    let expected =
        b.is_usable().then(|| b.knowledge.shape())??.latency_at(planned_rps(b, decision)?);
    Some(Moved { latency: b.recent.latency_us?, expected }).filter(|m| m.expected.is_finite())
}

/// The load at which the curve has this latency; its last usable one beyond, and none below.
fn invert(shape: &Shape, latency_us: f64) -> Option<f64> {
    if latency_us <= shape.latency_at(0.0) {
        return None;
    }
    let (mut low, mut high) = (0.0, plimsoll_learn::USABLE_CAPACITY * shape.capacity());
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if shape.latency_at(middle) < latency_us { low = middle } else { high = middle }
    }
    Some(0.5 * (low + high))
}

#[cfg(test)]
mod tests {
    use plimsoll_queueing::QueueCurve;

    use super::*;
    use crate::commit::plan::Wish;
    use crate::gate::trial::PoolWindow;
    use crate::spec::{BackendSpec, ServiceSpec};

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    /// A controller that has counted so many requests per second.
    fn controller(rate_rps: f64) -> Controller {
        let backends = (0..3).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        for second in 1..10 {
            let window =
                PoolWindow { at: at(second), seconds: 1.0, started: rate_rps, in_flight: 1.0 };
            controller.history.push(window);
        }
        controller
    }

    #[test]
    fn a_change_is_told_once_by_traffic_or_by_probes() {
        let spec = BackendSpec { id: BackendId(1), name: "s1".to_owned() };
        let mut b = Backend::new(&spec, Duration::ZERO);
        // Probes of 5 to 15 ms, then of three times as much.
        let probes = |b: &mut Backend, scale: f64| {
            let probe = |i: u32| b.watch_probe(at(i.into()), scale * 5e3 * f64::from(1 + i % 3));
            (0..2_000).filter_map(probe).count()
        };
        assert_eq!(probes(&mut b, 1.0), 0);
        let mut told = b.clone();
        told.rescale(at(1), 1.0 / 3.0, CurveChoice::Auto, Typical::default());
        assert_eq!(probes(&mut told, 3.0), 0, "its traffic has told already");
        let mut again = b.clone();
        again.relearn(at(1));
        assert_eq!(probes(&mut again, 3.0), 0, "it is learned anew already");
        assert_eq!(probes(&mut b, 3.0), 1, "nothing has told yet");
    }

    #[test]
    fn what_reaches_back_into_learning_is_learned_from_and_what_does_not_is_a_change() {
        let change = Change { ratio: 0.6, requests: 500.0, seconds: 30.0, is_beyond_cores: false };
        let told_with = |now: Nanos, (other_cores_s, change): (f64, Change)| {
            let mut controller = controller(100.0);
            let b = &mut controller.backends[0];
            (b.same_cores_s, b.judged_from) = (600.0, Some(at(120)));
            b.other_cores_s = other_cores_s;
            let mut out = Vec::new();
            controller.on_change(now, BackendId(0), change, &mut out);
            let is_drift =
                |a: &Action| matches!(a, Action::Record(r) if r.kind == RecordKind::Drift);
            (out.iter().any(is_drift), controller.urgent.is_some())
        };
        let told = |now: Nanos| told_with(now, (0.0, change));
        assert_eq!(told(at(149)), (false, false));
        assert_eq!(told(at(150)), (true, true), "at once");
        let seen = |change: Change| told_with(at(150), (61.0, change));
        assert_eq!(seen(change), (false, false), "the watch has other cores than are believed");
        let beyond = Change { is_beyond_cores: true, ..change };
        assert_eq!(seen(beyond), (true, true), "which does not matter where none explain it");
    }

    #[test]
    fn by_latencies_alone_nobody_is_taken_to_bear_less_than_he_completes() {
        let rescaled = |completed: f64, weight: u32, seen: u64| {
            let mut controller = controller(100.0);
            controller.spec.drift = DriftTest::Literal;
            controller.seen_at = Some(at(seen));
            controller.phase = Phase::Steady;
            let wish = Wish {
                id: BackendId(0),
                share: 0.1,
                weight,
                expected_us: None,
                reason: String::new(),
            };
            let decision = Decision { wishes: vec![wish], rate_rps: 100.0, ..Decision::default() };
            controller.decision = Some(decision);
            let b = &mut controller.backends[0];
            // 100 req/s by probes at rest; five times as slow under a tenth of that.
            (0..20).for_each(|_| b.knowledge.observe_at_rest(1e4));
            b.knowledge.refit(CurveChoice::Auto, Typical::default());
            b.recent.latency_us = Some(5e4);
            b.done = (completed, 10.0);
            controller.drift_by_paper(at(60), &mut Vec::new());
            controller.backends[0].changed.map(|(_, scale)| scale)
        };
        assert!(rescaled(1.0, 10, 59).is_some_and(|scale| scale < 0.25), "by its latency");
        assert!(rescaled(600.0, 10, 59).is_some_and(|scale| (scale - 0.6).abs() < 1e-9));
        assert_eq!(rescaled(2_000.0, 10, 59), None, "it bears more than that already");
        assert_eq!(rescaled(1.0, 0, 59), None, "it was to get nothing");
        assert_eq!(rescaled(1.0, 10, 45), None, "what waited to be read says nothing of now");
    }

    #[test]
    fn traffic_told_by_latencies_stays_within_reason_of_what_is_counted() {
        let mut controller = controller(100.0);
        assert!((controller.rate_to_plan() - 100.0).abs() < 1e-9);
        for (told, planned) in [(1e-13, 20.0), (60.0, 60.0), (1e9, 500.0)] {
            controller.literal_rate = Some(told);
            let rate = controller.rate_to_plan();
            assert!((rate / planned - 1.0).abs() < 1e-9, "{told}: {rate}");
        }
    }

    #[test]
    fn traffic_told_by_latencies_that_nobody_could_bear_is_forgotten() {
        let told = |capacity_rps: f64| {
            let mut controller = controller(100.0);
            controller.spec.drift = DriftTest::Literal;
            controller.seen_at = Some(at(60));
            controller.phase = Phase::ShortOfCapacity;
            let decision = Decision { rate_rps: 300.0, capacity_rps, ..Decision::default() };
            (controller.decision, controller.literal_rate) = (Some(decision), Some(300.0));
            let mut out = Vec::new();
            controller.drift_by_paper(at(60), &mut out);
            (controller.literal_rate, out.len(), controller.urgent.is_some())
        };
        assert_eq!(told(200.0), (None, 1, true), "100 are counted");
        assert_eq!(told(80.0), (Some(300.0), 0, false), "it is short of capacity indeed");
    }

    #[test]
    fn a_plan_for_a_change_takes_back_what_was_given_on_purpose() {
        for kind in [true, false] {
            let mut controller = controller(100.0);
            controller.decision = Some(Decision::default());
            controller.pins_changed = true;
            let decision = if kind {
                controller.decide_for_drift(at(10))
            } else {
                controller.decide_for_changed_pool(at(10))
            };
            assert_eq!(decision.wishes.len(), 3);
            assert!(!controller.pins_changed, "no second plan for it");
        }
    }

    #[test]
    fn a_latency_leads_back_to_its_load() {
        let shape = Shape::Queue(QueueCurve { service_us: 30_000.0, cores: 2.0, variability: 1.0 });
        for load in [5.0, 30.0, 60.0] {
            let found = invert(&shape, shape.latency_at(load)).expect("a load");
            assert!((found / load - 1.0).abs() < 1e-6);
        }
        assert!(invert(&shape, 1e12).is_some_and(|load| load > 63.0));
        assert_eq!(invert(&shape, 29_000.0), None, "no load makes it quicker than at rest");
    }
}
