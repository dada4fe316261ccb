//! Prequal: of a pool of recent probe answers, the *cold* backend of the least latency; when all are
//! *hot*, the one with the fewest requests in flight (RIF). Hot is one that reports more RIF than the
//! `hot_percentile`-th percentile of recent answers. Fewer than two answers: a draw by weight. O(pool), which
//! does not grow with n.
//!
//! Source: Wydrowski, Kleinberg, Rumble, Archer, "Load is not what you should balance: Introducing
//! Prequal" (NSDI 2024), §4. Each request sends `probes` and takes one answer; an answer may be used
//!
//! `b = max(1, (1 + δ) / ((1 − m/n)·probes − removals))` times, δ = 1, fractions carried over to
//! the next answer (the paper rounds at random, to the same mean),
//! counts each use as one more in flight, and leaves when it is older than `load_age_ms`, when a fresher one
//! of its backend comes, when the pool is full and it is the oldest, or as one of `removals` per request,
//! in turn the oldest and the worst. Where probes cannot keep a pool of m filled (b without bound) an
//! answer serves [`MOST_USES`] times. Probes are drawn as `draw` says: by weight here, uniformly in the paper.
//!
//! **Failures**: a backend that fails or refuses fast reports neither load nor latency. Its reported latency
//! is mixed with the penalty of `state/failure.rs` in the share of its requests that failed lately (a
//! refusal is a fifth of a failure, a request given up as much of one as it waited for), and what is not yet
//! forgiven counts as in flight. The paper has the like and does not tell it.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_model::Nanos;
use rand::RngCore;
use serde::{Deserialize, Serialize};

use crate::state::{FailureShares, InFlight, Sampler, Taken};
use crate::{Draw, Finish, MAX_CHOICES, Policy, Probing, Request, ServerLoad, Settings};

/// The most uses of an answer.
const MOST_USES: f64 = 16.0;
const DELTA: f64 = 1.0;
/// Above any latency in microseconds, and small enough that RIF still counts on top of it.
const HOT: f64 = 1e15;
/// The percentile of RIF is taken over so many answers.
const REMEMBERED: usize = 128;

/// How probes are sent and kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PrequalSettings {
    /// Probes for every 100 requests, 1…1,600. Paper: 300.
    pub probes_per_100: u32,
    /// Answers removed for every 100 requests. Paper: 100.
    pub removals_per_100: u32,
    /// Most answers kept, 2…64. Paper: 16.
    pub pool: u32,
    /// A backend that reports more RIF than this percentile is hot, 0…100. Paper: 84 (2^-0.25).
    pub hot_percentile: u32,
}

impl Default for PrequalSettings {
    fn default() -> Self {
        PrequalSettings { probes_per_100: 300, removals_per_100: 100, pool: 16, hot_percentile: 84 }
    }
}

impl PrequalSettings {
    pub(crate) fn is_valid(&self) -> bool {
        (1..=100 * MAX_CHOICES).contains(&self.probes_per_100)
            && self.removals_per_100 <= 100 * MAX_CHOICES
            && (2..=64).contains(&self.pool)
            && self.hot_percentile <= 100
    }
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    backend: usize,
    at: Nanos,
    rif: u32,
    latency_us: f64,
    uses: u32,
}

/// The least latency of those that are not loaded, by probes.
pub struct Prequal {
    settings: PrequalSettings,
    max_age: Duration,
    draw: Draw,
    sampler: Sampler,
    backends: usize,
    pool: Vec<Answer>,
    rifs: Rifs,
    failures: FailureShares,
    in_flight: InFlight,
    remove_oldest: bool,
    /// Hundredths of probes and of removals that are due.
    probes_due: u32,
    removals_due: u32,
    /// The fraction of a use that the last answer did not get.
    uses_due: f64,
}

impl Prequal {
    /// Over backends of these weights; heeds `draw`, `decay_ms`, `load_age_ms` and `prequal`.
    pub fn new(weights: &[u32], settings: &Settings) -> Self {
        let draw = settings.draw;
        Prequal {
            settings: settings.prequal,
            max_age: Duration::from_millis(settings.load_age_ms),
            draw,
            sampler: Sampler::new(weights.iter().map(|&w| draw.chance(w))),
            backends: in_use(weights),
            pool: Vec::with_capacity(settings.prequal.pool as usize + 1),
            rifs: Rifs::default(),
            failures: FailureShares::new(weights.len(), settings.decay_us()),
            in_flight: InFlight::new(weights.len()),
            remove_oldest: true,
            probes_due: 0,
            removals_due: 0,
            uses_due: 0.0,
        }
    }

    /// How often the next answer may be used. The fraction is carried over, which has the mean of a draw.
    fn uses(&mut self) -> u32 {
        let PrequalSettings { probes_per_100, removals_per_100, pool, .. } = self.settings;
        let filled = f64::from(pool) / self.backends.max(1) as f64;
        let left = (1.0 - filled) * f64::from(probes_per_100) - f64::from(removals_per_100);
        let uses = if left > 0.0 { (1.0 + DELTA) * 100.0 / left } else { MOST_USES };
        self.uses_due += uses.clamp(1.0, MOST_USES);
        let whole = self.uses_due.floor();
        self.uses_due -= whole;
        whole as u32
    }

    fn rif(&mut self, answer: Answer, now: Nanos) -> f64 {
        f64::from(answer.rif) + self.in_flight.held(answer.backend, now)
    }

    fn latency_us(&self, answer: Answer, now: Nanos) -> f64 {
        let failed = self.failures.share(answer.backend, now);
        answer.latency_us * (1.0 - failed) + self.in_flight.successes().failure_us() * failed
    }

    /// Where the best answer of those open stands: cold before hot, the cold by latency, the hot by RIF;
    /// and where the worst of all does, by the opposite. Ties go to the oldest.
    fn ends(&mut self, now: Nanos, open: impl Fn(usize) -> bool) -> (Option<usize>, Option<usize>) {
        let hot_above = f64::from(self.rifs.percentile(self.settings.hot_percentile));
        let (mut best, mut worst) = (None, None);
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for at in 0..self.pool.len() {
            let answer = self.pool[at];
            let rif = self.rif(answer, now);
            let cost = if rif > hot_above { HOT + rif } else { self.latency_us(answer, now) };
            if cost < least && open(answer.backend) {
                (best, least) = (Some(at), cost);
            }
            if cost > most {
                (worst, most) = (Some(at), cost);
            }
        }
        (best, worst)
    }

    /// Uses an answer once more; true when it is used up.
    fn use_answer(&mut self, at: usize) -> (usize, bool) {
        let answer = &mut self.pool[at];
        answer.rif = answer.rif.saturating_add(1);
        answer.uses -= 1;
        (answer.backend, answer.uses == 0)
    }

    /// Takes out what this request removes; `worst` is where the worst stands, if it is still there.
    fn remove_some(&mut self, mut worst: Option<usize>, now: Nanos) {
        self.removals_due += self.settings.removals_per_100;
        while self.removals_due >= 100 && !self.pool.is_empty() {
            self.removals_due -= 100;
            if self.remove_oldest {
                // Answers stand in the order in which they came.
                self.pool.remove(0);
            } else if let Some(at) = worst.or_else(|| self.ends(now, |_| true).1) {
                self.pool.remove(at);
            }
            self.remove_oldest = !self.remove_oldest;
            worst = None;
        }
        self.removals_due %= 100;
    }
}

/// RIF of recent answers.
#[derive(Clone, Debug, Default)]
struct Rifs {
    /// In the order in which they came.
    recent: VecDeque<u32>,
    sorted: Vec<u32>,
}

impl Rifs {
    fn add(&mut self, rif: u32) {
        if self.recent.len() == REMEMBERED
            && let Some(oldest) = self.recent.pop_front()
        {
            let at = self.sorted.partition_point(|&r| r < oldest);
            self.sorted.remove(at);
        }
        self.recent.push_back(rif);
        let at = self.sorted.partition_point(|&r| r < rif);
        self.sorted.insert(at, rif);
    }

    /// So many percent of the answers reported no more.
    fn percentile(&self, percent: u32) -> u32 {
        let last = self.sorted.len().saturating_sub(1);
        self.sorted.get(last * percent as usize / 100).copied().unwrap_or(0)
    }
}

fn in_use(weights: &[u32]) -> usize {
    weights.iter().filter(|w| **w > 0).count()
}

impl Policy for Prequal {
    fn set_weights(&mut self, weights: &[u32]) {
        self.sampler.set(weights.iter().map(|&w| self.draw.chance(w)));
        self.backends = in_use(weights);
        self.pool.retain(|answer| weights.get(answer.backend).is_some_and(|w| *w > 0));
        self.failures.grow(weights.len());
        self.in_flight.grow(weights.len());
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        while self.pool.first().is_some_and(|answer| now.since(answer.at) > self.max_age) {
            self.pool.remove(0);
        }
        let (best, mut worst) = self.ends(now, |i| request.allows(i));
        let backend = match best {
            Some(best) if self.pool.len() >= 2 => {
                let (backend, used_up) = self.use_answer(best);
                if used_up {
                    self.pool.remove(best);
                    worst = worst.filter(|at| *at != best).map(|at| at - usize::from(at > best));
                }
                Some(backend)
            }
            _ => self.sampler.draw(&mut Taken::new(request), rng),
        };
        self.remove_some(worst, now);
        backend
    }

    fn on_start(&mut self, backend: usize, _now: Nanos) {
        self.in_flight.start(backend);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.in_flight.finish(backend, finish, now);
        self.failures.finish(backend, finish, self.in_flight.successes(), now);
    }

    fn probing(&self) -> Probing {
        Probing::Beside
    }

    fn probe_targets(
        &mut self,
        request: &Request<'_>,
        _now: Nanos,
        rng: &mut dyn RngCore,
        targets: &mut Vec<usize>,
    ) {
        self.probes_due += self.settings.probes_per_100;
        let mut taken = Taken::new(request);
        while self.probes_due >= 100 {
            self.probes_due -= 100;
            targets.extend(self.sampler.draw(&mut taken, rng));
        }
    }

    fn on_probe(&mut self, backend: usize, load: ServerLoad, asked: Nanos) {
        if self.sampler.weight(backend) == 0 {
            return;
        }
        self.rifs.add(load.in_flight);
        let uses = self.uses();
        self.pool.retain(|answer| answer.backend != backend);
        if self.pool.len() >= self.settings.pool as usize {
            self.pool.remove(0);
        }
        let latency_us = f64::from(load.latency_us);
        self.pool.push(Answer { backend, at: asked, rif: load.in_flight, latency_us, uses });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    const MS: Duration = Duration::from_millis(1);

    fn load(in_flight: u32, latency_us: f32) -> ServerLoad {
        ServerLoad { in_flight, latency_us, ..ServerLoad::default() }
    }

    /// Three answers, none removed by requests, each good for several uses.
    fn three() -> Prequal {
        let prequal = PrequalSettings { removals_per_100: 0, ..PrequalSettings::default() };
        let mut policy = Prequal::new(&[1; 3], &Settings { prequal, ..Settings::default() });
        for (backend, rif, latency_us) in [(0, 1, 900.0), (1, 2, 300.0), (2, 30, 10.0)] {
            policy.on_probe(backend, load(rif, latency_us), Nanos::ZERO);
        }
        policy
    }

    fn picks(policy: &mut Prequal, n: usize, now: Nanos) -> Vec<usize> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        (0..n).map(|_| policy.pick(&Request::default(), now, &mut rng).unwrap()).collect()
    }

    #[test]
    fn cold_by_latency_then_hot_by_rif() {
        // The 84th percentile of 1, 2, 30 is 2: backend 1 is the best of the cold until it is used.
        assert_eq!(picks(&mut three(), 3, Nanos::ZERO), [1, 0, 0]);
        // Then all are hot.
        let mut policy = three();
        policy.settings.hot_percentile = 0;
        policy.rifs = Rifs::default();
        assert_eq!(picks(&mut policy, 4, Nanos::ZERO), [0, 0, 1, 0]);
    }

    #[test]
    fn no_answer_is_too_great_to_be_used() {
        let mut policy = three();
        (0..3).for_each(|i| policy.on_probe(i, load(u32::MAX, i as f32 + 1.0), Nanos::ZERO));
        policy.rifs = Rifs::default();
        policy.rifs.add(u32::MAX);
        assert_eq!(picks(&mut policy, 3, Nanos::ZERO), [0, 0, 0], "none is hot");
    }

    #[test]
    fn an_answer_leaves_when_old_used_up_or_removed() {
        let mut policy = three();
        picks(&mut policy, 1, Nanos::from_secs_f64(1.001));
        assert!(policy.pool.is_empty(), "old");
        let mut policy = three();
        policy.pool[1].uses = 1;
        picks(&mut policy, 1, Nanos::ZERO);
        assert_eq!(policy.pool.len(), 2, "used up");
        let mut policy = three();
        policy.settings.removals_per_100 = 100;
        picks(&mut policy, 2, Nanos::ZERO);
        let left: Vec<usize> = policy.pool.iter().map(|a| a.backend).collect();
        assert_eq!(left, [1], "the oldest, then the worst");
    }

    #[test]
    fn answers_are_used_as_often_as_probes_allow() {
        let mut policy = Prequal::new(&[1; 32], &Settings::default());
        let mean =
            |policy: &mut Prequal| f64::from((0..100).map(|_| policy.uses()).sum::<u32>()) / 1e2;
        // 2 / ((1 - 16/32)·3 - 1) = 4; a pool as large as the backends is never filled.
        assert!((mean(&mut policy) - 4.0).abs() < 0.02);
        policy.set_weights(&[1; 160]);
        assert!((mean(&mut policy) - 2.0 / 1.7).abs() < 0.02);
        policy.set_weights(&[1; 8]);
        assert!((mean(&mut policy) - 16.0).abs() < 0.02);
    }

    #[test]
    fn each_request_sends_its_probes_to_different_backends() {
        let prequal = PrequalSettings { probes_per_100: 250, ..PrequalSettings::default() };
        let mut policy = Prequal::new(&[1, 5, 0, 1], &Settings { prequal, ..Settings::default() });
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut sent = Vec::new();
        for _ in 0..100 {
            let mut targets = Vec::new();
            policy.probe_targets(&Request::default(), Nanos::ZERO, &mut rng, &mut targets);
            targets.sort_unstable();
            assert!(targets.windows(2).all(|w| w[0] < w[1]) && !targets.contains(&2));
            sent.push(targets.len());
        }
        assert_eq!(sent.iter().sum::<usize>(), 250);
    }

    #[test]
    fn what_fails_fast_is_the_worst_of_the_cold() {
        let mut policy = three();
        let now = Nanos::from_secs_f64(0.5);
        for _ in 0..30 {
            policy.on_start(0, now);
            policy.on_finish(0, &Finish::success(30 * MS), now);
            policy.on_start(1, now);
            policy.on_finish(1, &Finish::failure(MS), now);
        }
        policy.on_probe(1, load(0, 5.0), now);
        assert_eq!(picks(&mut policy, 1, now), [0]);
    }
}
