//! Durations of connections. A distribution has few values, so that ends of equal durations come in the order of their
//! starts and need no heap.

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use plimsoll_model::Nanos;

/// The web server of the Cheetah paper: milliseconds, and how many of 905 connections last so long. Read
/// off the request list that its authors publish with their experiments (`duration_high.path`, whose
/// `duration` is in microseconds); the counts to about 2 %.
const WEB_SERVER: [(f64, u32); 19] = [
    (1.015, 165),
    (1.969, 40),
    (3.031, 13),
    (4.811, 9),
    (36.184, 54),
    (60.153, 28),
    (75.787, 30),
    (127.945, 18),
    (151.566, 43),
    (203.091, 17),
    (544.234, 57),
    (1_329.675, 90),
    (2_578.524, 37),
    (20_309.176, 58),
    (50_389.626, 65),
    (51_171.730, 38),
    (81_226.735, 54),
    (139_255.612, 61),
    (150_403.355, 28),
];

/// A distribution of few values.
#[derive(Clone, Debug)]
pub struct Durations {
    /// In ascending order.
    values: Vec<Nanos>,
    /// Running sums of their weights.
    ends: Vec<u32>,
}

impl Durations {
    /// These values, milliseconds in ascending order, with these weights.
    pub fn new(values_ms: &[(f64, u32)]) -> Self {
        let nanos = |(ms, _): &(f64, u32)| Nanos((ms * 1e6) as u64);
        let running = |sum: &mut u32, &(_, weight): &(f64, u32)| {
            *sum += weight;
            Some(*sum)
        };
        Durations {
            values: values_ms.iter().map(nanos).collect(),
            ends: values_ms.iter().scan(0, running).collect(),
        }
    }

    /// The web server of the Cheetah paper: half last less than half a second, a third from 20 s to 150 s.
    pub fn web_server() -> Self {
        Self::new(&WEB_SERVER)
    }

    /// The mean, seconds.
    pub fn mean_s(&self) -> f64 {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let weights = self.ends.iter().zip(starts).map(|(end, start)| f64::from(end - start));
        let sum: f64 = self.values.iter().zip(weights).map(|(v, w)| v.0 as f64 / 1e9 * w).sum();
        sum / f64::from(self.total())
    }

    /// The longest.
    pub fn longest(&self) -> Nanos {
        self.values.last().copied().unwrap_or(Nanos::ZERO)
    }

    /// One of them, drawn by weight.
    pub fn sample(&self, rng: &mut Xoshiro256PlusPlus) -> Nanos {
        self.values[self.draw(rng)]
    }

    pub(super) fn values(&self) -> &[Nanos] {
        &self.values
    }

    /// The index of a value, drawn by weight.
    pub(super) fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> usize {
        let point = rng.random_range(0..self.total());
        self.ends.partition_point(|&end| end <= point)
    }

    fn total(&self) -> u32 {
        self.ends.last().copied().unwrap_or(0)
    }
}
