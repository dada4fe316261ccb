//! The pool at sample level: requests are not simulated, only readings of the balancer.
//!
//! The number in flight at a backend with arrival rate `λ` is drawn from the stationary law of M/M/c ([`Law`]) and
//! stays what it was with probability `e^(−dt/relaxation)`, which preserves both the law and its memory. Starts are
//! Poisson with mean `λ·dt`, completions are starts minus growth: Little's law and `X = v·E[min(n, c)]` hold on
//! average, which is what the controller learns from. Above 97 % of the capacity, and with a backlog, the queue is
//! simulated: it changes by the difference of two Poisson counts. A step costs about 0.1 µs per backend, whatever the
//! traffic.
//!
//! Under leastconn the traffic is split so that requests in flight are in proportion to the weights; that an idle
//! server comes first whatever its weight is simulated at request level only.

use plimsoll_model::{
    BackendId, BalancerReport, FailureKind, Nanos, Outcome, ServerReport, ServerStatus, Traffic,
};

use crate::law::{BUSIEST, Law};
use crate::pool::{BackendModel, Method};
use crate::pool_model::{Condition, PoolModel};
use crate::random::RandomStream;

/// Requests beyond this many in flight at a backend fail.
const MOST_IN_FLIGHT: u64 = 4_000;
/// Duration of an error answer, seconds.
const ERROR_S: f64 = 0.001;
/// Clients wait this long for a hanging backend, seconds.
const PATIENCE_S: f64 = 10.0;
/// Steps are at most this long, so that growing queues are followed.
const LONGEST_STEP_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug)]
struct Station {
    model: BackendModel,
    pace: f64,
    condition: Condition,
    status: ServerStatus,
    weight: u32,
    in_flight: u64,
    started_total: u64,
    errors_total: u64,
    answered_total: u64,
    /// Its arrival rate, requests per second.
    lambda: f64,
    law: Option<Law>,
}

impl Station {
    fn takes_traffic(&self) -> bool {
        self.weight > 0 && matches!(self.status, ServerStatus::Up | ServerStatus::Starting)
    }
}

/// A pool in which readings are sampled.
#[derive(Clone, Debug)]
pub struct SampledPool {
    now: Nanos,
    service_us: f64,
    method: Method,
    rate_rps: f64,
    generation: u64,
    stations: Vec<Station>,
    /// The split of the traffic has to be computed again.
    unshared: bool,
    rng: RandomStream,
}

impl SampledPool {
    /// A pool of these backends, equal weights, no traffic yet.
    pub fn new(pool: &[BackendModel], service_us: f64, method: Method, seed: u64) -> Self {
        let station = |&model: &BackendModel| Station {
            model,
            pace: 1.0,
            condition: Condition::Well,
            status: ServerStatus::Up,
            weight: 1,
            in_flight: 0,
            started_total: 0,
            errors_total: 0,
            answered_total: 0,
            lambda: 0.0,
            law: None,
        };
        SampledPool {
            now: Nanos::ZERO,
            service_us,
            method,
            rate_rps: 0.0,
            generation: 1,
            stations: pool.iter().map(station).collect(),
            unshared: true,
            rng: RandomStream::new(seed, 100),
        }
    }

    /// Completions of one busy core per second.
    fn speed(&self, i: usize) -> f64 {
        let s = &self.stations[i];
        s.model.speed * s.pace * 1e6 / self.service_us
    }

    /// Splits the traffic over the backends.
    fn share(&mut self) {
        self.unshared = false;
        let takes: Vec<bool> = self.stations.iter().map(Station::takes_traffic).collect();
        let parts: Vec<f64> = match self.method {
            Method::RoundRobin => self
                .stations
                .iter()
                .zip(&takes)
                .map(|(s, &takes)| if takes { f64::from(s.weight) } else { 0.0 })
                .collect(),
            Method::LeastConn => self.parts_in_flight(&takes),
        };
        let sum: f64 = parts.iter().sum();
        for (s, part) in self.stations.iter_mut().zip(parts) {
            s.lambda = if sum > 0.0 { self.rate_rps * part / sum } else { 0.0 };
        }
    }

    /// The rates at which requests in flight are in proportion to the weights: bisection on the number in flight per
    /// weight.
    fn parts_in_flight(&self, takes: &[bool]) -> Vec<f64> {
        let rates = |per_weight: f64| -> Vec<f64> {
            (0..self.stations.len())
                .map(|i| {
                    if !takes[i] {
                        return 0.0;
                    }
                    let target = per_weight * f64::from(self.stations[i].weight);
                    self.rate_at(i, target)
                })
                .collect()
        };
        let (mut low, mut high) = (1e-6f64, 1e5f64);
        for _ in 0..28 {
            let middle = (low * high).sqrt();
            let sum: f64 = rates(middle).iter().sum();
            if sum < self.rate_rps { low = middle } else { high = middle }
        }
        rates(high)
    }

    /// The rate at which a backend has this many in flight on average. Inverts
    /// `n = c·ρ + ρ^e/(1 − ρ)`, `e = √(2(c + 1))` (Sakasegawa), by bisection.
    fn rate_at(&self, i: usize, in_flight: f64) -> f64 {
        let s = &self.stations[i];
        match s.condition {
            Condition::Well => {}
            Condition::Hangs => return in_flight / PATIENCE_S,
            Condition::FailsFast | Condition::FailsClients | Condition::Dead => {
                return in_flight / ERROR_S;
            }
        }
        let c = f64::from(s.model.cores);
        let exponent = (2.0 * (c + 1.0)).sqrt();
        let (mut low, mut high) = (0.0f64, 1.0f64);
        for _ in 0..16 {
            let rho = 0.5 * (low + high);
            let n = c * rho + rho.powf(exponent) / (1.0 - rho).max(1e-9);
            if n < in_flight { low = rho } else { high = rho }
        }
        high * c * self.speed(i)
    }

    fn step(&mut self, i: usize, seconds: f64) {
        let speed = self.speed(i);
        let s = &mut self.stations[i];
        let rng = &mut self.rng;
        let arrived = rng.count(s.lambda * seconds);
        let (started, errors, in_flight) = (s.started_total, s.errors_total, s.in_flight);
        match s.condition {
            Condition::Dead | Condition::FailsFast | Condition::FailsClients => {
                s.started_total += arrived;
                s.errors_total += arrived;
                s.in_flight = 0;
            }
            Condition::Hangs => {
                s.started_total += arrived;
                s.in_flight += arrived;
                let lost = rng.count(s.in_flight as f64 * seconds / PATIENCE_S).min(s.in_flight);
                s.in_flight -= lost;
                s.errors_total += lost;
            }
            Condition::Well => s.serve(arrived, speed, seconds, rng),
        }
        if s.in_flight > MOST_IN_FLIGHT {
            s.errors_total += s.in_flight - MOST_IN_FLIGHT;
            s.in_flight = MOST_IN_FLIGHT;
        }
        let errors = s.errors_total - errors;
        let left = s.started_total - started + in_flight - s.in_flight;
        s.answered_total += match s.condition {
            Condition::Dead | Condition::Hangs => 0,
            Condition::FailsFast | Condition::FailsClients => errors,
            Condition::Well => left.saturating_sub(errors),
        };
    }
}

impl Station {
    fn serve(&mut self, arrived: u64, speed: f64, seconds: f64, rng: &mut RandomStream) {
        let cores = self.model.cores;
        let fits = |law: &Law| law.lambda == self.lambda && law.speed == speed;
        if !self.law.as_ref().is_some_and(fits) {
            self.law = Some(Law::new(self.lambda, speed, cores));
        }
        let Some(law) = &self.law else { return };
        self.started_total += arrived;
        let is_calm = law.utilisation() < BUSIEST && self.in_flight as f64 <= law.high();
        self.in_flight = if is_calm {
            let drawn = if rng.chance(law.memory(seconds)) {
                self.in_flight
            } else {
                u64::from(law.draw(rng))
            };
            // No more than were there or arrived.
            drawn.min(self.in_flight + arrived)
        } else {
            let busy = (self.in_flight + arrived).min(u64::from(cores)) as f64;
            let there = self.in_flight + arrived;
            there - rng.count(busy * speed * seconds).min(there)
        };
    }
}

impl PoolModel for SampledPool {
    fn now(&self) -> Nanos {
        self.now
    }

    fn advance(&mut self, to: Nanos) {
        while self.now < to {
            if self.unshared {
                self.share();
            }
            let step = (to.0 - self.now.0).min(LONGEST_STEP_NS);
            self.now = Nanos(self.now.0 + step);
            for i in 0..self.stations.len() {
                self.step(i, step as f64 / 1e9);
            }
        }
    }

    fn len(&self) -> usize {
        self.stations.len()
    }

    fn report(&self) -> BalancerReport {
        let servers = self.stations.iter().enumerate().map(|(i, s)| ServerReport {
            backend: BackendId(i as u32),
            weight: s.weight,
            status: s.status,
            checked: false,
            in_flight: s.in_flight as u32,
            queued: 0,
            started_total: s.started_total,
            errors_total: s.errors_total,
            answered_total: Some(s.answered_total),
            response_times: None,
        });
        BalancerReport {
            at: self.now,
            method: self.method.describe(),
            generation: self.generation,
            traffic: Traffic::Counted,
            servers: servers.collect(),
        }
    }

    fn weight(&self, i: usize) -> u32 {
        self.stations[i].weight
    }

    fn set_weights(&mut self, weights: &[(usize, u32)]) {
        for &(i, weight) in weights {
            self.stations[i].weight = weight;
        }
        self.unshared = true;
    }

    fn condition(&self, i: usize) -> Condition {
        self.stations[i].condition
    }

    fn set_condition(&mut self, i: usize, condition: Condition) {
        let s = &mut self.stations[i];
        if condition == Condition::Dead && s.condition != Condition::Dead {
            s.errors_total += s.in_flight;
            s.in_flight = 0;
        }
        s.condition = condition;
        self.unshared = true;
    }

    fn set_status(&mut self, i: usize, status: ServerStatus) {
        self.stations[i].status = status;
        self.unshared = true;
    }

    fn set_pace(&mut self, i: usize, pace: f64) {
        self.stations[i].pace = pace;
        self.unshared = true;
    }

    fn set_rate(&mut self, rate_rps: f64) {
        self.rate_rps = rate_rps;
        self.unshared = true;
    }

    fn restart(&mut self, weights: &[u32], method: Method) {
        self.generation += 1;
        self.method = method;
        for (s, &weight) in self.stations.iter_mut().zip(weights) {
            s.weight = weight;
            s.started_total = s.in_flight;
            s.errors_total = 0;
        }
        self.unshared = true;
    }

    fn probe(&mut self, i: usize) -> (Outcome, f64) {
        let speed = self.speed(i);
        let s = &self.stations[i];
        let cores = u64::from(s.model.cores);
        let waits = (s.in_flight + 1).saturating_sub(cores) as f64 / cores as f64;
        let failed = match s.condition {
            Condition::Well | Condition::FailsClients => None,
            Condition::FailsFast => Some(FailureKind::Status),
            Condition::Hangs => Some(FailureKind::Timeout),
            Condition::Dead => Some(FailureKind::Refused),
        };
        let latency_us = (self.rng.exponential(1.0) + waits) / speed * 1e6;
        (failed.map_or(Outcome::Success, Outcome::Failure), latency_us)
    }

    fn capacity_rps(&self, i: usize) -> f64 {
        f64::from(self.stations[i].model.cores) * self.speed(i)
    }

    fn rate_rps(&self) -> f64 {
        self.rate_rps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::Curve;

    /// Mean in flight and completions per second of every backend over this time.
    fn observe(pool_model: &mut SampledPool, seconds: u64) -> Vec<(f64, f64)> {
        let n = pool_model.len();
        let (mut area, from) = (vec![0.0; n], pool_model.report());
        for _ in 0..seconds {
            let to = Nanos(pool_model.now().0 + 1_000_000_000);
            pool_model.advance(to);
            for (a, s) in area.iter_mut().zip(pool_model.report().servers) {
                *a += f64::from(s.in_flight);
            }
        }
        let to = pool_model.report();
        let rate = |i: usize| {
            let started = to.servers[i].started_total - from.servers[i].started_total;
            started as f64 / seconds as f64
        };
        (0..n).map(|i| (area[i] / seconds as f64, rate(i))).collect()
    }

    #[test]
    fn littles_law_gives_the_response_time_of_the_curve() {
        let pool = [BackendModel { cores: 1, speed: 1.0 }, BackendModel { cores: 4, speed: 0.7 }];
        let mut pool_model = SampledPool::new(&pool, 30_000.0, Method::RoundRobin, 5);
        pool_model.set_rate(80.0);
        pool_model.set_weights(&[(0, 26), (1, 74)]);
        let seen = observe(&mut pool_model, 40_000);
        for (model, (in_flight, rate)) in pool.iter().zip(seen) {
            let exact = model.curve(30_000.0).latency_at(rate);
            let ratio = in_flight / rate * 1e6 / exact;
            assert!((ratio - 1.0).abs() < 0.05, "{model:?}: {ratio}");
        }
    }

    #[test]
    fn overloaded_backend_builds_up_a_backlog_and_drains_it() {
        let pool = [BackendModel { cores: 2, speed: 1.0 }];
        let mut pool_model = SampledPool::new(&pool, 50_000.0, Method::RoundRobin, 5);
        pool_model.set_rate(50.0);
        pool_model.advance(Nanos(60_000_000_000));
        let piled = f64::from(pool_model.report().servers[0].in_flight);
        assert!((piled / 600.0 - 1.0).abs() < 0.3, "{piled} of 10 a second for a minute");
        pool_model.set_rate(20.0);
        pool_model.advance(Nanos(100_000_000_000));
        assert!(pool_model.report().servers[0].in_flight < 60);
    }

    #[test]
    fn under_leastconn_requests_in_flight_follow_the_weights() {
        let pool = [BackendModel { cores: 2, speed: 1.0 }, BackendModel { cores: 2, speed: 0.5 }];
        let mut pool_model = SampledPool::new(&pool, 20_000.0, Method::LeastConn, 9);
        pool_model.set_rate(90.0);
        pool_model.set_weights(&[(0, 100), (1, 50)]);
        let seen = observe(&mut pool_model, 20_000);
        let ratio = seen[0].0 / seen[1].0;
        assert!((ratio / 2.0 - 1.0).abs() < 0.1, "{ratio}");
        assert!((seen[0].1 + seen[1].1 - 90.0).abs() < 1.0);
    }

    #[test]
    fn dead_backend_fails_requests_and_drained_backend_gets_none() {
        let pool = [BackendModel { cores: 1, speed: 1.0 }; 3];
        let mut pool_model = SampledPool::new(&pool, 20_000.0, Method::RoundRobin, 9);
        pool_model.set_rate(30.0);
        pool_model.set_condition(0, Condition::Dead);
        pool_model.set_status(1, ServerStatus::Drain);
        pool_model.advance(Nanos(100_000_000_000));
        let servers = pool_model.report().servers;
        assert_eq!(servers[0].started_total, servers[0].errors_total);
        assert!(servers[0].started_total > 1_000);
        assert_eq!((servers[1].started_total, servers[2].errors_total), (0, 0));
    }
}
