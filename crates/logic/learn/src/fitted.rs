//! The curve families as one type, which can be stored.

use plimsoll_model::{Curve, Hyperbola};
use serde::{Deserialize, Serialize};

use crate::{Pchip, Poly2, USABLE_CAPACITY};

/// A shape that curves are fitted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// `a + b/(c − x)`: the default.
    Hyperbola,
    /// Isotonic regression and monotone cubic interpolation.
    Pchip,
    /// Degree-2 regression and running maximum: the paper's.
    Poly2,
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Family::Hyperbola => "hyperbola",
            Family::Pchip => "pchip",
            Family::Poly2 => "poly2",
        })
    }
}

/// A fitted curve of any family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FittedCurve {
    /// `a + b/(c − x)`.
    Hyperbola(Hyperbola),
    /// Monotone cubic through isotonic points.
    Pchip(Pchip),
    /// Running maximum of a parabola.
    Poly2(Poly2),
}

impl FittedCurve {
    /// The family of the curve.
    pub fn family(&self) -> Family {
        match self {
            FittedCurve::Hyperbola(_) => Family::Hyperbola,
            FittedCurve::Pchip(_) => Family::Pchip,
            FittedCurve::Poly2(_) => Family::Poly2,
        }
    }

    /// The same curve with its load axis stretched by `factor > 0`: what was the latency at x is now
    /// that at `factor · x`. For curves over weights when total traffic changes by 1/factor, and for
    /// any curve when the backend's own capacity changes by `factor` (KnapsackLB §4.5).
    pub fn rescaled_load(&self, factor: f64) -> FittedCurve {
        match self {
            FittedCurve::Hyperbola(Hyperbola { a, b, c }) => {
                FittedCurve::Hyperbola(Hyperbola { a: *a, b: b * factor, c: c * factor })
            }
            FittedCurve::Pchip(curve) => FittedCurve::Pchip(curve.rescaled_load(factor)),
            FittedCurve::Poly2(curve) => FittedCurve::Poly2(curve.rescaled_load(factor)),
        }
    }

    /// The greatest load that a plan may give: [`USABLE_CAPACITY`] of the capacity, or the load already served without
    /// loss if that is greater.
    pub fn max_load(&self, largest_seen: f64) -> f64 {
        let capacity = self.capacity();
        let seen = if largest_seen < capacity { largest_seen } else { 0.0 };
        seen.max(USABLE_CAPACITY * capacity)
    }

    fn as_curve(&self) -> &dyn Curve {
        match self {
            FittedCurve::Hyperbola(curve) => curve,
            FittedCurve::Pchip(curve) => curve,
            FittedCurve::Poly2(curve) => curve,
        }
    }
}

impl Curve for FittedCurve {
    fn latency_at(&self, load: f64) -> f64 {
        self.as_curve().latency_at(load)
    }

    fn marginal_at(&self, load: f64) -> f64 {
        self.as_curve().marginal_at(load)
    }

    fn capacity(&self) -> f64 {
        self.as_curve().capacity()
    }

    fn as_hyperbola(&self) -> Option<Hyperbola> {
        self.as_curve().as_hyperbola()
    }
}
