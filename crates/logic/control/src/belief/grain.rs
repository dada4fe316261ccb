//! Backends under a CPU quota, as containers are. Such a backend works at full speed until the quota of the period (100
//! ms in Linux, by default) is spent, and then not at all until the next period: the inverse of its unloaded response
//! time says nothing about its capacity. Work that lasts for several periods does: it was throttled all the time,
//! however many requests were in flight.
//!
//! So busy time is counted in two classes: the beginning of a busy stretch, and lasting work. Without a quota the rate
//! of the second is no lower than that of the first, because more busy cores complete more; with a quota it is lower,
//! and it is the capacity.
//!
//! Linux: `Documentation/scheduler/sched-bwc.rst`. The two classes are compared as incidence rates of strata (Mantel
//! and Haenszel 1959; variance by Greenland and Robins 1985), in strata of ten seconds, so that changes in time do not
//! look like a difference of the classes.

use std::collections::VecDeque;

use crate::tuning::belief::grain::{
    AT_EASE, BATCH_S, BLOCK_S, ENOUGH, FEW, HELD, HELD_ERRORS, LASTS_S, LASTS_SERVICES, MEMORY,
    NO_FASTER, NO_FASTER_ERROR, NOT_HELD, NOT_HELD_ERROR, OTHER, RECENT, SCATTER, SCATTER_MEMORY,
    SEVERAL, SHARED_S, STEP, STRATA_KEPT, STRATUM_S,
};
use plimsoll_learn::drift::Interval;
use serde::{Deserialize, Serialize};

/// Completions, and the seconds with work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Work {
    completions: f64,
    seconds: f64,
}

impl Work {
    fn add(&mut self, other: Work) {
        self.completions += other.completions;
        self.seconds += other.seconds;
    }

    fn times(self, part: f64) -> Work {
        Work { completions: self.completions * part, seconds: self.seconds * part }
    }

    fn and(mut self, other: Work) -> Work {
        self.add(other);
        self
    }

    /// Log likelihood of this work against the other at two rates, over both at one.
    fn differs_from(self, other: Work) -> f64 {
        let Some(common) = self.and(other).rate() else { return 0.0 };
        let nats = |work: Work| {
            let ratio = work.completions / (common * work.seconds);
            if ratio > 0.0 { work.completions * ratio.ln() } else { 0.0 }
        };
        nats(self) + nats(other)
    }

    fn rate(&self) -> Option<f64> {
        (self.completions > 0.0 && self.seconds > 0.0).then(|| self.completions / self.seconds)
    }
}

/// The ratio of the rates of two classes over strata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Ratio {
    upper: f64,
    lower: f64,
    variance: f64,
}

impl Ratio {
    fn note(&mut self, first: Work, lasting: Work) {
        let seconds = first.seconds + lasting.seconds;
        if !(first.seconds > 0.0 && lasting.seconds > 0.0) {
            return;
        }
        let (a, b) = (first.seconds / seconds, lasting.seconds / seconds);
        self.upper = STRATA_KEPT * self.upper + lasting.completions * a;
        self.lower = STRATA_KEPT * self.lower + first.completions * b;
        let both = (first.completions + lasting.completions) * a * b;
        self.variance = STRATA_KEPT * self.variance + both;
    }

    /// Its logarithm with its standard error.
    fn log(&self) -> Option<(f64, f64)> {
        let product = self.upper * self.lower;
        (product > 0.0).then(|| ((self.upper / self.lower).ln(), (self.variance / product).sqrt()))
    }
}

/// The capacity under a quota.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quota {
    /// Requests per second.
    pub capacity_rps: f64,
    /// Relative standard error of the capacity.
    pub error: f64,
}

/// The lasting work of a second.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// When it began, by [`Grain`]'s clock.
    began_s: f64,
    work: Work,
}

/// A change of the rate of lasting work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moved {
    pub ratio: f64,
    /// Requests since it began.
    pub requests: f64,
    /// Time since it began.
    pub seconds: f64,
}

/// The quota estimator of one backend; see the module's description.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Grain {
    /// For how long there has been work without interruption.
    #[serde(skip)]
    stretch_s: f64,
    #[serde(skip)]
    stratum_s: f64,
    #[serde(skip)]
    first: Work,
    #[serde(skip)]
    lasting: Work,
    ratio: Ratio,
    held: bool,
    /// Lasting work of the open stratum with few requests at a time, and with several.
    #[serde(skip)]
    few: Work,
    #[serde(skip)]
    several: Work,
    /// The rate with several requests at a time over the rate with few.
    scale: Ratio,
    /// Other backends of the pool have quotas.
    #[serde(skip)]
    assumed: bool,
    /// Lasting work that is not recent.
    known: Work,
    /// The most recent blocks of lasting work.
    #[serde(skip)]
    recent: VecDeque<Block>,
    /// The open batch, for the dispersion.
    #[serde(skip)]
    batch: Work,
    /// Sum of all intervals.
    #[serde(skip)]
    clock_s: f64,
    scatter: (f64, f64),
    /// Its capacity before it fell, requests per second.
    before_rps: Option<f64>,
}

impl Grain {
    /// Processes the interval between two readings. `service_us` is the unloaded service time, where known. Returns a
    /// change of the capacity once that has lasted for `lasting_s` seconds of work, until it is taken or shared.
    pub fn note(
        &mut self,
        interval: &Interval,
        service_us: Option<f64>,
        lasting_s: f64,
    ) -> Option<Moved> {
        let Interval { seconds, before, after, completions } = *interval;
        if !(seconds > 0.0 && seconds < 1.0 && completions >= 0.0) {
            self.stretch_s = 0.0;
            return None;
        }
        self.clock_s += seconds;
        let present = |n: u32| if n > 0 { 0.5 } else { 0.0 };
        let work = Work { completions, seconds: (present(before) + present(after)) * seconds };
        let lasts_s = service_us.map_or(LASTS_S, |us| (LASTS_SERVICES * us / 1e6).max(LASTS_S));
        let lasts = before > 0 && self.stretch_s >= lasts_s;
        if lasts {
            self.lasting.add(work);
            self.note_lasting(work);
            if before.max(after) <= FEW {
                self.few.add(work);
            } else if before.min(after) >= SEVERAL {
                self.several.add(work);
            }
        } else {
            self.first.add(work);
        }
        self.stretch_s = if after > 0 && before > 0 { self.stretch_s + seconds } else { 0.0 };
        self.stratum_s += seconds;
        if self.stratum_s >= STRATUM_S {
            self.close_stratum();
        }
        if lasts { self.moved(lasting_s) } else { None }
    }

    fn note_lasting(&mut self, work: Work) {
        match self.recent.back_mut().filter(|block| self.clock_s - block.began_s < BLOCK_S) {
            Some(block) => block.work.add(work),
            None => self.recent.push_back(Block { began_s: self.clock_s, work }),
        }
        if self.recent.len() > RECENT
            && let Some(old) = self.recent.pop_front()
        {
            self.settle(old.work);
        }
    }

    /// A block that is no longer recent joins the known work. What it differs from that is noise.
    fn settle(&mut self, block: Work) {
        self.batch.add(block);
        let batch = self.batch;
        if let Some(rate) = self.known.rate().filter(|_| batch.seconds >= BATCH_S) {
            let expected = rate * batch.seconds;
            let variance = expected * (1.0 + expected / self.known.completions);
            let kept = 1.0 - 1.0 / SCATTER_MEMORY;
            let squared = (batch.completions - expected).powi(2) / variance;
            self.scatter = (kept * self.scatter.0 + squared, kept * self.scatter.1 + 1.0);
            self.batch = Work::default();
        }
        self.known = self.known.times((-block.completions / MEMORY).exp()).and(block);
    }

    fn scatter(&self) -> f64 {
        // The prior is that of exponential service.
        ((self.scatter.0 + 10.0) / (self.scatter.1 + 10.0)).clamp(SCATTER.0, SCATTER.1)
    }

    fn close_stratum(&mut self) {
        let (first, lasting) = (std::mem::take(&mut self.first), std::mem::take(&mut self.lasting));
        self.ratio.note(first, lasting);
        self.scale.note(std::mem::take(&mut self.few), std::mem::take(&mut self.several));
        if let Some((log, error)) = self.ratio.log() {
            if log < HELD.ln() && log < -HELD_ERRORS * error {
                self.held = true;
            } else if log > NOT_HELD.ln() && error < NOT_HELD_ERROR {
                self.held = false;
                self.before_rps = None;
            }
        }
        if lasting.seconds < AT_EASE * self.stratum_s {
            self.raise_capacity();
        }
        self.stratum_s = 0.0;
    }

    /// Raises the capacity of a backend that had more before and is not limited by what it has now.
    fn raise_capacity(&mut self) {
        let (Some(before), Some(rate)) = (self.before_rps, self.known.rate()) else { return };
        let step = (before / rate).min(STEP);
        if step <= 1.01 {
            self.before_rps = None;
            return;
        }
        self.known = Work { completions: ENOUGH, seconds: ENOUGH / (rate * step) };
        self.recent.clear();
    }

    fn moved(&self, lasting_s: f64) -> Option<Moved> {
        self.quota()?;
        let needed = OTHER * self.scatter();
        let mut after = Work::default();
        let mut before = self.recent.iter().fold(self.known, |all, block| all.and(block.work));
        // A change may have begun with any of the recent blocks.
        self.recent.iter().rev().find_map(|block| {
            after.add(block.work);
            before.add(block.work.times(-1.0));
            let lasts = after.seconds >= lasting_s;
            let former = before.rate().filter(|_| before.completions >= 1.0)?;
            let ratio = after.completions.max(0.5) / after.seconds / former;
            (lasts && after.differs_from(before) > needed).then_some(Moved {
                ratio,
                requests: after.completions,
                seconds: self.clock_s - block.began_s,
            })
        })
    }

    /// Lasting work of the last so many seconds, and all before.
    fn divided(&self, seconds: f64) -> (Work, Work) {
        let since = self.clock_s - seconds;
        self.recent.iter().fold((Work::default(), self.known), |(after, before), block| match block
            .began_s
            >= since
        {
            true => (after.and(block.work), before),
            false => (after, before.and(block.work)),
        })
    }

    /// It has changed by this ratio since so many seconds: what was known before no longer counts.
    pub fn take(&mut self, ratio: f64, seconds: f64) {
        let (after, before) = self.divided(seconds);
        if ratio < 1.0 {
            let known = self.before_rps.into_iter().chain(before.rate());
            self.before_rps = known.reduce(f64::max);
        }
        self.known = Work { completions: after.completions.max(0.5), ..after };
        self.recent.clear();
    }

    /// Most of the pool shares the change: all work counts, and what follows counts for more than usual.
    pub fn share(&mut self) {
        self.known = self.known.times((SHARED_S / self.known.seconds.max(1e-9)).min(1.0));
        for block in std::mem::take(&mut self.recent) {
            self.known.add(block.work);
        }
    }

    /// Log likelihood, by its own work of the last so many seconds, of this change against none.
    pub fn nats_for(&self, ratio: f64, seconds: f64) -> f64 {
        let (after, before) = self.divided(seconds);
        let Some(rate) = before.rate() else { return 0.0 };
        let expected = rate * after.seconds;
        (after.completions * ratio.ln() + (1.0 - ratio) * expected) / self.scatter()
    }

    /// Whether its own work shows a quota.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Whether it has a quota, or others of its pool have.
    pub fn may_be_held(&self) -> bool {
        self.held || self.assumed
    }

    /// Takes whether other backends of the pool have quotas.
    pub fn assume(&mut self, quotas: bool) {
        self.assumed = quotas;
    }

    /// Whether several requests at a time are served no faster than few: concurrency is not what limits it.
    fn is_saturated(&self) -> bool {
        let ratio = self.scale.log().filter(|(_, error)| *error < NO_FASTER_ERROR);
        ratio.is_some_and(|(log, _)| log < NO_FASTER.ln())
    }

    /// The capacity under its quota, where it has one and the capacity is known.
    pub fn quota(&self) -> Option<Quota> {
        let mut all = self.known;
        if all.completions < ENOUGH {
            self.recent.iter().for_each(|block| all.add(block.work));
        }
        let capacity_rps =
            all.rate().filter(|_| self.held || (self.assumed && self.is_saturated()))?;
        Some(Quota { capacity_rps, error: (self.scatter() / all.completions).sqrt() })
    }

    /// Scales the known rate by this ratio.
    pub fn rescale(&mut self, ratio: f64) {
        if !(ratio > 0.0 && ratio.is_finite()) {
            return;
        }
        self.known.seconds /= ratio;
        self.known = self.known.times((ENOUGH / self.known.completions.max(1.0)).min(1.0));
        self.recent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that needs 5.5 ms of CPU per request, with a quota of this many milliseconds in 100 (100: none) and
    /// this many requests per second, read every 25 ms for this many seconds.
    fn run(grain: &mut Grain, allowance_ms: f64, rps: f64, seconds: f64) -> Vec<Moved> {
        let (mut queue, mut left, mut due, mut moved) = (0u32, 5.5, 0.0, Vec::new());
        let (mut allowance, mut done, mut before) = (allowance_ms, 0.0, 0);
        // Arrivals at irregular gaps, by a fixed pattern.
        let gaps = [0.1, 0.3, 0.2, 2.4, 0.05, 1.7, 0.6, 2.65];
        let mut k = 0;
        for step in 0..(seconds * 2_000.0) as u64 {
            let ms = step as f64 * 0.5;
            if step.is_multiple_of(200) {
                allowance = allowance_ms;
            }
            while ms >= due {
                queue += 1;
                due += gaps[k % gaps.len()] * 1_000.0 / rps;
                k += 1;
            }
            if queue > 0 && allowance > 0.0 {
                (left, allowance) = (left - 0.5, allowance - 0.5);
                if left <= 0.0 {
                    (queue, left, done) = (queue - 1, 5.5, done + 1.0);
                }
            }
            if step.is_multiple_of(50) {
                let interval = Interval { seconds: 0.025, before, after: queue, completions: done };
                if let Some(change) = grain.note(&interval, Some(5_500.0), 3.0) {
                    grain.take(change.ratio, change.seconds);
                    moved.push(change);
                }
                (before, done) = (queue, 0.0);
            }
        }
        moved
    }

    #[test]
    fn lasting_work_shows_the_capacity_under_a_quota() {
        let mut grain = Grain::default();
        // The capacity is 34 req/s; in one minute of three 40 arrive.
        for _ in 0..4 {
            run(&mut grain, 18.7, 17.0, 40.0);
            run(&mut grain, 18.7, 40.0, 5.0);
        }
        let quota = grain.quota().expect("it is held");
        assert!((quota.capacity_rps / 34.0 - 1.0).abs() < 0.08, "{quota:?}");
    }

    #[test]
    fn no_quota_is_inferred_where_there_is_none() {
        let mut grain = Grain::default();
        for rps in [60.0, 120.0, 190.0, 60.0] {
            run(&mut grain, 100.0, rps, 20.0);
        }
        assert_eq!(grain.quota(), None, "{:?}", grain.ratio.log());
    }

    #[test]
    fn smaller_quota_is_detected_and_a_greater_one_again() {
        let mut grain = Grain::default();
        for _ in 0..4 {
            run(&mut grain, 18.7, 17.0, 40.0);
            run(&mut grain, 18.7, 40.0, 5.0);
        }
        let less = run(&mut grain, 9.35, 24.0, 20.0);
        assert!(less.iter().any(|m| (0.4..0.65).contains(&m.ratio)), "{less:?}");
        // With less load and its former quota back the capacity is found again in steps.
        run(&mut grain, 18.7, 10.0, 120.0);
        let capacity = grain.quota().map(|quota| quota.capacity_rps);
        assert!(capacity.is_some_and(|rps| rps > 28.0), "{capacity:?}");
    }

    #[test]
    fn half_of_a_quota_is_recognised_within_seconds_however_little_was_throttled_before() {
        let mut grain = Grain::default();
        for _ in 0..3 {
            run(&mut grain, 18.7, 17.0, 40.0);
            run(&mut grain, 18.7, 40.0, 2.5);
        }
        let lasting_s = grain.known.seconds + recent(&grain).seconds;
        assert!((3.0..10.0).contains(&lasting_s), "of 120 s of traffic, {lasting_s}");
        let less = run(&mut grain, 9.35, 24.0, 10.0);
        assert!(less.iter().any(|m| (0.4..0.65).contains(&m.ratio)), "{less:?}");
    }

    fn recent(grain: &Grain) -> Work {
        grain.recent.iter().fold(Work::default(), |all, block| all.and(block.work))
    }

    #[test]
    fn a_shared_change_leaves_the_rate_nearly_as_it_was_and_for_good_is_learned() {
        let mut grain = Grain::default();
        for _ in 0..4 {
            run(&mut grain, 18.7, 17.0, 40.0);
            run(&mut grain, 18.7, 40.0, 5.0);
        }
        let rate = |grain: &Grain| grain.quota().expect("it is held").capacity_rps;
        let before = rate(&grain);
        let slowed = |grain: &mut Grain, seconds: u32| {
            for _ in 0..seconds {
                let interval = Interval { seconds: 0.1, before: 9, after: 9, completions: 1.7 };
                (0..10).for_each(|_| {
                    if grain.note(&interval, Some(5_500.0), 3.0).is_some() {
                        grain.share();
                    }
                });
            }
        };
        slowed(&mut grain, 6);
        assert!(rate(&grain) > 0.9 * before, "{} of {before}", rate(&grain));
        slowed(&mut grain, 300);
        assert!((rate(&grain) / 17.0 - 1.0).abs() < 0.1, "{} of {before}", rate(&grain));
    }
}
