//! Pools of unequal backends, made from a seed.

use plimsoll_model::Hyperbola;
use plimsoll_pack::Choice;
use plimsoll_queueing::QueueCurve;

/// Integer units of weight for the whole traffic.
pub const UNITS: i64 = 1_000_000_000;

/// A small generator (xorshift64).
pub struct Rng(pub u64);

impl Rng {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn within(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.unit()
    }
}

/// The paper's mix of backends (sizes 1:2:4:10 as 16:8:4:2) with speeds ±40 %, at 80 % load.
pub struct Pool {
    /// Latency over the share of the traffic.
    pub curves: Vec<Hyperbola>,
    /// The greatest share of each.
    pub limits: Vec<f64>,
}

impl Pool {
    /// A pool whose shares sum up to 1 at 80 % load.
    pub fn random(backends: usize, rng: &mut Rng) -> Pool {
        let sizes: Vec<f64> = (0..backends)
            .map(|_| {
                let size = match rng.unit() {
                    x if x < 16.0 / 30.0 => 1.0,
                    x if x < 24.0 / 30.0 => 2.0,
                    x if x < 28.0 / 30.0 => 4.0,
                    _ => 10.0,
                };
                size * rng.within(0.6, 1.4)
            })
            .collect();
        let all = sizes.iter().sum::<f64>() * 0.8;
        let curve = |size: f64| {
            let capacity = size / all;
            let idle = 10_000.0 * rng.within(0.8, 1.2);
            let queueing = rng.within(0.05, 0.5);
            Hyperbola { a: idle * (1.0 - queueing), b: idle * queueing * capacity, c: capacity }
        };
        let curves: Vec<Hyperbola> = sizes.into_iter().map(curve).collect();
        let limits = curves.iter().map(|curve| 0.95 * curve.c).collect();
        Pool { curves, limits }
    }

    /// Menus as the paper makes them: equally spaced weights on a quadratic that was fitted to noisy
    /// samples, made non-decreasing; so some are convex, some are not, and some are flat in parts.
    pub fn menus(&self, entries: usize, rng: &mut Rng) -> Vec<Vec<Choice>> {
        let menu = |&limit: &f64| {
            let idle = 10_000.0 * rng.within(0.8, 1.2);
            let (linear, square) = (rng.within(-0.8, 1.0), rng.within(-0.5, 3.0));
            let mut most = 0f64;
            (0..entries)
                .map(|entry| {
                    let x = entry as f64 / (entries - 1) as f64;
                    most = most.max(idle * (1.0 + linear * x + square * x * x));
                    Choice { weight: (limit * x * UNITS as f64).round() as i64, cost: most }
                })
                .collect()
        };
        self.limits.iter().map(menu).collect()
    }
}

/// Queues of 1, 2, 4 and 8 cores with speeds ±40 % and loads of unequal irregularity, and the traffic that fills 80 %
/// of them.
pub fn queues(backends: usize, rng: &mut Rng) -> (Vec<QueueCurve>, f64) {
    let mut queue = || QueueCurve {
        service_us: 30_000.0 / rng.within(0.6, 1.4),
        cores: [1.0, 1.0, 2.0, 4.0, 8.0][(5.0 * rng.unit()) as usize],
        variability: rng.within(0.4, 1.2),
    };
    let all: Vec<QueueCurve> = (0..backends).map(|_| queue()).collect();
    let total = 0.8 * all.iter().map(|q| q.cores * 1e6 / q.service_us).sum::<f64>();
    (all, total)
}
