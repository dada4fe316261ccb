//! The pool that every lane emulates, and what is known of it only because it is emulated.

use std::time::Duration;

use clap::ValueEnum;
use plimsoll_model::{Curve, GREATEST_WEIGHT, Objective};
use plimsoll_pack::{CurveBackend, CurveProblem, PackError, pack_curves, round_to_range};
use plimsoll_queueing::{
    Central, MmcCurve, QueueCurve, Run, ServiceTime, SmoothRoundRobin, Station, simulate,
};
use plimsoll_sim::BackendModel;
use plimsoll_testbed::{BackendSpec, Service, ServiceKind, TestbedSpec};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Requests per simulation: its mean is good to about 1 %, within a second of CPU.
const SIMULATED: u32 = 1_000_000;
/// The first of them, which find an empty pool, do not count.
const SIMULATED_WARM_UP: u32 = 50_000;

/// The standard deviation of a lognormal service time's logarithm.
const SIGMA: f64 = 1.0;
/// The part of bimodal requests that is slow.
const SLOW_SHARE: f64 = 0.05;
/// How many times longer than a fast one a slow one takes.
const SLOW_FACTOR: f64 = 19.0;

/// How service times scatter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Distribution {
    /// Memoryless.
    Exponential,
    /// All alike.
    #[value(alias = "fixed")]
    Deterministic,
    /// The exponential of a normal variable of standard deviation 1.
    Lognormal,
    /// One request in twenty takes nineteen times as long as the others.
    Bimodal,
}

impl Distribution {
    /// The same for the testbed.
    pub fn kind(self) -> ServiceKind {
        match self {
            Distribution::Exponential => ServiceKind::Exponential,
            Distribution::Deterministic => ServiceKind::Deterministic,
            Distribution::Lognormal => ServiceKind::Lognormal { sigma: SIGMA },
            Distribution::Bimodal => {
                ServiceKind::Bimodal { slow_share: SLOW_SHARE, slow_factor: SLOW_FACTOR }
            }
        }
    }

    fn simulated(self) -> ServiceTime {
        match self {
            Distribution::Exponential => ServiceTime::Exponential,
            Distribution::Deterministic => ServiceTime::Deterministic,
            Distribution::Lognormal => ServiceTime::Lognormal { sigma: SIGMA },
            Distribution::Bimodal => ServiceTime::Bimodal,
        }
    }

    /// The squared coefficient of variation.
    fn squared_variation(self) -> f64 {
        match self {
            Distribution::Exponential => 1.0,
            Distribution::Deterministic => 0.0,
            Distribution::Lognormal => (SIGMA * SIGMA).exp() - 1.0,
            Distribution::Bimodal => {
                let mean = 1.0 - SLOW_SHARE + SLOW_SHARE * SLOW_FACTOR;
                let square = 1.0 - SLOW_SHARE + SLOW_SHARE * SLOW_FACTOR * SLOW_FACTOR;
                square / (mean * mean) - 1.0
            }
        }
    }
}

/// One emulated backend.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// Its name, in HAProxy as well.
    pub name: String,
    /// Cores.
    pub cores: u32,
    /// Work per second and core.
    pub speed: f64,
}

/// An unequal pool, the requests it serves and how many come.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Its backends.
    pub backends: Vec<Backend>,
    /// What the mean request takes on a core of speed 1.
    pub service: Duration,
    /// How that scatters.
    pub distribution: Distribution,
    /// Requests per second.
    pub rate_rps: f64,
    /// Seed of arrivals and service times: the same in every lane.
    pub seed: u64,
}

impl Pool {
    /// These backends, under clients that ask for the part `load` of what they can serve.
    pub fn new(
        models: &[BackendModel],
        service: Duration,
        distribution: Distribution,
        load: f64,
        seed: u64,
    ) -> Self {
        let backend = |(i, model): (usize, &BackendModel)| Backend {
            name: format!("s{}", i + 1),
            cores: model.cores,
            speed: model.speed,
        };
        let backends = models.iter().enumerate().map(backend).collect();
        let mut pool = Pool { backends, service, distribution, rate_rps: 0.0, seed };
        pool.rate_rps = load * pool.capacity_rps();
        pool
    }

    /// Requests per second that it can serve.
    pub fn capacity_rps(&self) -> f64 {
        self.stations().iter().map(Station::capacity_rps).sum()
    }

    /// What [`plimsoll_testbed::Testbed`] is to host.
    pub fn testbed(&self) -> TestbedSpec {
        let service = Service { mean: self.service, kind: self.distribution.kind() };
        let backend = |b: &Backend| {
            let mut spec = BackendSpec::new(b.name.clone(), service);
            (spec.cores, spec.speed, spec.seed) = (b.cores, b.speed, self.seed);
            spec
        };
        TestbedSpec { admin: None, backends: self.backends.iter().map(backend).collect() }
    }

    /// The weights of the best static split: the true curves packed for the mean client, and rounded
    /// to what HAProxy takes.
    ///
    /// # Errors
    /// When there is none.
    pub fn best_split(&self) -> Result<Vec<u32>, PackError> {
        let curves: Vec<Box<dyn Curve>> = self.stations().iter().map(|s| self.curve(s)).collect();
        let backends: Vec<CurveBackend> = curves
            .iter()
            .map(|curve| CurveBackend { curve: curve.as_ref(), max_load: curve.capacity() })
            .collect();
        let problem = CurveProblem { backends: &backends, total: self.rate_rps, theta: None };
        let packing = pack_curves(&problem, Objective::Traffic)?;
        let judged = Some((&problem, Objective::Traffic));
        Ok(round_to_range(&packing.weights, judged, 0..=GREATEST_WEIGHT)?.weights)
    }

    /// What the mean client of a central queue would wait, milliseconds, simulated: a reference near what
    /// the best policies reach, not a bound ([`Central`]).
    pub fn limit_ms(&self) -> f64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        Central::simulate(&self.stations(), &self.run(), &mut rng).mean_us / 1e3
    }

    /// What the mean client would wait under round robin with these weights on an ideal machine,
    /// milliseconds, simulated.
    pub fn split_ms(&self, weights: &[u32]) -> f64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let weights: Vec<f64> = weights.iter().map(|&w| f64::from(w)).collect();
        let mut balancer = SmoothRoundRobin::new(&weights);
        simulate(&self.stations(), &mut balancer, &self.run(), &mut rng).mean_us / 1e3
    }

    fn stations(&self) -> Vec<Station> {
        let service_us = self.service.as_secs_f64() * 1e6;
        let station = |b: &Backend| Station { cores: b.cores, service_us: service_us / b.speed };
        self.backends.iter().map(station).collect()
    }

    /// The true latency of one backend that gets its part of Poisson arrivals: exact for exponential
    /// service, Sakasegawa's approximation else.
    fn curve(&self, station: &Station) -> Box<dyn Curve> {
        let &Station { cores, service_us } = station;
        match self.distribution {
            Distribution::Exponential => Box::new(MmcCurve { service_us, cores }),
            other => Box::new(QueueCurve {
                service_us,
                cores: f64::from(cores),
                variability: (1.0 + other.squared_variation()) / 2.0,
            }),
        }
    }

    fn run(&self) -> Run {
        let (requests, warm_up) = (SIMULATED, SIMULATED_WARM_UP);
        let service = self.distribution.simulated();
        Run { rate_rps: self.rate_rps, requests, warm_up, service }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::small_pool;

    use super::*;

    fn pool(distribution: Distribution) -> Pool {
        Pool::new(&small_pool(), Duration::from_millis(30), distribution, 0.7, 1)
    }

    #[test]
    fn the_rate_is_the_load_asked_for() {
        let pool = pool(Distribution::Exponential);
        assert!((pool.capacity_rps() - 10.9 / 0.03).abs() < 1e-9);
        assert!((pool.rate_rps - 0.7 * 10.9 / 0.03).abs() < 1e-9);
        let capacity: f64 = pool.testbed().backends.iter().map(BackendSpec::capacity_rps).sum();
        assert!((capacity - pool.capacity_rps()).abs() < 1e-9);
    }

    #[test]
    fn the_best_split_lies_between_equal_weights_and_the_limit() {
        let pool = pool(Distribution::Exponential);
        let best = pool.best_split().unwrap();
        // The slowest gets less than its part of the capacity, the largest more.
        let sum: u32 = best.iter().sum();
        let share = |i: usize| f64::from(best[i]) / f64::from(sum);
        assert!(share(1) < 0.7 / 10.9 && share(5) > 4.4 / 10.9, "{best:?}");
        // In proportion to capacity, which is good, but not the best.
        let fair = pool.split_ms(&[10, 7, 12, 20, 16, 44]);
        let (split, limit) = (pool.split_ms(&best), pool.limit_ms());
        assert!(limit < split && split < fair, "{limit} {split} {fair}");
    }

    #[test]
    fn distributions_agree_with_what_the_emulator_draws() {
        for (distribution, squared) in [
            (Distribution::Deterministic, 0.0),
            (Distribution::Exponential, 1.0),
            (Distribution::Lognormal, 1.718),
            (Distribution::Bimodal, 4.263),
        ] {
            assert!((distribution.squared_variation() - squared).abs() < 1e-3);
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
            let service = distribution.simulated();
            let mean = (0..200_000).map(|_| service.draw(&mut rng)).sum::<f64>() / 2e5;
            assert!((mean - 1.0).abs() < 0.03, "{distribution:?}: {mean}");
        }
    }
}
