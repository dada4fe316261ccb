//! What one backend costs, as a function of its load, for each objective.

use plimsoll_model::{Hyperbola, Objective};

use crate::problem::{CurveBackend, CurveProblem, PackError};

/// Loads stay this part of the capacity below it.
const BELOW_CAPACITY: f64 = 1.0 - 1e-6;
/// Iterations that halve an interval down to rounding, with room to spare.
const MAX_HALVINGS: usize = 100;
/// Loads are found to within this part of the greatest.
const PRECISE: f64 = 1e-15;
/// The most points at which a curve is checked for a rising level.
const CHECKED_POINTS: usize = 64;

/// One backend's part of a sum or maximum, on an interval of loads.
///
/// Its *level* at a load is what all used backends share at the optimum (where the interval's ends do not
/// forbid it): the marginal cost for [`Objective::Traffic`], the slope of the latency for
/// [`Objective::Sum`], the latency itself for [`Objective::Max`].
#[derive(Clone, Copy)]
pub(crate) struct Term<'a> {
    backend: &'a CurveBackend<'a>,
    hyperbola: Option<Hyperbola>,
    /// The least load it may be given.
    pub least: f64,
    /// The most.
    pub most: f64,
    objective: Objective,
    /// The levels at these two: asked of every term at every step, and dear without a closed form.
    pub levels: (f64, f64),
}

/// One term per backend, with all loads allowed that its limit allows. Checks the input.
pub(crate) fn terms<'a>(
    problem: &CurveProblem<'a>,
    objective: Objective,
) -> Result<Vec<Term<'a>>, PackError> {
    if problem.backends.is_empty() {
        return Err(PackError::NoBackends);
    }
    if !(problem.total > 0.0 && problem.total.is_finite()) {
        return Err(PackError::BadTotal);
    }
    if problem.theta.is_some_and(|theta| theta.is_nan() || theta < 0.0) {
        return Err(PackError::BadTheta);
    }
    let check = |(number, backend): (usize, &'a CurveBackend<'a>)| {
        let wrong = |what| Err(PackError::BadCurve { backend: number, what });
        let capacity = backend.curve.capacity();
        if capacity.is_nan() || capacity <= 0.0 {
            return wrong("a capacity above 0 was expected");
        }
        if backend.max_load.is_nan() || backend.max_load < 0.0 {
            return wrong("a greatest load of 0 or more was expected");
        }
        let most = backend.max_load.min(capacity * BELOW_CAPACITY);
        let ends = [backend.curve.latency_at(0.0), backend.curve.latency_at(most)];
        if !most.is_finite() || !ends.iter().all(|latency| latency.is_finite() && *latency >= 0.0) {
            return wrong("finite latencies of 0 or more up to the greatest load were expected");
        }
        let hyperbola = backend.curve.as_hyperbola();
        let mut term = Term { backend, hyperbola, least: 0.0, most, objective, levels: (0.0, 0.0) };
        term.levels = (term.level(0.0), term.level(most));
        Ok(term)
    };
    problem.backends.iter().enumerate().map(check).collect()
}

impl Term<'_> {
    /// The same with loads from `least` up to `most` only.
    pub fn clipped(&self, least: f64, most: f64) -> Self {
        let mut clipped = Term { least, most: self.most.min(most), ..*self };
        if clipped.least != self.least {
            clipped.levels.0 = clipped.level(clipped.least);
        }
        // (For the sum of latencies even the level at 0 depends on the most.)
        if clipped.most != self.most {
            clipped.levels = (clipped.level(clipped.least), clipped.level(clipped.most));
        }
        clipped
    }

    /// Mean latency at a load.
    pub fn latency(&self, load: f64) -> f64 {
        self.backend.curve.latency_at(load)
    }

    /// What the backend adds to the objective: `load · latency` or the latency.
    pub fn cost(&self, load: f64) -> f64 {
        match self.objective {
            Objective::Traffic => load * self.latency(load),
            Objective::Sum | Objective::Max => self.latency(load),
        }
    }

    /// The level at a load.
    pub fn level(&self, load: f64) -> f64 {
        let curve = self.backend.curve;
        match (self.objective, self.hyperbola) {
            (Objective::Traffic, _) => curve.marginal_at(load),
            (Objective::Max, _) => curve.latency_at(load),
            (Objective::Sum, Some(Hyperbola { b, c, .. })) => b / ((c - load) * (c - load)),
            // (load · l)′ = l + load · l′; at load 0 this says nothing, so look a little further.
            (Objective::Sum, None) => {
                let load = load.max(self.most * 1e-6);
                (curve.marginal_at(load) - curve.latency_at(load)) / load
            }
        }
    }

    /// The load at a level, and how fast it grows with the level. Between loads with the same level it
    /// takes any.
    pub fn load_at(&self, level: f64) -> (f64, f64) {
        let objective = self.objective;
        let Some(Hyperbola { a, b, c }) = self.hyperbola else {
            if level <= self.levels.0 || level >= self.levels.1 {
                return (if level <= self.levels.0 { self.least } else { self.most }, 0.0);
            }
            let told = match objective {
                Objective::Traffic => self.backend.curve.load_at_marginal(level),
                Objective::Sum | Objective::Max => None,
            };
            return match told {
                Some((load, growth)) => self.within(load, growth),
                None => self.search_load(level),
            };
        };
        let above = if objective == Objective::Sum { level } else { level - a };
        if above <= 0.0 {
            return (self.least, 0.0); // Under its constant part a curve has no load at all.
        }
        let (room, growth) = match objective {
            Objective::Traffic => {
                let room = (b * c / above).sqrt();
                (room, room / (2.0 * above))
            }
            Objective::Sum => {
                let room = (b / above).sqrt();
                (room, room / (2.0 * above))
            }
            Objective::Max => (b / above, b / (above * above)),
        };
        self.within(c - room, growth)
    }

    fn within(&self, load: f64, growth: f64) -> (f64, f64) {
        if load > self.least && load < self.most {
            (load, growth)
        } else {
            (load.clamp(self.least, self.most), 0.0)
        }
    }

    /// [`Self::load_at`] for a curve without a closed form, at a level strictly between its ends, by Ridders' method (IEEE Trans. Circuits and
    /// Systems 26, 1979): a chord through the logarithms, so to speak, which suits levels that grow as
    /// `1/(c − x)²`. Every step halves the interval at the least; about seven end in rounding.
    fn search_load(&self, level: f64) -> (f64, f64) {
        let (mut low, mut high) = (self.least, self.most);
        let mut below = level - self.levels.0;
        let mut above = self.levels.1 - level;
        let mut found = low;
        for _ in 0..MAX_HALVINGS {
            let middle = 0.5 * (low + high);
            let off = self.level(middle) - level;
            let root = (off * off + below * above).sqrt();
            let nearer = (middle - 0.5 * (high - low) * off / root).clamp(low, high);
            let is_found = (nearer - found).abs() <= PRECISE * self.most;
            found = nearer;
            let off_nearer = self.level(nearer) - level;
            if is_found || off_nearer == 0.0 {
                break;
            }
            for (load, over) in [(middle, off), (nearer, off_nearer)] {
                if over > 0.0 && load < high {
                    (high, above) = (load, over);
                } else if over <= 0.0 && load > low {
                    (low, below) = (load, -over);
                }
            }
            if high - low <= PRECISE * self.most {
                break;
            }
        }
        let aside = 1e-5 * self.most;
        let (left, right) = ((found - aside).max(self.least), (found + aside).min(self.most));
        let rise = self.level(right) - self.level(left);
        let growth = if rise > 0.0 { (right - left) / rise } else { 0.0 };
        (found, growth)
    }

    /// Whether the level never falls as the load grows, so that the waterfilling is exact. A curve
    /// without a closed form is checked at points only.
    pub fn level_rises(&self) -> bool {
        let known = match self.objective {
            Objective::Traffic => self.backend.curve.marginal_rises(),
            Objective::Sum => false,
            Objective::Max => true,
        };
        if self.hyperbola.is_some() || known {
            return true;
        }
        let mut before = f64::NEG_INFINITY;
        (0..=CHECKED_POINTS).all(|point| {
            let load = self.most * point as f64 / CHECKED_POINTS as f64;
            let level = self.level(load);
            let rises = level >= before - 1e-9 * before.abs();
            before = level;
            rises
        })
    }
}
