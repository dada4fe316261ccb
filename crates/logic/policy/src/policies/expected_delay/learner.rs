//! What one backend does with what it has: service time `s` and cores `c`, from the balancer's own
//! requests alone, but for cores that it tells.
//!
//! A request that found `n` in flight takes `s·f(n)` on average, `f(n) = max(1, (n + 1)/c)`: while a core
//! is free, service alone, whatever the law of service times; from there on it waits for `n + 1 − c`
//! departures, `s/c` apart. Latency is flat up to the cores and rises beyond, and where it bends tells
//! them. By number found there is kept how many requests, and their latencies' sum. For every candidate
//! `c` the best `s` and the deviance (minus twice the log-likelihood of gamma variates of squared
//! variation `φ`, McCullagh and Nelder, Generalized Linear Models, §8.3) follow from running sums:
//!
//! `s = (Σ_{n<c} x + c·Σ_{n≥c} x/(n+1)) / N`, `D = 2/φ · (N·ln s + Σ_{n≥c} ln((n+1)/c))`.
//!
//! Of the candidates that the data do not contradict the **greatest** is believed: more cores than there
//! are is an error that corrects itself, for a request that waits where none was expected tells; fewer
//! would never be tried.
//!
//! Old requests count for less with every new one; those of a backend that gets none, with time, until
//! only the prior is left, an average backend: so that one bad day is not for ever. A backend that
//! becomes slower or faster by two is noticed by Page's test: the sum of log-likelihood ratios
//! `(x·(1 − 1/r) − ln r)/φ`, `x` being latency over what was expected, not below 0, passes a threshold;
//! what is known is then scaled and counts for no more than what the test has seen.
//!
//! A backend that tells its cores is believed, and only `s` follows from what is seen: a balancer of many has a few of its
//! requests, and under a law where few take most of the time these tell one core from eight only after thousands.
//!
//! Cost: `found` O(log starts), and O(starts) at worst where the middle one of all ends first; `success` O(1), and
//! every few requests a fit of O([`LEVELS`]). Nothing is allocated but for the backend itself.

use std::collections::VecDeque;

use plimsoll_model::Nanos;

use super::levels::{LEVELS, least, level};

/// Requests remembered.
const MEMORY: f32 = 2_000.0;
/// Deviance above the least up to which a candidate is not contradicted: one standard deviation.
const PLAUSIBLE: f32 = 1.0;
/// The prior counts for so many requests.
const PRIOR: f32 = 4.0;
/// It takes the backend to be better than the average by this much, so that it is tried.
const HOPE: f32 = 0.8;
/// What is left of the past after a round of the pool in which the backend had no request.
const IDLE_KEPT: f32 = 0.999;
/// Page's test is for a change by this factor, either way.
const CHANGE: f32 = 2.0;
/// And its threshold: by noise alone passed about once in e^12 requests. A doubling takes 40 requests of
/// exponential service to pass it, the sums growing by 0.31 each.
const ALARM: f32 = 12.0;
/// No request counts as more times what was expected than this: under a heavy tail one slow request would be taken for
/// a slow backend. What is cut off is the same part of every backend's time, where all do the same work. (A likelihood
/// ratio that is bounded is the robust one: Huber, 1965, A robust version of the probability ratio test.)
const FARTHEST: f32 = 8.0;
/// It begins with so many requests of the backend: what is expected of the first comes from the pool's first
/// successes, which are its shortest requests, and all others are many times as long.
const WATCHED_FROM: f32 = 4.0;
/// Requests of one level that weigh as much as the model when latency is predicted.
const MODEL: f32 = 16.0;
/// Requests in flight whose start is kept: 16 kB of a backend.
const STARTS: usize = 1_024;

/// Requests that found numbers of one bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    requests: f32,
    sum_us: f32,
}

/// One side of Page's test.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    sum: f32,
    /// Since the sum was last 0.
    requests: f32,
    ratios: f32,
}

impl Page {
    /// Takes one latency over what was expected; the mean of these since the change, if there is one.
    fn note(&mut self, ratio: f32, factor: f32, noise: f32) -> Option<f32> {
        self.sum += (ratio * (1.0 - 1.0 / factor) - factor.ln()) / noise;
        self.requests += 1.0;
        self.ratios += ratio;
        if self.sum <= 0.0 {
            *self = Page::default();
        }
        (self.sum > ALARM).then(|| self.ratios / self.requests)
    }
}

/// What a learner knows of all backends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    /// Mean service time, as requests see it; none before the first success.
    pub(super) service_us: Option<f32>,
    /// Squared variation φ of latencies of one level, about.
    pub(super) noise: f32,
    /// Variance of service times from backend to backend, noise not counted.
    pub(super) spread: f32,
    /// Most cores of those where no bend was seen.
    pub(super) open_cores: f32,
    /// Those where no bend was seen are taken to have at least so many: under probes the first that a balancer sends
    /// may find as many in flight as there are cores, and a backend taken for full for that is never tried.
    pub(super) hoped_cores: f32,
    /// What is to be added to the deviance of each bucket's least number, 0 for the commonest.
    pub(super) unusual: [f32; LEVELS],
}

impl Pool {
    /// Before the first success.
    pub(super) fn unknown() -> Self {
        Pool {
            service_us: None,
            noise: 1.0,
            spread: 0.0,
            open_cores: 1.0,
            hoped_cores: 1.0,
            unusual: [0.0; LEVELS],
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Start {
    at: Nanos,
    /// None where it counts no more.
    found: Option<u32>,
}

/// Learns one backend.
#[derive(Clone, Debug)]
pub(super) struct Learner {
    seen: [Seen; LEVELS],
    /// In order of time.
    starts: VecDeque<Start>,
    requests: f32,
    until_fit: f32,
    /// Requests since the last round.
    fresh: u32,
    slower: Page,
    faster: Page,
    /// Mean squared error of latencies over what was expected.
    noise: f32,
    /// As believed; none while nothing is known of any backend.
    service_us: Option<f32>,
    cores: f32,
    /// No bend was seen: there may be more cores.
    open: bool,
    /// Cores that the backend tells.
    told: Option<f32>,
}

impl Learner {
    pub(super) fn new() -> Self {
        Self::with(VecDeque::with_capacity(STARTS))
    }

    /// How many cores the backend tells, if it does: it sees all of its requests, and this balancer a few.
    pub(super) fn tell(&mut self, cores: Option<f32>) {
        let cores = cores.map(|cores| cores.clamp(1.0, least(LEVELS - 1) as f32));
        if self.told != cores {
            self.told = cores;
            self.until_fit = 0.0;
        }
        if let Some(cores) = cores {
            (self.cores, self.open) = (cores, false);
        }
    }

    /// Begins again. What requests under way have found counts no more.
    pub(super) fn forget(&mut self) {
        let mut starts = std::mem::take(&mut self.starts);
        starts.iter_mut().for_each(|start| start.found = None);
        *self = Self::with(starts);
    }

    fn with(starts: VecDeque<Start>) -> Self {
        Learner {
            seen: [Seen::default(); LEVELS],
            starts,
            requests: 0.0,
            until_fit: 0.0,
            fresh: 0,
            slower: Page::default(),
            faster: Page::default(),
            noise: 1.0,
            service_us: None,
            cores: 1.0,
            open: true,
            told: None,
        }
    }

    /// Service time, microseconds; none while nothing is known of any backend.
    pub(super) fn service_us(&self) -> Option<f32> {
        self.service_us
    }

    /// Cores, at least 1.
    pub(super) fn cores(&self) -> f32 {
        self.cores
    }

    /// Cores, or as many as the pool lets hope for where there may be more.
    pub(super) fn hoped_cores(&self, pool: &Pool) -> f32 {
        if self.open { self.cores.max(pool.hoped_cores) } else { self.cores }
    }

    /// The bucket of the cores, where a bend was seen.
    pub(super) fn bend(&self) -> Option<usize> {
        (!self.open).then(|| level(self.cores as u32))
    }

    /// No bend was seen: there may be more cores.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Successes remembered.
    pub(super) fn requests(&self) -> f32 {
        self.requests
    }

    /// Mean squared error of latencies over what was expected.
    pub(super) fn noise(&self) -> f32 {
        self.noise
    }

    /// Service time, drawn towards the pool's mean by as much as noise explains the difference: backends
    /// that cannot be distinguished are alike (empirical Bayes; Efron and Morris, 1973).
    pub(super) fn shrunk_us(&self, pool: &Pool) -> f32 {
        let (Some(own_us), Some(pool_us)) = (self.service_us, pool.service_us) else {
            return self.service_us.or(pool.service_us).unwrap_or(1.0);
        };
        let error = own_us * own_us * pool.noise / (self.requests + PRIOR);
        pool_us + (own_us - pool_us) * pool.spread / (pool.spread + error).max(f32::MIN_POSITIVE)
    }

    /// A request has started that found so many in flight.
    pub(super) fn start(&mut self, found: u32, now: Nanos) {
        // Beyond that many, one more start tells nothing new.
        if self.starts.len() < STARTS {
            self.starts.push_back(Start { at: now, found: Some(found) });
        }
    }

    /// One that took so long has ended; what it found. `None` where it is not known.
    pub(super) fn found(&mut self, took_ns: u64, now: Nanos) -> Option<u32> {
        let began = Nanos(now.0.saturating_sub(took_ns));
        let after = self.starts.partition_point(|s| s.at < began);
        let near = |k: &usize| self.starts.get(*k).map_or(u64::MAX, |s| s.at.0.abs_diff(began.0));
        let at = [after, after.wrapping_sub(1)].into_iter().min_by_key(near)?;
        self.starts.remove(at)?.found
    }

    /// A success that found so many took so long.
    pub(super) fn success(&mut self, found: u32, latency_us: f32, pool: &Pool) {
        // No time at all has no logarithm.
        let mut latency_us = latency_us.max(1.0);
        if self.service_us.is_some() && self.requests >= WATCHED_FROM {
            let expected_us = self.expected_us(found);
            latency_us = latency_us.min(FARTHEST * expected_us);
            self.watch(latency_us / expected_us, pool.noise);
        }
        let seen = &mut self.seen[level(found)];
        seen.requests += 1.0;
        seen.sum_us += latency_us;
        self.requests += 1.0;
        self.fresh += 1;
        self.until_fit -= 1.0;
        if self.until_fit <= 0.0 {
            self.keep((MEMORY / self.requests).min(1.0));
            self.fit(pool);
            self.until_fit = (self.requests / 16.0).clamp(1.0, 32.0);
        }
    }

    /// A round of the pool has passed: as many requests as there are backends.
    pub(super) fn round(&mut self, pool: &Pool) {
        if self.fresh == 0 {
            self.keep(IDLE_KEPT);
            self.fit(pool);
        }
        self.fresh = 0;
    }

    /// What a request that finds so many is to expect, by what others found there and by the model.
    fn expected_us(&self, found: u32) -> f32 {
        let seen = self.seen[level(found)];
        let model_us =
            self.service_us.unwrap_or(0.0) * ((found as f32 + 1.0) / self.cores).max(1.0);
        (seen.sum_us + MODEL * model_us) / (seen.requests + MODEL)
    }

    fn watch(&mut self, ratio: f32, noise: f32) {
        let off = ratio - 1.0;
        self.noise += (off * off - self.noise) / self.requests.clamp(8.0, MEMORY);
        let slower = self.slower.note(ratio, CHANGE, noise);
        let faster = self.faster.note(ratio, 1.0 / CHANGE, noise);
        let seen = if slower.is_some() { self.slower.requests } else { self.faster.requests };
        if let Some(factor) = slower.or(faster) {
            self.seen.iter_mut().for_each(|s| s.sum_us *= factor);
            self.keep((seen / self.requests).min(1.0));
            (self.slower, self.faster) = (Page::default(), Page::default());
            self.until_fit = 0.0;
        }
    }

    fn keep(&mut self, part: f32) {
        for seen in &mut self.seen {
            seen.requests *= part;
            seen.sum_us *= part;
        }
        self.requests *= part;
    }

    fn fit(&mut self, pool: &Pool) {
        let Some(prior_us) = pool.service_us.map(|us| HOPE * us).or(self.mean_us()) else { return };
        let top = self.seen.iter().rposition(|s| s.requests >= 1.0).unwrap_or(0);
        let requests = self.requests + PRIOR;
        let all_us: f32 = self.seen[..=top].iter().map(|s| s.sum_us).sum();
        let mut flat_us = all_us + PRIOR * prior_us;
        // Of what is at or above the bend: how many, their latencies and logarithms over n + 1.
        let (mut steep, mut steep_us, mut logs) = (0.0f32, 0.0f32, 0.0f32);
        let mut fits = [(f32::INFINITY, 0.0f32); LEVELS];
        let mut best = f32::INFINITY;
        // Candidate k: as many cores as the least number of bucket k; at most two beyond what was tried.
        let told = self.told.map(|cores| level(cores as u32));
        let last = (top + 2).min(LEVELS - 1).max(told.unwrap_or(0));
        for k in (1..=last).rev() {
            if k <= top {
                let seen = self.seen[k];
                let to = middle(k) + 1.0;
                flat_us -= seen.sum_us;
                steep += seen.requests;
                steep_us += seen.sum_us / to;
                logs += seen.requests * to.ln();
            }
            let c = least(k) as f32;
            let s = (flat_us + c * steep_us) / requests;
            let deviance =
                2.0 / pool.noise * (requests * s.ln() + logs - steep * c.ln()) + pool.unusual[k];
            fits[k] = (deviance, s);
            best = best.min(deviance);
        }
        let plausible = || (1..=last).rev().find(|&k| fits[k].0 <= best + PLAUSIBLE);
        if let Some(k) = told.or_else(plausible) {
            self.cores = self.told.unwrap_or(least(k) as f32);
            self.open = told.is_none() && k > top;
            self.service_us = Some(fits[k].1);
        }
    }

    fn mean_us(&self) -> Option<f32> {
        let sum_us: f32 = self.seen.iter().map(|s| s.sum_us).sum();
        (self.requests > 0.0).then(|| sum_us / self.requests)
    }
}

/// The number that stands for a bucket.
fn middle(level: usize) -> f32 {
    let next = if level + 1 < LEVELS { least(level + 1) } else { least(level) + 1 };
    (least(level) + next - 1) as f32 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngCore, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    const POOL: Pool = Pool {
        service_us: Some(40_000.0),
        noise: 1.0,
        spread: 1e8,
        open_cores: 1.0,
        hoped_cores: 1.0,
        unusual: [0.0; LEVELS],
    };

    fn exponential(rng: &mut dyn RngCore) -> f64 {
        -(((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64).ln()
    }

    /// A request that found `n` waits for `n + 1 - c` departures and is served: Erlang, then exponential.
    fn latency_us(n: u32, c: u32, s_us: f64, rng: &mut dyn RngCore) -> f32 {
        let ahead = (n + 1).saturating_sub(c);
        let wait: f64 = (0..ahead).map(|_| exponential(rng) * s_us / f64::from(c)).sum();
        (wait + exponential(rng) * s_us) as f32
    }

    fn learn(learner: &mut Learner, c: u32, s_us: f64, requests: u32, most: u32) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(u64::from(c));
        for _ in 0..requests {
            let n = (rng.next_u64() % u64::from(most)) as u32;
            learner.success(n, latency_us(n, c, s_us, &mut rng), &POOL);
        }
    }

    #[test]
    fn cores_and_service_time_are_where_latency_bends() {
        for (c, off) in [(1, 0), (2, 0), (4, 1), (8, 2), (24, 8)] {
            let mut learner = Learner::new();
            learn(&mut learner, c, 30_000.0, 4_000, 3 * c);
            let s_us = learner.service_us().unwrap();
            assert!((s_us / 30_000.0 - 1.0).abs() < 0.12, "{c} cores: {s_us}");
            assert!((learner.cores() - c as f32).abs() <= off as f32, "{c}: {}", learner.cores());
            assert!(!learner.is_open(), "{c} cores: a bend was seen");
        }
    }

    #[test]
    fn without_a_bend_there_may_be_more_cores_but_not_many() {
        let mut learner = Learner::new();
        learn(&mut learner, 64, 30_000.0, 2_000, 6);
        assert!(learner.is_open());
        assert!((7.0..=8.0).contains(&learner.cores()), "two more than tried: {}", learner.cores());
    }

    #[test]
    fn a_change_of_speed_is_noticed_within_a_hundred_requests() {
        for (factor, within) in [(2.0, 100), (0.5, 150)] {
            let mut learner = Learner::new();
            learn(&mut learner, 2, 30_000.0, 4_000, 5);
            let cores = learner.cores();
            learn(&mut learner, 2, 30_000.0 * factor, within, 5);
            let now = f64::from(learner.service_us().unwrap()) / 30_000.0;
            assert!((now / factor - 1.0).abs() < 0.3, "by {factor}: {now} after {within}");
            assert!((learner.cores() - cores).abs() <= 1.0, "the cores stay");
        }
    }

    /// The pool's mean is that of its first success, a hundredth of what requests take.
    #[test]
    fn the_first_requests_are_no_change_of_speed() {
        let pool = Pool { service_us: Some(300.0), ..POOL };
        for seed in 0..20 {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let (mut learner, mut sum_us) = (Learner::new(), 0.0);
            learner.round(&pool);
            for _ in 0..4 {
                let us = latency_us(0, 1, 30_000.0, &mut rng);
                sum_us += us;
                learner.success(0, us, &pool);
            }
            // What is before the first request, the prior, counts for as many.
            let us = learner.service_us().unwrap();
            assert!(us < sum_us / 4.0, "seed {seed}: {us}, of {sum_us} for four");
        }
    }

    #[test]
    fn a_slow_estimate_without_new_requests_returns_to_the_average() {
        let mut learner = Learner::new();
        (0..5).for_each(|_| learner.success(0, 400_000.0, &POOL));
        assert!(learner.service_us().unwrap() > 150_000.0);
        (0..8_000).for_each(|_| learner.round(&POOL));
        let us = learner.service_us().unwrap();
        assert!((us / 32_000.0 - 1.0).abs() < 0.05, "a bit better than the average: {us}");
    }

    #[test]
    fn what_was_found_is_remembered_by_when_it_began() {
        let mut learner = Learner::new();
        for (k, at) in [100u64, 250, 900].into_iter().enumerate() {
            learner.start(k as u32, Nanos(at));
        }
        assert_eq!(learner.found(750, Nanos(1_000)), Some(1));
        assert_eq!(learner.found(98, Nanos(1_000)), Some(2), "a clock read twice");
        assert_eq!(learner.found(900, Nanos(1_000)), Some(0));
        assert_eq!(learner.found(1, Nanos(1_000)), None);
    }

    #[test]
    fn requests_begun_before_a_forgetting_take_no_later_ones_place() {
        let mut learner = Learner::new();
        learner.start(7, Nanos(100));
        learner.forget();
        learner.start(1, Nanos(200));
        assert_eq!(learner.found(800, Nanos(900)), None);
        assert_eq!(learner.found(800, Nanos(1_000)), Some(1));
    }

    #[test]
    fn one_request_a_thousand_times_as_long_is_no_change_of_the_backend() {
        let mut learner = Learner::new();
        learn(&mut learner, 1, 50_000.0, 200, 1);
        let before = learner.service_us().unwrap();
        learner.success(0, 50_000_000.0, &POOL);
        learn(&mut learner, 1, 50_000.0, 40, 2);
        let after = learner.service_us().unwrap();
        assert!((after / before - 1.0).abs() < 0.1, "{before} {after}");
        // Ten in a row are one.
        for _ in 0..10 {
            learner.success(0, 500_000.0, &POOL);
        }
        assert!(learner.service_us().unwrap() > 2.0 * before);
    }

    #[test]
    fn small_differences_are_noise_and_great_ones_are_not() {
        let mut learner = Learner::new();
        learn(&mut learner, 1, 50_000.0, 100, 1);
        let own = learner.service_us().unwrap();
        let alike = learner.shrunk_us(&Pool { spread: 0.0, ..POOL });
        let apart = learner.shrunk_us(&Pool { spread: 1e10, ..POOL });
        assert_eq!(alike, 40_000.0);
        assert!((apart / own - 1.0).abs() < 0.01, "{apart} of {own}");
    }
}
