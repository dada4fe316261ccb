//! Backends under a CPU quota, as containers are. Such a backend works at full speed until the allowance of the
//! period (100 ms in Linux, by default) is spent, and then not at all until the next one: the inverse of its unloaded
//! response time says nothing of what it bears. Work that has lasted for several periods does: it was held to the quota
//! all the time, however many requests were there.
//!
//! So busy time is counted in two classes: the first moments of a busy stretch, and what lasts. Without a quota the
//! rate of the second is no lower than that of the first, for requests are completed the faster the more cores have
//! work; with one it is, and it is the capacity.
//!
//! Linux: `Documentation/scheduler/sched-bwc.rst`. The two classes are compared as incidence rates of strata are
//! (Mantel and Haenszel 1959; variance by Greenland and Robins 1985), for stretches of ten seconds each, so that what
//! changes in time does not pass for a difference of classes.

use std::collections::VecDeque;

use plimsoll_learn::drift::Interval;
use serde::{Deserialize, Serialize};

/// Work lasts when a stretch of it is this long, two of the usual periods, …
const LASTS_S: f64 = 0.2;
/// … and so many services long: a dear request makes a long stretch, too.
const LASTS_SERVICES: f64 = 20.0;
/// Seconds in a stratum.
const STRATUM_S: f64 = 10.0;
/// What is kept of earlier strata with every new one.
const STRATA_KEPT: f64 = 0.97;
/// There is a quota when what lasts is done at less than this part of the rate of what has just begun, by so many
/// standard errors; and none after all from the third number on, once that is known so well.
const HELD: f64 = 0.7;
const HELD_ERRORS: f64 = 3.0;
const NOT_HELD: f64 = 0.85;
const NOT_HELD_ERROR: f64 = 0.1;
/// Requests at a time that are few, and several.
const FEW: u32 = 2;
const SEVERAL: u32 = 4;
/// Where others of the pool are held to quotas, one that does several at a time no faster than this part more is taken for held, too, once
/// that is known so well.
const NO_FASTER: f64 = 1.3;
const NO_FASTER_ERROR: f64 = 0.25;
/// Completions without which nothing is said of a rate.
const ENOUGH: f64 = 25.0;
/// Completions that a rate remembers.
const MEMORY: f64 = 3_000.0;
/// Seconds of lasting work that count as recent: so many blocks of a second.
const RECENT: usize = 12;
/// A recent rate is another than before by so many nats of likelihood: it is looked at forty times a second, over twelve spans.
const OTHER: f64 = 14.0;
/// Lasting work in less than this part of ten seconds is too little to hold a backend back.
const AT_EASE: f64 = 0.05;
/// By this much more is believed, step by step, of who bore more before and is at ease with less.
const STEP: f64 = 1.25;
/// The scatter of completions in units of a Poisson process is not believed to be below or above these.
const SCATTER: (f64, f64) = (0.5, 5.0);
/// Batches that the scatter remembers.
const SCATTER_MEMORY: f64 = 100.0;

/// Completions, and the seconds in which there was work.
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

    /// Its logarithm and the standard error of that.
    fn log(&self) -> Option<(f64, f64)> {
        let product = self.upper * self.lower;
        (product > 0.0).then(|| ((self.upper / self.lower).ln(), (self.variance / product).sqrt()))
    }
}

/// What a backend bears under its quota.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quota {
    /// Requests per second.
    pub capacity_rps: f64,
    /// Relative standard error of that.
    pub error: f64,
}

/// A change of the rate of lasting work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moved {
    pub ratio: f64,
    pub requests: f64,
    pub seconds: f64,
}

/// Watches one backend; see the module's description.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Grain {
    /// For how long there has been work without an end.
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
    /// Lasting work of few requests at a time, and of several, of the stratum that is open.
    #[serde(skip)]
    few: Work,
    #[serde(skip)]
    several: Work,
    /// How much faster several are done than few.
    scale: Ratio,
    /// Others of the pool are held to quotas.
    #[serde(skip)]
    assumed: bool,
    /// Lasting work that is known of.
    known: Work,
    /// The last of it, which is not yet part of that.
    #[serde(skip)]
    recent: VecDeque<Work>,
    /// The batch of lasting work that is open, for the scatter.
    #[serde(skip)]
    batch: Work,
    scatter: (f64, f64),
    /// What it bore before it bore less, requests per second.
    before_rps: Option<f64>,
}

impl Grain {
    /// Takes what happened between two readings. `service_us` is its time for a request at rest, where known. Gives back a change of
    /// what it bears, once that has lasted for `lasting_s` seconds of work.
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
        match self.recent.back_mut().filter(|block| block.seconds < 1.0) {
            Some(block) => block.add(work),
            None => self.recent.push_back(work),
        }
        if self.recent.len() > RECENT
            && let Some(old) = self.recent.pop_front()
        {
            // What is no longer recent is known.
            self.known = self.known.times((-old.completions / MEMORY).exp());
            self.known.add(old);
        }
        self.batch.add(work);
        let Some(rate) = self.known.rate() else { return };
        let expected = rate * self.batch.seconds;
        if expected >= 10.0 {
            let squared = (self.batch.completions - expected).powi(2) / expected;
            let kept = 1.0 - 1.0 / SCATTER_MEMORY;
            self.scatter = (kept * self.scatter.0 + squared, kept * self.scatter.1 + 1.0);
            self.batch = Work::default();
        }
    }

    fn scatter(&self) -> f64 {
        // As exponential work scatters, until it is seen.
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
            self.believe_more();
        }
        self.stratum_s = 0.0;
    }

    /// Who bore more before and is at ease with what it gets now may bear it again.
    fn believe_more(&mut self) {
        let (Some(before), Some(rate)) = (self.before_rps, self.known.rate()) else { return };
        let step = (before / rate).min(STEP);
        if step <= 1.01 {
            self.before_rps = None;
            return;
        }
        self.known = Work { completions: ENOUGH, seconds: ENOUGH / (rate * step) };
        self.recent.clear();
    }

    fn moved(&mut self, lasting_s: f64) -> Option<Moved> {
        let quota = self.quota()?;
        if self.known.completions < ENOUGH {
            return None;
        }
        let scatter = self.scatter();
        let mut since = Work::default();
        // By all that is recent, or by the last part of it: a change may have come at any time.
        let moved = self.recent.iter().rev().enumerate().find_map(|(i, block)| {
            since.add(*block);
            let lasts = since.seconds >= lasting_s || i + 1 == RECENT;
            let expected = quota.capacity_rps * since.seconds;
            let ratio = since.completions.max(0.5) / expected;
            // Of a Poisson process, as much less as it scatters more and as the known rate is in doubt itself.
            let nats = since.completions * ratio.ln() + expected - since.completions;
            let doubt = scatter * (1.0 + expected / self.known.completions);
            (lasts && nats > OTHER * doubt).then_some((ratio, since))
        });
        let (ratio, since) = moved?;
        if ratio < 1.0 {
            let before = self.before_rps.unwrap_or(0.0);
            self.before_rps = Some(before.max(quota.capacity_rps));
        }
        self.known = Work { completions: since.completions.max(0.5), ..since };
        self.recent.clear();
        self.batch = Work::default();
        Some(Moved { ratio, requests: since.completions, seconds: since.seconds })
    }

    /// It is held to a quota by what was seen of it.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// It is, or others of its pool are.
    pub fn may_be_held(&self) -> bool {
        self.held || self.assumed
    }

    /// Others of its pool are held to quotas, or none are.
    pub fn assume(&mut self, quotas: bool) {
        self.assumed = quotas;
    }

    /// More requests at a time are done no faster: whatever holds it back is not the number of them.
    fn is_saturated(&self) -> bool {
        let told = self.scale.log().filter(|(_, error)| *error < NO_FASTER_ERROR);
        told.is_some_and(|(log, _)| log < NO_FASTER.ln())
    }

    /// What it bears, where it is held to a quota and that is known.
    pub fn quota(&self) -> Option<Quota> {
        let mut all = self.known;
        if all.completions < ENOUGH {
            self.recent.iter().for_each(|block| all.add(*block));
        }
        let capacity_rps =
            all.rate().filter(|_| self.held || (self.assumed && self.is_saturated()))?;
        Some(Quota { capacity_rps, error: (self.scatter() / all.completions).sqrt() })
    }

    /// It works at this multiple of the rate that it was known by.
    pub fn rescale(&mut self, ratio: f64) {
        if !(ratio > 0.0 && ratio.is_finite()) {
            return;
        }
        self.known.seconds /= ratio;
        self.known = self.known.times((ENOUGH / self.known.completions.max(1.0)).min(1.0));
        self.recent.clear();
        self.batch = Work::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that needs 5.5 ms of CPU for a request, under a quota of so many milliseconds in 100 (100: none),
    /// with so many requests per second, evenly spread: reads it every 25 ms for so many seconds.
    fn run(grain: &mut Grain, allowance_ms: f64, rps: f64, seconds: f64) -> Vec<Moved> {
        let (mut queue, mut left, mut due, mut moved) = (0u32, 5.5, 0.0, Vec::new());
        let (mut allowance, mut done, mut before) = (allowance_ms, 0.0, 0);
        // Arrivals at gaps that scatter, by a fixed pattern.
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
                moved.extend(grain.note(&interval, Some(5_500.0), 3.0));
                (before, done) = (queue, 0.0);
            }
        }
        moved
    }

    #[test]
    fn under_a_quota_what_lasts_tells_the_capacity() {
        let mut grain = Grain::default();
        // 34 req/s are borne; in one minute of three 40 come.
        for _ in 0..4 {
            run(&mut grain, 18.7, 17.0, 40.0);
            run(&mut grain, 18.7, 40.0, 5.0);
        }
        let quota = grain.quota().expect("it is held");
        assert!((quota.capacity_rps / 34.0 - 1.0).abs() < 0.08, "{quota:?}");
    }

    #[test]
    fn without_a_quota_none_is_seen() {
        let mut grain = Grain::default();
        for rps in [60.0, 120.0, 190.0, 60.0] {
            run(&mut grain, 100.0, rps, 20.0);
        }
        assert_eq!(grain.quota(), None, "{:?}", grain.ratio.log());
    }

    #[test]
    fn a_smaller_quota_is_seen_and_a_greater_one_again() {
        let mut grain = Grain::default();
        for _ in 0..4 {
            run(&mut grain, 18.7, 17.0, 40.0);
            run(&mut grain, 18.7, 40.0, 5.0);
        }
        let less = run(&mut grain, 9.35, 24.0, 20.0);
        assert!(less.iter().any(|m| (0.4..0.65).contains(&m.ratio)), "{less:?}");
        // It is given less, and then it may have its own again: that is found step by step.
        run(&mut grain, 18.7, 10.0, 120.0);
        let capacity = grain.quota().map(|quota| quota.capacity_rps);
        assert!(capacity.is_some_and(|rps| rps > 28.0), "{capacity:?}");
    }
}
