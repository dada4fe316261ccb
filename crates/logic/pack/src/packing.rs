/// Whether a packing is known to be the best there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The relative gap between the objective and its bound is at most [`Packing::PROVEN`].
    Optimal,
    /// It meets every constraint; a better one is not ruled out.
    Feasible,
}

/// An answer: one weight per backend, in the problem's order.
#[derive(Clone, Debug, PartialEq)]
pub struct Packing<W> {
    /// Whether it is proven.
    pub status: Status,
    /// What was minimised, at these weights; latencies in microseconds.
    pub objective: f64,
    /// No weights that meet the constraints have a lower objective than this.
    pub bound: f64,
    /// `(objective − bound) / |objective|`, 0 when they are equal.
    pub gap: f64,
    /// The weights: the chosen entry's weight for menus, whole units for [`crate::pack_units`], shares
    /// that sum to 1 for curves.
    pub weights: Vec<W>,
    /// How much load the pool cannot take, in the problem's unit of load. When it is some, the weights
    /// are in proportion to what each backend may carry, nothing was optimised, and the objective is
    /// infinite if they exceed a capacity.
    pub short_of_capacity: Option<f64>,
}

impl<W> Packing<W> {
    /// A packing with a relative gap up to this counts as optimal: below it the rounding of the sums
    /// themselves shows.
    pub const PROVEN: f64 = 1e-9;

    /// Judges weights by their objective and bound.
    pub(crate) fn new(objective: f64, bound: f64, weights: Vec<W>) -> Self {
        // A bound above the objective is rounding: both stand for the same number.
        let bound = bound.min(objective);
        let gap = relative_gap(objective, bound);
        let status = if gap <= Self::PROVEN { Status::Optimal } else { Status::Feasible };
        Packing { status, objective, bound, gap, weights, short_of_capacity: None }
    }

    /// Whether no better packing exists.
    pub fn proven(&self) -> bool {
        self.status == Status::Optimal
    }
}

/// `(objective − bound) / |objective|`; 0 when they are equal.
pub(crate) fn relative_gap(objective: f64, bound: f64) -> f64 {
    if objective <= bound {
        return 0.0;
    }
    (objective - bound) / objective.abs().max(f64::MIN_POSITIVE)
}
