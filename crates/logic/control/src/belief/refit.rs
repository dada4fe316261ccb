//! Once per window: curves are fitted again.

use plimsoll_model::Nanos;

use crate::backend::Backend;
use crate::belief::typical::Typical;
use crate::spec::ServiceSpec;
use crate::tuning::control::controller::{LIVELY, REFITS, UNHURRIED};

/// What the pool is doing while curves are fitted.
pub(crate) struct Round {
    /// The number of the window.
    pub window: usize,
    /// A decision will read the curves before the next window.
    pub is_due: bool,
    pub is_packed: bool,
    pub is_exploring: bool,
}

/// Refits curves. In a large pool the backends take turns, so that no step takes long.
pub(crate) fn refit(now: Nanos, spec: &ServiceSpec, backends: &mut [Backend], round: &Round) {
    let turns_at_most = backends.len().div_ceil(REFITS).max(1);
    let turns = turns_at_most * if round.is_packed { UNHURRIED } else { 1 };
    let typical = Typical::of(backends);
    for (i, b) in backends.iter_mut().enumerate() {
        let lively = b.pin.is_some()
            || b.is_over_utilised(spec.latency_factor)
            || b.changed.is_some_and(|(at, _)| now.since(at) < LIVELY)
            || round.is_exploring;
        let turns = if lively { turns_at_most } else { turns };
        // A curve that no decision will read before the next window need not be refitted.
        if (round.is_due || !lively) && (i + round.window).is_multiple_of(turns) {
            b.knowledge.refit(spec.curve, typical);
        }
    }
}
