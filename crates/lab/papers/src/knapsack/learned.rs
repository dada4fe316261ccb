//! What the paper's own method learns of a pool, and what an ILP over it chooses.
//!
//! Every backend is driven up by Algorithm 1 (the mended stopping rule, everything else as printed: from
//! 1/N, a drop from five times the idle latency on, steps within 5 %), measured for one round per step in
//! the arena; through its good points goes the polynomial of degree two (§4.2–4.3). Rounds are not
//! scheduled: each backend gets the weight it asks for, whatever the others get, as in the paper's
//! Figure 9. Of each curve ten weights between 0 and `w_max` are offered (§4.4); a cost other than
//! latency is put on the same weights (§6.3).

use plimsoll_learn::{CurveFit, Family, FitOptions, IdleLatency, Point, fit};
use plimsoll_model::{Curve, Objective};
use plimsoll_pack::{Choice, Effort, MenuProblem, pack_menus};
use plimsoll_policy::{Policy, RoundRobin};
use plimsoll_sim::knapsack::{Climb, ExploreOptions, Measurement, Step};
use plimsoll_sim::{Arena, integer_weights};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::instances::UNITS;
use crate::Failure;

/// Weights offered per backend.
const POINTS: usize = 10;
/// From this multiple of the idle latency on a backend counts as overloaded.
const OVERLOADED: f64 = 5.0;
/// Probes of an idle backend: 20 a second for a round of ten seconds.
const IDLE_PROBES: u32 = 200;
/// Where all `w_max` together are less than the traffic, menus are stretched to this part of it.
const ROOM: f64 = 1.05;
/// The first part of a round, which finds empty queues, does not count.
const SETTLING: f64 = 0.2;

/// What an ILP minimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The sum of the backends' latencies: the paper's choice.
    Latency,
    /// The greatest number of connections at any backend.
    Connections,
    /// The greatest CPU utilisation of any backend, which only an agent on it can tell.
    Cpu,
}

/// One backend as it was learned.
struct Backend {
    fit: CurveFit,
    w_max: f64,
    /// Utilisation per unit of weight.
    cpu_slope: f64,
}

/// A pool as it was learned.
pub struct Learned {
    backends: Vec<Backend>,
    rate_rps: f64,
    /// Measurements per backend in the mean, that of the idle one not counted.
    pub steps: f64,
}

struct Climber {
    climb: Climb,
    l0_us: f64,
    points: Vec<Point>,
    /// Sums of utilisation × weight and of weight².
    cpu: (f64, f64),
}

/// Learns the arena's pool at its rate, with rounds of `round_s` simulated seconds.
pub fn learn(arena: &Arena, round_s: f64) -> Result<Learned, Failure> {
    let mut climbers = climbers(arena)?;
    for round in 0.. {
        let wanted: Vec<f64> = climbers
            .iter()
            .map(|c| if let Step::Measure(weight) = c.climb.pending() { weight } else { 0.0 })
            .collect();
        let all: f64 = wanted.iter().sum();
        if all <= 0.0 {
            break;
        }
        measure(arena, &mut climbers, &wanted, round_s, round);
    }
    let n = climbers.len() as f64;
    let steps = climbers.iter().map(|c| f64::from(c.climb.steps())).sum::<f64>() / n;
    let backends = climbers.into_iter().map(Climber::learned).collect::<Result<_, _>>()?;
    Ok(Learned { backends, rate_rps: arena.rate_rps, steps })
}

fn climbers(arena: &Arena) -> Result<Vec<Climber>, Failure> {
    let options = ExploreOptions { latency_factor: OVERLOADED, ..ExploreOptions::default() };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(arena.seed ^ 0x1d1e);
    let first = 1.0 / arena.pool.len() as f64;
    let climber = |model: &plimsoll_sim::BackendModel| {
        let work: f64 = (0..IDLE_PROBES).map(|_| arena.service.draw(&mut rng)).sum();
        let l0_us = work / f64::from(IDLE_PROBES) * arena.service_us / model.speed;
        let climb = Climb::new(first, options).map_err(|e| Failure::Other(e.to_string()))?;
        Ok(Climber { climb, l0_us, points: Vec::new(), cpu: (0.0, 0.0) })
    };
    arena.pool.iter().map(climber).collect()
}

/// One round: every backend still explored gets just the weight it asks for.
fn measure(arena: &Arena, climbers: &mut [Climber], wanted: &[f64], round_s: f64, round: u64) {
    let rate_rps = arena.rate_rps * wanted.iter().sum::<f64>();
    let requests = (rate_rps * round_s).ceil().max(100.0) as u32;
    let run = Arena {
        rate_rps,
        requests,
        warm_up: (SETTLING * f64::from(requests)) as u32,
        seed: arena.seed.wrapping_mul(31).wrapping_add(round),
        timeline: Vec::new(),
        window_s: None,
        ..arena.clone()
    };
    let weights = integer_weights(wanted, 1_000_000);
    let mut balancers: [Box<dyn Policy>; 1] = [Box::new(RoundRobin::new(&weights))];
    let report = run.run(&mut balancers);
    for ((climber, &weight), seen) in climbers.iter_mut().zip(wanted).zip(&report.backends) {
        if weight > 0.0 {
            let dropped = seen.requests == 0;
            let (l0_us, latency_us) = (climber.l0_us, seen.mean_us);
            climber.climb.next(&Measurement { weight, l0_us, latency_us, dropped });
            if !dropped && latency_us < OVERLOADED * l0_us {
                let requests = seen.requests as f64;
                climber.points.push(Point { load: weight, latency_us, requests });
                climber.cpu.0 += seen.utilisation * weight;
                climber.cpu.1 += weight * weight;
            }
        }
    }
}

impl Climber {
    fn learned(self) -> Result<Backend, Failure> {
        let idle = IdleLatency { latency_us: self.l0_us, requests: f64::from(IDLE_PROBES) };
        let family = Some(Family::Poly2);
        let options = FitOptions { family, idle: Some(idle), ..FitOptions::default() };
        let fit = fit(&self.points, &options).map_err(|e| Failure::Other(e.to_string()))?;
        let cpu_slope = self.cpu.0 / self.cpu.1;
        Ok(Backend { fit, w_max: self.climb.w_max(), cpu_slope })
    }
}

impl Backend {
    fn latency_us(&self, weight: f64) -> f64 {
        if weight <= self.w_max {
            self.fit.curve.latency_at(weight)
        } else {
            // Nothing was measured there but that it is bad.
            self.fit.curve.latency_at(self.w_max) * (weight / self.w_max).powi(2)
        }
    }
}

impl Learned {
    /// The shares that an ILP over ten weights of each backend chooses; they sum up to 1.
    pub fn shares(&self, cost: Cost) -> Result<Vec<f64>, Failure> {
        let reach: f64 = self.backends.iter().map(|b| b.w_max).sum();
        let stretch = (ROOM / reach).max(1.0);
        let menu = |b: &Backend| -> Vec<Choice> {
            let choice = |i: usize| {
                let weight = stretch * b.w_max * i as f64 / (POINTS - 1) as f64;
                let cost = match cost {
                    Cost::Latency => b.latency_us(weight),
                    // Little's law.
                    Cost::Connections => weight * self.rate_rps * b.latency_us(weight) / 1e6,
                    Cost::Cpu => weight * b.cpu_slope,
                };
                Choice { weight: (weight * UNITS as f64).round() as i64, cost }
            };
            (0..POINTS).map(choice).collect()
        };
        let menus: Vec<Vec<Choice>> = self.backends.iter().map(menu).collect();
        let problem = MenuProblem { menus: &menus, target: UNITS, theta: None };
        let objective = match cost {
            Cost::Latency => Objective::Sum,
            Cost::Connections | Cost::Cpu => Objective::Max,
        };
        let weights = pack_menus(&problem, objective, &Effort::default())?.weights;
        let sum: i64 = weights.iter().sum();
        Ok(weights.iter().map(|&w| w as f64 / sum as f64).collect())
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::{BackendModel, BackendReport};

    use super::*;

    #[test]
    fn each_cost_is_least_under_its_own_ilp() {
        let pool = [(1, 1.0), (1, 1.0), (4, 1.0), (4, 0.7)];
        let pool = pool.map(|(cores, speed)| BackendModel { cores, speed }).to_vec();
        let arena = Arena::new(pool, 0.7, 200_000, 5);
        let learned = learn(&arena, 60.0).unwrap();
        // The greatest number of connections and the greatest utilisation of any backend.
        let greatest = |cost| {
            let shares = learned.shares(cost).unwrap();
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            let weights = integer_weights(&shares, 1_000_000);
            let mut balancers: [Box<dyn Policy>; 1] = [Box::new(RoundRobin::new(&weights))];
            let seen = arena.run(&mut balancers).backends;
            let connections = |b: &BackendReport| b.share * arena.rate_rps * b.mean_us / 1e6;
            let most = seen.iter().map(connections).fold(0.0, f64::max);
            (most, seen.iter().map(|b| b.utilisation).fold(0.0, f64::max))
        };
        let (by_connections, by_cpu) = (greatest(Cost::Connections), greatest(Cost::Cpu));
        assert!(by_connections.0 < 0.97 * by_cpu.0, "{by_connections:?} {by_cpu:?}");
        assert!(by_cpu.1 < 0.97 * by_connections.1, "{by_connections:?} {by_cpu:?}");
    }
}
