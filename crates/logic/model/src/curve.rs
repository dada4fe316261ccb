use serde::{Deserialize, Serialize};

/// Mean latency of a backend as a function of the load it is given: non-decreasing, finite below
/// [`Curve::capacity`].
///
/// Load is a share of the traffic (0…1) where rates are not known, and requests per second where they
/// are; a curve does not care, but all curves of one problem must agree.
pub trait Curve {
    /// Mean latency at this load, microseconds.
    fn latency_at(&self, load: f64) -> f64;

    /// The derivative of `load · latency_at(load)`: what one more unit of load costs all clients
    /// together.
    fn marginal_at(&self, load: f64) -> f64;

    /// The load the backend cannot exceed, where latency has no bound.
    fn capacity(&self) -> f64;

    /// The marginal cost never falls as the load grows, by the curve's formula: the solver need not look.
    fn marginal_rises(&self) -> bool {
        false
    }

    /// The load at which the marginal cost is this, and how fast it grows with that cost, where the curve can tell
    /// sooner than a search would. Beyond the costs that it has: the nearest load, which grows by nothing.
    fn load_at_marginal(&self, _marginal: f64) -> Option<(f64, f64)> {
        None
    }

    /// The hyperbola this curve is, if it is one: the solver then uses a closed form.
    fn as_hyperbola(&self) -> Option<Hyperbola> {
        None
    }
}

/// `l(x) = a + b / (c − x)` with `a, b ≥ 0` and `0 ≤ x < c`: the latency of a single-server queue, and
/// within a fraction of a percent of other shapes where it matters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hyperbola {
    /// Latency that load does not change, microseconds.
    pub a: f64,
    /// Microseconds × unit of load.
    pub b: f64,
    /// Capacity, in units of load.
    pub c: f64,
}

impl Curve for Hyperbola {
    fn latency_at(&self, load: f64) -> f64 {
        if load >= self.c { f64::INFINITY } else { self.a + self.b / (self.c - load) }
    }

    fn marginal_at(&self, load: f64) -> f64 {
        if load >= self.c {
            return f64::INFINITY;
        }
        let room = self.c - load;
        self.a + self.b * self.c / (room * room)
    }

    fn capacity(&self) -> f64 {
        self.c
    }

    fn as_hyperbola(&self) -> Option<Hyperbola> {
        Some(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marginal_is_the_derivative_of_load_times_latency() {
        let h = Hyperbola { a: 3.0, b: 7.0, c: 11.0 };
        for x in [0.0, 1.0, 5.0, 10.5] {
            let d = 1e-6;
            let numeric = ((x + d) * h.latency_at(x + d) - x * h.latency_at(x)) / d;
            assert!((numeric / h.marginal_at(x) - 1.0).abs() < 1e-4, "at {x}");
        }
        assert_eq!(h.latency_at(11.0), f64::INFINITY);
        assert_eq!(h.marginal_at(12.0), f64::INFINITY);
    }
}
