//! The power of N choices ([`PowerOfN`]) among the backends whose CPU is less busy than `cpu_threshold_percent`;
//! among all when there is none. O(N log n), more often the more are over it.
//!
//! Source: the HAProxy report's CPU-aware random (its future work), which patches HAProxy's `random`: that
//! compares two. One choice is a plain draw: until the next reading it gives a small backend as much as a
//! large one. How busy a CPU is, backends tell with responses or probes ([`crate::ServerLoad::cpu`]);
//! whoever watches them from outside tells it as the answer to a probe. What is older than `load_age_ms`
//! counts no more: a backend over the threshold gets nothing, so no response would ever tell that it is
//! idle again. When all are over it, the least busy is not preferred: news is shared by all balancers, and
//! all would run to the same backend.

use std::time::Duration;

use plimsoll_model::Nanos;
use rand::RngCore;

use super::PowerOfN;
use crate::state::{Closed, Taken};
use crate::{Finish, Policy, Probing, Request, ServerLoad, Settings};

/// Of a few drawn among those whose CPU has room, the fewest requests in flight per weight.
pub struct CpuRandom {
    draws: PowerOfN,
    threshold: f32,
    max_age: Duration,
    busy: Closed,
    told: Vec<Nanos>,
    /// Before this, no backend's report is too old.
    next_expiry: Nanos,
}

impl CpuRandom {
    /// Over backends of these weights; heeds `choices`, `draw`, `cpu_threshold_percent` and `load_age_ms`.
    pub fn new(weights: &[u32], settings: &Settings) -> Self {
        let mut policy = CpuRandom {
            draws: PowerOfN::new(weights, settings),
            threshold: settings.cpu_threshold_percent as f32 / 100.0,
            max_age: Duration::from_millis(settings.load_age_ms),
            busy: Closed::default(),
            told: Vec::new(),
            next_expiry: Nanos(u64::MAX),
        };
        policy.grow(weights.len());
        policy
    }

    fn grow(&mut self, backends: usize) {
        if backends > self.told.len() {
            self.told.resize(backends, Nanos::ZERO);
            self.busy.grow(backends);
        }
    }

    fn hear(&mut self, backend: usize, load: ServerLoad, now: Nanos) {
        if let Some(cpu) = load.cpu {
            self.told[backend] = now;
            self.busy.set(backend, cpu >= self.threshold);
            self.next_expiry = self.next_expiry.min(now + self.max_age);
        }
    }

    fn forget(&mut self, now: Nanos) {
        if now < self.next_expiry {
            return;
        }
        self.next_expiry = Nanos(u64::MAX);
        for (backend, &told) in self.told.iter().enumerate() {
            if self.busy.contains(backend) {
                let expiry = told + self.max_age;
                if expiry <= now {
                    self.busy.set(backend, false);
                } else {
                    self.next_expiry = self.next_expiry.min(expiry);
                }
            }
        }
    }
}

impl Policy for CpuRandom {
    fn set_weights(&mut self, weights: &[u32]) {
        self.draws.set_weights(weights);
        self.grow(weights.len());
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        self.forget(now);
        if !self.busy.is_empty() {
            let picked = self.draws.pick_of(Taken::new(request).and(&self.busy), now, rng);
            if picked.is_some() {
                return picked;
            }
        }
        self.draws.pick(request, now, rng)
    }

    fn on_start(&mut self, backend: usize, now: Nanos) {
        self.draws.on_start(backend, now);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.draws.on_finish(backend, finish, now);
        if let Some(load) = finish.load {
            self.hear(backend, load, now);
        }
    }

    fn probing(&self) -> Probing {
        Probing::Periodic
    }

    fn on_probe(&mut self, backend: usize, load: ServerLoad, asked: Nanos) {
        self.hear(backend, load, asked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn shares(policy: &mut CpuRandom, now: Nanos) -> [f64; 3] {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut count = [0u32; 3];
        for _ in 0..40_000 {
            count[policy.pick(&Request::default(), now, &mut rng).unwrap()] += 1;
        }
        count.map(|c| f64::from(c) / 40_000.0)
    }

    fn tell(policy: &mut CpuRandom, backend: usize, cpu: f32, ms: u64) {
        let load = ServerLoad { cpu: Some(cpu), ..ServerLoad::default() };
        policy.on_probe(backend, load, Nanos(ms * 1_000_000));
    }

    fn near(got: [f64; 3], due: [f64; 3]) -> bool {
        got.iter().zip(due).all(|(g, d)| (g - d).abs() < 0.01 && (d > 0.0 || *g == 0.0))
    }

    #[test]
    fn a_busy_backend_gets_nothing_until_its_report_is_old() {
        let settings = Settings { choices: 1, ..Settings::default() };
        let mut policy = CpuRandom::new(&[1, 1, 2], &settings);
        let at = |ms: u64| Nanos(ms * 1_000_000);
        tell(&mut policy, 0, 0.79, 0);
        tell(&mut policy, 2, 0.8, 0);
        assert!(near(shares(&mut policy, at(10)), [0.5, 0.5, 0.0]));
        tell(&mut policy, 0, 0.9, 500);
        tell(&mut policy, 1, 0.95, 500);
        let all = [0.25, 0.25, 0.5];
        assert!(near(shares(&mut policy, at(600)), all), "all are busy");
        assert!(near(shares(&mut policy, at(1_100)), [0.0, 0.0, 1.0]), "2's news is old");
        tell(&mut policy, 0, 0.2, 1_200);
        assert!(near(shares(&mut policy, at(1_200)), [1.0 / 3.0, 0.0, 2.0 / 3.0]));
        assert!(near(shares(&mut policy, at(1_500)), all));
    }

    #[test]
    fn of_two_with_room_the_one_with_fewer_in_flight() {
        let mut policy = CpuRandom::new(&[1, 1, 1], &Settings::default());
        let now = Nanos::ZERO;
        (0..2).for_each(|i| policy.on_start(i, now));
        assert!(near(shares(&mut policy, now), [1.0 / 6.0, 1.0 / 6.0, 2.0 / 3.0]));
        tell(&mut policy, 2, 0.9, 0);
        assert!(near(shares(&mut policy, now), [0.5, 0.5, 0.0]), "the emptiest is busy");
        policy.on_finish(1, &Finish::success(Duration::from_millis(1)), now);
        assert!(near(shares(&mut policy, now), [0.0, 1.0, 0.0]));
    }
}
