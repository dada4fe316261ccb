//! The pool of Table 3 explored by Algorithm 1 (§4.3) and its scheduler (§4.6), every trial kept.
//!
//! Backends of a type are alike, as the paper's machines are: its figures show one of each type. In each
//! iteration every backend that has not ended asks for one weight; rounds of ten seconds grant as many of
//! these as fit into 1. A round of one backend is a queue of c cores, simulated request by request, whose
//! latency is read by 20 probes per second that take no capacity themselves.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plimsoll_learn::{CurveFit, Family, FitError, FitOptions, IdleLatency, Point, fit};
use plimsoll_model::{BackendId, Curve};
use plimsoll_queueing::{MmcCurve, ServiceTime};
use plimsoll_sim::BackendModel;
use plimsoll_sim::knapsack::{
    Climb, ExploreMode, ExploreOptions, Measurement, Member, Priority, ScheduleError, Step, Wanted,
    schedule,
};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{Context, Failure};

/// Mean service time on a core of speed 1, microseconds: the paper's requests take about as long.
pub const SERVICE_US: f64 = 5_000.0;
/// The part of the capacity that clients ask for (§6).
pub const LOAD: f64 = 0.7;
/// From this multiple of the idle latency on a weight counts as a drop (§4.3).
pub const DROP: f64 = 5.0;
/// How long a round is, seconds, and how often it probes (§6.1, §5).
const ROUND_S: f64 = 10.0;
const PROBES_PER_S: f64 = 20.0;
/// The first part of a round, in which the queue takes its shape, is not probed.
const SETTLE_S: f64 = 2.0;

/// A type of Table 3.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name in plots.
    pub name: &'static str,
    /// How many there are.
    pub count: usize,
    /// Each of them. The F-series is 15–20 % faster (§6).
    pub model: BackendModel,
    /// `w_max` that the paper found (§6.1).
    pub their_w_max: f64,
}

/// DS1v2, DS2v2, DS3v2, F8sv2.
pub const KINDS: [Kind; 4] = [
    kind("1 core", 16, 1, 1.0, 0.02),
    kind("2 cores", 8, 2, 1.0, 0.04),
    kind("4 cores", 4, 4, 1.0, 0.085),
    kind("8 cores", 2, 8, 1.15, 0.165),
];

const fn kind(name: &'static str, count: usize, cores: u32, speed: f64, their_w_max: f64) -> Kind {
    Kind { name, count, model: BackendModel { cores, speed }, their_w_max }
}

/// The thirty, in the paper's order.
pub fn models() -> Vec<BackendModel> {
    KINDS.iter().flat_map(|kind| vec![kind.model; kind.count]).collect()
}

/// The place of the first backend of each type.
pub fn firsts() -> [usize; 4] {
    let mut at = 0;
    KINDS.map(|kind| {
        at += kind.count;
        at - kind.count
    })
}

/// Requests per second of all clients.
pub fn total_rps() -> f64 {
    LOAD * models().iter().map(|model| model.capacity_rps(SERVICE_US)).sum::<f64>()
}

/// The true latency of a type over its weight, microseconds.
pub fn truth_us(curve: &MmcCurve, weight: f64) -> f64 {
    curve.latency_at(weight * total_rps())
}

/// The greatest weight at which true latency is below the paper's sign of overload.
pub fn true_w_max(curve: &MmcCurve) -> f64 {
    let (mut good, mut bad) = (0.0, curve.capacity() / total_rps());
    for _ in 0..60 {
        let middle = (good + bad) / 2.0;
        let fine = truth_us(curve, middle) < DROP * curve.latency_at(0.0);
        if fine { good = middle } else { bad = middle }
    }
    good
}

/// One weight that was tried.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// The weight.
    pub weight: f64,
    /// Mean latency that the probes saw, microseconds.
    pub latency_us: f64,
    /// Whether it counts as a drop.
    pub bad: bool,
    /// The round in which it was measured, from 1.
    pub round: u32,
}

/// One backend.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Latency at weight 0, microseconds, as measured.
    pub l0_us: f64,
    /// What was tried, in order.
    pub trials: Vec<Trial>,
    /// The greatest weight found good; 0 where there was none.
    pub w_max: f64,
}

/// The pool.
#[derive(Clone, Debug)]
pub struct Explored {
    /// In the paper's order.
    pub backends: Vec<Backend>,
    /// Rounds in all, that at weight 0 not counted.
    pub rounds: u32,
    /// Iterations: the most trials of one backend.
    pub iterations: u32,
}

/// By the rule as printed, or by the mended one; both with the paper's 5·l0.
///
/// # Errors
/// When the run is interrupted.
pub fn explore(context: &Context, seed: u64, mode: ExploreMode) -> Result<Explored, Failure> {
    let options = ExploreOptions { mode, latency_factor: DROP, ..ExploreOptions::default() };
    let models = models();
    let other = |error: &dyn std::fmt::Display| Failure::Other(error.to_string());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let first = 1.0 / models.len() as f64;
    let mut climbs = Vec::new();
    let mut backends = Vec::new();
    for model in &models {
        climbs.push(Climb::new(first, options).map_err(|e| other(&e))?);
        let l0_us = probe(model, 0.0, &mut rng);
        backends.push(Backend { l0_us, trials: Vec::new(), w_max: 0.0 });
    }
    let (mut rounds, mut iterations) = (0, 0);
    loop {
        let mut wishes = wishes(&climbs, &backends);
        if wishes.is_empty() {
            break;
        }
        iterations += 1;
        while !wishes.is_empty() {
            context.check()?;
            rounds += 1;
            let granted = grant(&models, &wishes).map_err(|e| other(&e))?;
            for wish in wishes.iter().filter(|wish| granted.contains(&wish.backend)) {
                let i = wish.backend.0 as usize;
                measure(
                    &models[i],
                    &mut climbs[i],
                    &mut backends[i],
                    wish.weight,
                    rounds,
                    &mut rng,
                );
            }
            wishes.retain(|wish| !granted.contains(&wish.backend));
        }
    }
    for (backend, climb) in backends.iter_mut().zip(&climbs) {
        backend.w_max = climb.w_max();
    }
    Ok(Explored { backends, rounds, iterations })
}

fn wishes(climbs: &[Climb], backends: &[Backend]) -> Vec<Wanted> {
    let wish = |(i, (climb, backend)): (usize, (&Climb, &Backend))| {
        let Step::Measure(weight) = climb.pending() else { return None };
        let suffers = backend.trials.last().is_some_and(|trial| trial.bad);
        let priority = if suffers { Priority::OverUtilised } else { Priority::Rest };
        let backend = BackendId(i as u32);
        Some(Wanted { backend, weight: weight.min(1.0), priority, ticket: i as u64 })
    };
    climbs.iter().zip(backends).enumerate().filter_map(wish).collect()
}

/// Whose wish is granted in the next round: the paper's greedy rule, without bounds on what the others
/// take meanwhile.
fn grant(models: &[BackendModel], wishes: &[Wanted]) -> Result<Vec<BackendId>, ScheduleError> {
    let member = |i: usize| Member { backend: BackendId(i as u32), bound: 1.0, capacity: 1.0 };
    let members: Vec<Member> = (0..models.len()).map(member).collect();
    Ok(schedule(&members, wishes)?.granted)
}

fn measure(
    model: &BackendModel,
    climb: &mut Climb,
    backend: &mut Backend,
    weight: f64,
    round: u32,
    rng: &mut dyn RngCore,
) {
    let latency_us = probe(model, weight * total_rps(), rng);
    let l0_us = backend.l0_us;
    climb.next(&Measurement { weight, l0_us, latency_us, dropped: false });
    let bad = latency_us >= DROP * l0_us;
    backend.trials.push(Trial { weight, latency_us, bad, round });
}

/// The mean latency of the probes of one round under Poisson clients of this rate, microseconds. A probe
/// waits as a request would, and is served, but occupies nothing.
fn probe(model: &BackendModel, rate_rps: f64, rng: &mut dyn RngCore) -> f64 {
    let mean_s = SERVICE_US / 1e6 / model.speed;
    let mut exponential = |mean: f64| ServiceTime::Exponential.draw(rng) * mean;
    // When each core is free, in nanoseconds; the earliest on top.
    let mut free: BinaryHeap<Reverse<u64>> = (0..model.cores).map(|_| Reverse(0)).collect();
    let gap_s = if rate_rps > 0.0 { 1.0 / rate_rps } else { f64::INFINITY };
    let mut arrival = exponential(gap_s);
    let (mut sum_s, mut count) = (0.0, 0.0);
    let mut at = SETTLE_S;
    while at < SETTLE_S + ROUND_S {
        while arrival < at {
            let Reverse(core) = free.pop().unwrap_or(Reverse(0));
            let start = (core as f64 / 1e9).max(arrival);
            free.push(Reverse(((start + exponential(mean_s)) * 1e9) as u64));
            arrival += exponential(gap_s);
        }
        let Reverse(core) = free.peek().copied().unwrap_or(Reverse(0));
        sum_s += (core as f64 / 1e9 - at).max(0.0) + exponential(mean_s);
        count += 1.0;
        at += 1.0 / PROBES_PER_S;
    }
    sum_s / count * 1e6
}

impl Explored {
    /// Rounds per iteration.
    pub fn rounds_per_step(&self) -> f64 {
        f64::from(self.rounds) / f64::from(self.iterations.max(1))
    }

    /// Time for all of it, seconds, that at weight 0 not counted.
    pub fn seconds(&self) -> f64 {
        f64::from(self.rounds) * ROUND_S
    }

    /// Fewest and most trials of a backend.
    pub fn steps(&self) -> (usize, usize) {
        let steps = self.backends.iter().map(|backend| backend.trials.len());
        (steps.clone().min().unwrap_or(0), steps.max().unwrap_or(0))
    }

    /// Of a type: the mean of its backends' `w_max`.
    pub fn mean_w_max(&self, kind: usize) -> f64 {
        let from = firsts()[kind];
        let of = &self.backends[from..from + KINDS[kind].count];
        of.iter().map(|backend| backend.w_max).sum::<f64>() / of.len() as f64
    }
}

impl Backend {
    /// The points that count for a curve: those without drops, and the idle one apart (§6.1).
    pub fn points(&self) -> Vec<Point> {
        let requests = ROUND_S * PROBES_PER_S;
        let good = self.trials.iter().filter(|trial| !trial.bad);
        good.map(|t| Point { load: t.weight, latency_us: t.latency_us, requests }).collect()
    }

    /// A curve through them: of this family, or of the best.
    ///
    /// # Errors
    /// When they are not enough.
    pub fn curve(&self, family: Option<Family>) -> Result<CurveFit, FitError> {
        let requests = ROUND_S * PROBES_PER_S;
        let idle = Some(IdleLatency { latency_us: self.l0_us, requests });
        fit(&self.points(), &FitOptions { family, idle, ..FitOptions::default() })
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_lanes::Interrupt;

    use super::*;

    fn context() -> Context {
        Context::new(5, true, Interrupt::never())
    }

    #[test]
    fn probes_see_what_erlang_says() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let model = BackendModel { cores: 2, speed: 1.15 };
        let rate = 0.6 * model.capacity_rps(SERVICE_US);
        let runs = 200;
        let mean = (0..runs).map(|_| probe(&model, rate, &mut rng)).sum::<f64>() / f64::from(runs);
        let exact = model.curve(SERVICE_US).latency_at(rate);
        assert!((mean / exact - 1.0).abs() < 0.03, "{mean} {exact}");
    }

    #[test]
    fn mended_finds_the_edge_of_every_type_and_printed_knows_nothing_of_the_small() {
        let mended = explore(&context(), 5, ExploreMode::Bisect).unwrap();
        for (kind, spec) in KINDS.iter().enumerate() {
            let edge = true_w_max(&spec.model.curve(SERVICE_US));
            let found = mended.mean_w_max(kind);
            assert!((found / edge - 1.0).abs() < 0.2, "{}: {found} {edge}", spec.name);
        }
        let printed = explore(&context(), 5, ExploreMode::Literal).unwrap();
        assert_eq!(printed.mean_w_max(0), 0.0);
        assert!(mended.rounds_per_step() >= 1.0 && mended.iterations > printed.iterations);
    }

    #[test]
    fn a_curve_goes_through_the_good_points() {
        let explored = explore(&context(), 5, ExploreMode::Bisect).unwrap();
        let backend = &explored.backends[firsts()[2]];
        let curve = backend.curve(Some(Family::Hyperbola)).unwrap().curve;
        for point in backend.points() {
            let off = curve.latency_at(point.load) / point.latency_us - 1.0;
            assert!(off.abs() < 0.6, "{point:?}: {off}");
        }
    }
}
