//! M/M/c: Poisson arrivals, exponential service, `c` equal cores, one queue.
//!
//! `W = S + C(c, a)·S / (c − a)`, `a = λ·S`, with `C` the Erlang C formula. Exact; costs O(c).

use plimsoll_model::Curve;

/// The probability that an arrival must wait in an M/M/c queue offered `a = λ·S` erlangs (Erlang C).
/// 1 when `a ≥ c`.
pub fn erlang_c(cores: u32, offered: f64) -> f64 {
    let c = f64::from(cores);
    if offered >= c {
        return 1.0;
    }
    // Erlang B by its recurrence, which neither overflows nor loses digits.
    let mut blocking = 1.0;
    for k in 1..=cores {
        blocking = offered * blocking / (f64::from(k) + offered * blocking);
    }
    blocking / (1.0 - (offered / c) * (1.0 - blocking))
}

/// The latency of an M/M/c backend over its rate (requests per second).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MmcCurve {
    /// Mean service time on one core, microseconds.
    pub service_us: f64,
    /// Cores.
    pub cores: u32,
}

impl Curve for MmcCurve {
    fn latency_at(&self, load: f64) -> f64 {
        if load >= self.capacity() {
            return f64::INFINITY;
        }
        let offered = load.max(0.0) * self.service_us / 1e6;
        let room = f64::from(self.cores) - offered;
        self.service_us * (1.0 + erlang_c(self.cores, offered) / room)
    }

    fn marginal_at(&self, load: f64) -> f64 {
        if load >= self.capacity() {
            return f64::INFINITY;
        }
        let d = (1e-5 * self.capacity()).min((self.capacity() - load) * 0.5);
        let (lo, hi) = ((load - d).max(0.0), load + d);
        (hi * self.latency_at(hi) - lo * self.latency_at(lo)) / (hi - lo)
    }

    fn capacity(&self) -> f64 {
        f64::from(self.cores) * 1e6 / self.service_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_of_erlang_c() {
        // M/M/1: the probability to wait is the utilisation.
        assert!((erlang_c(1, 0.7) - 0.7).abs() < 1e-12);
        // Tables of Erlang C: 8 cores offered 5.6 erlangs.
        assert!((erlang_c(8, 5.6) - 0.270).abs() < 2e-3, "{}", erlang_c(8, 5.6));
        assert_eq!(erlang_c(4, 4.0), 1.0);
    }

    #[test]
    fn one_core_is_the_textbook_queue() {
        let curve = MmcCurve { service_us: 30_000.0, cores: 1 };
        let rate = 0.8 / 0.03;
        assert!((curve.latency_at(rate) - 150_000.0).abs() < 1e-6);
        // d(λW)/dλ = S/(1−ρ)².
        assert!((curve.marginal_at(rate) / (30_000.0 / 0.04) - 1.0).abs() < 1e-4);
        assert_eq!(curve.latency_at(34.0), f64::INFINITY);
    }
}
