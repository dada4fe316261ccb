use plimsoll_model::Curve;

/// One weight that a backend could be given, and what that costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The weight, in integer units of the caller's choosing; not negative.
    pub weight: i64,
    /// Its cost, finite; usually microseconds of latency.
    pub cost: f64,
}

/// One weight per backend out of its menu, `Σ weight ≥ target`.
#[derive(Clone, Copy, Debug)]
pub struct MenuProblem<'a> {
    /// One menu per backend, in any order, with any costs.
    pub menus: &'a [Vec<Choice>],
    /// What the weights must sum up to, at the least.
    pub target: i64,
    /// The greatest allowed difference between the heaviest and the lightest chosen weight.
    pub theta: Option<i64>,
}

/// A backend with a latency curve.
#[derive(Clone, Copy)]
pub struct CurveBackend<'a> {
    /// Latency over load.
    pub curve: &'a dyn Curve,
    /// The most load it may be given. Loads within a millionth of the curve's capacity are never
    /// given, whatever this says.
    pub max_load: f64,
}

/// Shares of a total load for backends with curves; the shares sum up to 1.
#[derive(Clone, Copy)]
pub struct CurveProblem<'a> {
    /// The backends that can carry it.
    pub backends: &'a [CurveBackend<'a>],
    /// The load to share out, in the unit of the curves: 1 where load is a share of the traffic,
    /// requests per second where rates are known.
    pub total: f64,
    /// The greatest allowed difference between the largest and the smallest share.
    pub theta: Option<f64>,
}

/// Where the menu solver stops. It stops at whichever comes first, and says what it has proven by then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// The relative gap that is good enough. From [`Effort::MANY_BACKENDS`] backends on it is at least
    /// [`Effort::MANY_BACKENDS_GAP`]: there the last digits cost far more than all the others.
    pub gap: f64,
    /// The most partial solutions kept side by side: bounds the memory (about 200 bytes each, history included).
    pub states: usize,
    /// The most partial solutions made in all: bounds the time (about 10 ns each).
    pub work: usize,
}

impl Effort {
    /// From here on a pool counts as very large.
    pub const MANY_BACKENDS: usize = 10_000;
    /// The gap that ends the search in a very large pool.
    pub const MANY_BACKENDS_GAP: f64 = 1e-6;

    /// The gap to reach in a pool of this size.
    pub(crate) fn gap_for(&self, backends: usize) -> f64 {
        if backends >= Self::MANY_BACKENDS {
            self.gap.max(Self::MANY_BACKENDS_GAP)
        } else {
            self.gap
        }
    }
}

impl Default for Effort {
    /// Proven to 1e-9, within about 80 MB and half a second.
    fn default() -> Self {
        Effort { gap: 1e-9, states: 1 << 18, work: 40_000_000 }
    }
}

/// Why there is no packing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PackError {
    /// There is no backend to give load to.
    #[error("there are no backends")]
    NoBackends,
    /// A menu without entries.
    #[error("backends[{backend}].menu: at least one entry was expected")]
    EmptyMenu {
        /// Position of the backend.
        backend: usize,
    },
    /// A menu entry with a negative weight.
    #[error("backends[{backend}].menu[{entry}].weight: an integer of 0 or more was expected")]
    BadWeight {
        /// Position of the backend.
        backend: usize,
        /// Position in its menu.
        entry: usize,
    },
    /// A menu entry with a cost that is no number or infinite.
    #[error("backends[{backend}].menu[{entry}].cost: a finite number was expected")]
    BadCost {
        /// Position of the backend.
        backend: usize,
        /// Position in its menu.
        entry: usize,
    },
    /// The sums over the menus do not fit a 64-bit integer, or a finite number.
    #[error("the sum of the greatest {what} does not fit 64 bits: use larger units")]
    Overflow {
        /// Of what the sum was taken.
        what: &'static str,
    },
    /// A curve that answers with no number, or a capacity or limit that is none.
    #[error("backends[{backend}]: {what}")]
    BadCurve {
        /// Position of the backend.
        backend: usize,
        /// What was expected.
        what: &'static str,
    },
    /// The total load is not a positive number.
    #[error("the total load must be a positive number")]
    BadTotal,
    /// θ is negative or no number.
    #[error("theta must be 0 or more")]
    BadTheta,
    /// A share is negative or no number, or all are zero.
    #[error("shares must be 0 or more, and one of them more")]
    BadShares,
    /// The range of weights holds no weight above 0.
    #[error("the range of weights must contain a positive weight")]
    BadRange,
    /// The number of units is 0.
    #[error("there must be at least one unit to share out")]
    BadUnits,
    /// `traffic` asked of menus: their costs already are what is to be summed.
    #[error("objective traffic needs curves: a menu's cost already says what is to be summed")]
    TrafficOnMenus,
    /// The weights cannot reach the target.
    #[error("short of capacity: {needed} needed, {reachable} reachable, {} missing", needed - reachable)]
    Infeasible {
        /// What the weights must sum up to.
        needed: f64,
        /// The most they can, under θ where it is given.
        reachable: f64,
    },
    /// θ is too small whatever the target.
    #[error("theta {theta} is too small: the menus lie at least {least} apart")]
    ThetaTooSmall {
        /// What was asked for.
        theta: f64,
        /// The least θ that leaves every backend an entry.
        least: f64,
    },
}
