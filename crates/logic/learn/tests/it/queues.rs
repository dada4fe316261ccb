//! Truths: M/M/c in closed form, a simulated c-core server, and the paper's pool of 30.

use std::collections::{BinaryHeap, VecDeque};

use plimsoll_learn::{InFlightWindow, LONG_BEFORE, Lagged};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A seeded random number generator.
pub fn rng(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

/// Exponential with mean 1.
pub fn exponential(rng: &mut impl Rng) -> f64 {
    -(1.0 - rng.random::<f64>()).ln()
}

/// Standard normal, by Box and Muller.
pub fn normal(rng: &mut impl Rng) -> f64 {
    let radius = (2.0 * exponential(rng)).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}

/// A backend of `cores` whose utilisation is 1 at `capacity`.
#[derive(Clone, Copy, Debug)]
pub struct Mmc {
    pub capacity: f64,
    pub cores: u32,
    pub service_us: f64,
}

impl Mmc {
    pub fn latency(&self, load: f64) -> f64 {
        let utilisation = load / self.capacity;
        if utilisation >= 1.0 {
            return f64::INFINITY;
        }
        let offered = utilisation * f64::from(self.cores);
        let mut blocked = 1.0;
        for k in 1..=self.cores {
            blocked = offered * blocked / (f64::from(k) + offered * blocked);
        }
        let waits = blocked / (1.0 - utilisation * (1.0 - blocked));
        self.service_us * (1.0 + waits / (f64::from(self.cores) * (1.0 - utilisation)))
    }
}

/// 16×1, 8×2, 4×4, 2×8 cores, speeds ±40 %; capacities in shares of the traffic at this load.
pub fn pool(seed: u64, load: f64) -> Vec<Mmc> {
    let mut rng = rng(seed);
    let mut pool = Vec::new();
    for (cores, count) in [(1_u32, 16), (2, 8), (4, 4), (8, 2)] {
        for _ in 0..count {
            let speed = rng.random_range(0.6..1.4);
            let (capacity, service_us) = (f64::from(cores) * speed, 30_000.0 / speed);
            pool.push(Mmc { capacity, cores, service_us });
        }
    }
    let all: f64 = pool.iter().map(|backend| backend.capacity).sum();
    for backend in &mut pool {
        backend.capacity /= all * load;
    }
    pool
}

/// Distribution of service times.
#[derive(Clone, Copy, Debug)]
pub enum Service {
    Exponential,
    Deterministic,
    /// 5 % take 10 times the mean.
    Bimodal,
}

impl Service {
    fn draw(self, mean: f64, rng: &mut impl Rng) -> f64 {
        match self {
            Service::Exponential => mean * exponential(rng),
            Service::Deterministic => mean,
            Service::Bimodal if rng.random::<f64>() < 0.05 => 10.0 * mean,
            Service::Bimodal => mean * 0.5 / 0.95,
        }
    }
}

/// A first-come-first-served server of `cores` under Poisson arrivals.
pub struct Server {
    cores: usize,
    service: Service,
    mean_s: f64,
    now: f64,
    next_arrival: f64,
    waiting: usize,
    /// Finish times of the busy cores, least first, in nanoseconds negated.
    busy: BinaryHeap<std::cmp::Reverse<u64>>,
    is_followed: bool,
    /// In flight at the last polls, the newest first.
    past: VecDeque<u32>,
    rng: Xoshiro256PlusPlus,
}

impl Server {
    pub fn new(cores: usize, service: Service, mean_s: f64, seed: u64) -> Server {
        Server {
            cores,
            service,
            mean_s,
            now: 0.0,
            next_arrival: 0.0,
            waiting: 0,
            busy: BinaryHeap::new(),
            is_followed: false,
            past: VecDeque::new(),
            rng: rng(seed),
        }
    }

    /// Its windows carry the rate it was to get, and completions by the number in flight a service time and long
    /// before.
    pub fn followed(mut self) -> Server {
        self.is_followed = true;
        self
    }

    fn in_flight(&self) -> u32 {
        (self.waiting + self.busy.len()) as u32
    }

    fn begin(&mut self, at: f64) {
        let finish = at + self.service.draw(self.mean_s, &mut self.rng);
        self.busy.push(std::cmp::Reverse((finish * 1e9) as u64));
    }

    /// Runs to `until`; the number of completions on the way.
    fn advance(&mut self, until: f64, rate: f64) -> f64 {
        let mut completed = 0.0;
        loop {
            let finish = self.busy.peek().map_or(f64::INFINITY, |nanos| nanos.0 as f64 / 1e9);
            let next = finish.min(self.next_arrival);
            if next > until {
                self.now = until;
                return completed;
            }
            self.now = next;
            if finish <= self.next_arrival {
                self.busy.pop();
                completed += 1.0;
                if self.waiting > 0 {
                    self.waiting -= 1;
                    self.begin(next);
                }
            } else {
                if self.busy.len() < self.cores {
                    self.begin(next);
                } else {
                    self.waiting += 1;
                }
                self.next_arrival = next + exponential(&mut self.rng) / rate;
            }
        }
    }

    /// Windows of one second at a utilisation, the requests in flight polled every `poll_s`.
    pub fn windows(
        &mut self,
        utilisation: f64,
        seconds: usize,
        poll_s: f64,
    ) -> Vec<InFlightWindow> {
        let rate = utilisation * self.cores as f64 / self.mean_s;
        self.next_arrival = self.now + exponential(&mut self.rng) / rate;
        let polls = (1.0 / poll_s).round() as usize;
        let lag = (self.mean_s / poll_s).ceil() as usize;
        let long = (LONG_BEFORE * self.mean_s / poll_s).ceil() as usize;
        let mut out = Vec::with_capacity(seconds);
        for _ in 0..seconds {
            let start = self.now;
            let mut window = InFlightWindow { seconds: 1.0, ..InFlightWindow::default() };
            let (mut lagged, mut long_lagged) = (Lagged::default(), Lagged::default());
            for poll in 1..=polls {
                let before = self.in_flight();
                let completed = self.advance(start + poll as f64 * poll_s, rate);
                let after = self.in_flight();
                if let Some(&earlier) = self.past.get(lag - 1) {
                    lagged.note(earlier, [before, after], completed, poll_s);
                }
                if let Some(&earlier) = self.past.get(long - 1) {
                    long_lagged.note(earlier, [before, after], completed, poll_s);
                }
                self.past.push_front(before);
                self.past.truncate(long);
                window.completions += completed;
                window.levels.push((after, 1));
            }
            if self.is_followed {
                window.setting = Some(rate);
                (window.lagged, window.long_lagged) = (lagged, Some(long_lagged));
            }
            out.push(window);
        }
        out
    }
}
