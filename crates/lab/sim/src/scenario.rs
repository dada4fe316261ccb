//! A scenario, determined by its seed: a pool, its traffic, and the faults that occur. Each seed switches a random part
//! of all faults on, at random rates (swarm testing: Groce et al., ISSTA 2012): if all faults were on all the time,
//! they would hide defects that only show in a quiet period between two faults.

use std::fmt;
use std::time::Duration;

use plimsoll_control::{DriftTest, ProbeRate, ServiceSpec};

use crate::fault::Fault;
use crate::pool::{BackendModel, Method};
use crate::random::RandomStream;

/// The part of the faults that a seed switches on.
const SWITCHED_ON: (f64, f64) = (0.1, 0.6);
/// Mean time between two faults of a kind, seconds, in runs of days …
const EVERY_S: (f64, f64) = (600.0, 14_400.0);
/// … and in runs of minutes.
const OFTEN_S: (f64, f64) = (20.0, 1_200.0);

/// One kind of fault in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disturbance {
    /// The fault.
    pub fault: Fault,
    /// Mean time from the end of one to the beginning of the next, seconds; exponential.
    pub every_s: f64,
    /// Mean time that it lasts, seconds; exponential.
    pub lasts_s: f64,
}

/// How the traffic changes over a day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Mean load, as a part of the pool's capacity.
    pub load: f64,
    /// Amplitude of the daily cycle, as a part of the mean load.
    pub swing: f64,
    /// Amplitude of the random variation per minute, as a part of the mean load.
    pub wobble: f64,
}

/// Intervals of readings, ticks and checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cadence {
    /// Interval of readings; never below the daemon's for the method.
    pub poll: Duration,
    /// Interval of the controller's ticks.
    pub tick: Duration,
    /// Interval of liveness rounds.
    pub round: Duration,
}

impl Cadence {
    /// Readings and liveness rounds as in the daemon; ticks twice as often.
    pub const REQUEST_LEVEL: Cadence = Cadence {
        poll: Duration::ZERO,
        tick: Duration::from_millis(100),
        round: Duration::from_millis(100),
    };
    /// The longest intervals that the controller's own constants permit: a window is a second, and a process without an
    /// event for more than half a second counts as stalled.
    pub const SAMPLE_LEVEL: Cadence = Cadence {
        poll: Duration::from_secs(1),
        tick: Duration::from_millis(500),
        round: Duration::from_secs(1),
    };
}

/// An administrator's settings: two seeds in five have the defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Bound on the spread of the shares.
    pub theta: Option<f64>,
    /// The most by which a share grows in a step while it is learned.
    pub max_step: f64,
    /// The least part of the traffic worth moving.
    pub min_change: f64,
    /// Duration of slow start.
    pub slow_start: Duration,
    /// How changes are distinguished from noise.
    pub drift: DriftTest,
    /// Curves are measured again now and then.
    pub refresh: bool,
    /// The least time between two plans.
    pub min_interval: Duration,
    /// Backends are probed.
    pub probes: bool,
}

impl Settings {
    fn draw(rng: &mut RandomStream, min_interval: Duration) -> Settings {
        let spec = ServiceSpec::new("", Vec::new());
        let by_default = rng.chance(0.4);
        // The same random numbers are drawn whether they are used or not.
        let drawn = Settings {
            theta: Some(rng.between(0.05, 0.5)).filter(|_| rng.chance(0.8)),
            max_step: rng.pick(&[1.2, 1.5, 2.0, 2.0, 4.0]),
            min_change: rng.pick(&[0.01, 0.01, 0.05, 0.1]),
            slow_start: Duration::from_secs(rng.pick(&[0, 3, 10, 30, 60])),
            drift: rng.pick(&[
                DriftTest::Sequential,
                DriftTest::Sequential,
                DriftTest::Sequential,
                DriftTest::Off,
            ]),
            refresh: rng.chance(0.7),
            min_interval,
            probes: true,
        };
        let usual = Settings {
            theta: spec.theta,
            max_step: spec.max_step,
            min_change: spec.min_change,
            slow_start: spec.slow_start,
            drift: spec.drift,
            refresh: spec.refresh,
            min_interval,
            probes: false,
        };
        if by_default { usual } else { drawn }
    }

    /// The specification of a service with these settings.
    pub fn apply(&self, spec: ServiceSpec) -> ServiceSpec {
        ServiceSpec {
            theta: self.theta,
            max_step: self.max_step,
            min_change: self.min_change,
            slow_start: self.slow_start,
            drift: self.drift,
            refresh: self.refresh,
            min_interval: self.min_interval,
            probe: self.probes.then(ProbeRate::default),
            ..spec
        }
    }
}

/// A run's pool, traffic and faults.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The run's seed.
    pub seed: u64,
    /// The backends.
    pub pool: Vec<BackendModel>,
    /// Mean service time at speed 1, microseconds.
    pub service_us: f64,
    /// How the balancer picks.
    pub method: Method,
    /// The weights of the balancer's own configuration.
    pub weights: Vec<u32>,
    /// The traffic over the day.
    pub profile: Profile,
    /// The balancer checks the backends as well and reports dead ones as down.
    pub balancer_checks: bool,
    /// The administrator's settings.
    pub settings: Settings,
    /// The faults.
    pub disturbances: Vec<Disturbance>,
    /// Intervals of readings, ticks and checks.
    pub cadence: Cadence,
}

impl Scenario {
    /// The scenario of this seed.
    pub fn from_seed(seed: u64, cadence: Cadence) -> Self {
        let mut rng = RandomStream::new(seed, 1);
        let backends = 2 + rng.index(7);
        let pool = (0..backends)
            .map(|_| BackendModel {
                cores: rng.pick(&[1, 1, 1, 2, 2, 4, 8]),
                speed: rng.between(0.6, 1.4),
            })
            .collect();
        let same = rng.pick(&[1, 1, 10, 100]);
        let weights = if rng.chance(0.7) {
            vec![same; backends]
        } else {
            (0..backends).map(|_| 1 + rng.index(100) as u32).collect()
        };
        let part = rng.between(SWITCHED_ON.0, SWITCHED_ON.1);
        let often = if cadence == Cadence::SAMPLE_LEVEL { EVERY_S } else { OFTEN_S };
        let mut disturbances = Vec::new();
        for fault in Fault::ALL {
            // The same random numbers are drawn whether a fault is on or not.
            let (on, every_s) = (rng.chance(part), rng.log_between(often.0, often.1));
            let (low, high) = fault.lasts_s();
            let lasts_s = rng.log_between(low, high);
            if on {
                disturbances.push(Disturbance { fault, every_s, lasts_s });
            }
        }
        Scenario {
            seed,
            pool,
            service_us: rng.pick(&[2_000.0, 5_000.0, 5_000.0, 10_000.0]),
            method: rng.pick(&[Method::RoundRobin, Method::LeastConn]),
            weights,
            profile: Profile {
                load: rng.between(0.15, 0.8),
                swing: if rng.chance(0.5) { rng.between(0.1, 0.6) } else { 0.0 },
                wobble: if rng.chance(0.5) { rng.between(0.01, 0.2) } else { 0.0 },
            },
            balancer_checks: rng.chance(0.5),
            settings: {
                let min_interval = Duration::from_secs(rng.pick(&[1, 1, 2, 5]));
                Settings::draw(&mut rng, min_interval)
            },
            disturbances,
            cadence,
        }
    }

    /// The pool's capacity with all backends healthy, requests per second.
    pub fn capacity_rps(&self) -> f64 {
        self.pool.iter().map(|b| b.capacity_rps(self.service_us)).sum()
    }

    /// The same scenario without a kind of fault; all else is unchanged.
    #[must_use]
    pub fn without(mut self, fault: Fault) -> Self {
        self.disturbances.retain(|d| d.fault != fault);
        self
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {:?}, {} backends, {:.0} ms, {:.0} req/s of {:.0} ± {:.0} %, wobble {:.0} %, \
             balancer checks: {}",
            self.seed,
            self.method,
            self.pool.len(),
            self.service_us / 1e3,
            self.profile.load * self.capacity_rps(),
            self.capacity_rps(),
            self.profile.swing * 100.0,
            self.profile.wobble * 100.0,
            self.balancer_checks,
        )?;
        let s = &self.settings;
        writeln!(
            f,
            "  theta {:?}, max_step {}, min_change {}, min_interval {:?}, slow_start {:?}, drift {:?}, refresh {}",
            s.theta, s.max_step, s.min_change, s.min_interval, s.slow_start, s.drift, s.refresh,
        )?;
        for (i, (b, w)) in self.pool.iter().zip(&self.weights).enumerate() {
            writeln!(f, "  s{i}: {} cores at {:.2}, weight {w}", b.cores, b.speed)?;
        }
        for d in &self.disturbances {
            let (every, lasts) = (d.every_s, d.lasts_s);
            writeln!(f, "  {} every {every:.0} s for {lasts:.0} s", d.fault)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_determines_a_scenario_and_seeds_differ() {
        let of = |seed| Scenario::from_seed(seed, Cadence::SAMPLE_LEVEL);
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    #[test]
    fn a_hundred_seeds_use_every_fault_and_none_always() {
        let mut seen: BTreeSet<Fault> = BTreeSet::new();
        for seed in 0..100 {
            let on = Scenario::from_seed(seed, Cadence::SAMPLE_LEVEL).disturbances;
            assert!(on.len() < Fault::ALL.len());
            seen.extend(on.iter().map(|d| d.fault));
        }
        assert_eq!(seen.len(), Fault::ALL.len());
    }
}
