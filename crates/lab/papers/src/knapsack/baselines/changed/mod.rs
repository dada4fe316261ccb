//! Every method through a change of pool or traffic (§6.4, §6.5, appendix B), open clients.
//!
//! The methods are not informed. Those with weights keep them, but for a dead backend, which the balancer's own
//! health check takes out, HAProxy's as it comes: every two seconds, down after three failures. The simulated
//! best static split learns of it at once, and is packed anew by the true curves.
//!
//! ```text
//! simulated.rs   all of them, with the controller in charge of Plimsoll's
//! emulated.rs    those that HAProxy has
//! show.rs        their table
//! ```

mod emulated;
mod show;
mod simulated;

use plimsoll_sim::BackendModel;

use super::weights::{Known, given_and_packed};
use super::{Method, Setting, lanes};
use crate::{Context, Failure, Provenance};

pub use show::{before_and_after, notes, table};

/// What requests to thirty emulated backends take, microseconds: so that the machine has capacity for four lanes.
pub const EMULATED_US: f64 = 120_000.0;
/// When the balancer's own health check takes out a dead backend, seconds after its death.
const HEALTH_CHECK_S: f64 = 5.0;
/// What counts as the first seconds after a change.
const FIRST_S: f64 = 10.0;

/// What happens to a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Happening {
    /// These die.
    pub dies: Vec<usize>,
    /// These go on with a part of their speed.
    pub slows: Vec<(usize, f64)>,
    /// How many times as many requests come; 1 where nothing changes about that.
    pub traffic: f64,
}

impl Happening {
    /// The setting afterwards, without the dead, with the place that each backend had before.
    fn after(&self, setting: &Setting) -> (Setting, Vec<usize>) {
        let left: Vec<usize> = (0..setting.pool.len()).filter(|i| !self.dies.contains(i)).collect();
        let mut after = setting.clone();
        for &(i, part) in &self.slows {
            after.pool[i].speed *= part;
        }
        after.pool = left.iter().map(|&i| after.pool[i]).collect();
        let capacity: f64 =
            after.pool.iter().map(|b: &BackendModel| b.capacity_rps(setting.service_us)).sum();
        after.load = self.traffic * setting.rate_rps() / capacity;
        (after, left)
    }
}

/// How long each part takes, seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length {
    /// Until Plimsoll has learned.
    pub learn_s: f64,
    /// Until queues are as they will be.
    pub warm_up_s: f64,
    /// What is measured before the change.
    pub before_s: f64,
    /// From the change until all has settled.
    pub settle_s: f64,
    /// What is measured from then on.
    pub later_s: f64,
}

/// One method through one change.
#[derive(Clone, Debug, PartialEq)]
pub struct Through {
    /// The method.
    pub method: &'static Method,
    /// Where the numbers come from.
    pub provenance: Provenance,
    /// Clients' mean before, milliseconds.
    pub before_ms: Option<f64>,
    /// In the first ten seconds after.
    pub first_ms: Option<f64>,
    /// Once all has settled.
    pub later_ms: Option<f64>,
    /// Requests without an answer, from the change on.
    pub lost: u64,
    /// Some backend is asked for more than it can serve once all has settled; none where that is not known.
    pub overload: Option<bool>,
}

/// How long to simulate and to emulate.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// In simulated time.
    pub simulated: Length,
    /// In real time.
    pub emulated: Length,
}

impl Lengths {
    /// What the figures take.
    pub fn of(context: &Context) -> Self {
        let length = |learn_s, warm_up_s, before_s, settle_s, later_s| Length {
            learn_s,
            warm_up_s,
            before_s,
            settle_s,
            later_s,
        };
        Lengths {
            simulated: context
                .pick(length(40.0, 10.0, 10.0, 10.0, 10.0), length(400.0, 60.0, 30.0, 60.0, 120.0)),
            emulated: context
                .pick(length(1.0, 0.3, 0.5, 0.5, 0.7), length(60.0, 5.0, 10.0, 15.0, 15.0)),
        }
    }
}

/// All methods in simulation, then those that HAProxy has behind real ones, their requests taking
/// `emulated_us` in the mean: longer than simulated ones where the machine would not bear as many as the
/// pool. Progress goes from `part.0` to `part.1`.
pub fn through(
    context: &Context,
    setting: &Setting,
    happening: &Happening,
    emulated_us: f64,
    part: (f64, f64),
) -> Result<Vec<Through>, Failure> {
    let between = part.0 + 0.2 * (part.1 - part.0);
    let lengths = Lengths::of(context);
    let weights = known(context, setting)?;
    let simulated_part = (part.0, between);
    let mut rows =
        simulated::run(context, setting, happening, (&weights, lengths.simulated), simulated_part)?;
    let real = Setting { service_us: emulated_us, ..setting.clone() };
    let methods = lanes(context.quick);
    let emulated_part = (between, part.1);
    rows.extend(emulated::run(
        context,
        &real,
        happening,
        (&methods, &weights, lengths.emulated),
        emulated_part,
    )?);
    Ok(rows)
}

/// Weights of before the change.
fn known(context: &Context, setting: &Setting) -> Result<Known, Failure> {
    let size = super::Size::of(context);
    given_and_packed(setting, &setting.arena(size.requests), size.round_s)
}

#[cfg(test)]
mod tests {
    use super::super::thirty;
    use super::*;

    #[test]
    fn the_load_afterwards_is_that_of_the_pool_that_is_left() {
        let before = thirty(1);
        let happening = Happening { dies: vec![24, 25], slows: vec![(26, 0.75)], traffic: 1.1 };
        let (after, left) = happening.after(&before);
        assert_eq!((after.pool.len(), left[24]), (28, 26));
        assert!((after.rate_rps() / before.rate_rps() - 1.1).abs() < 1e-9);
        let capacity = |s: &Setting| s.rate_rps() / s.load * s.service_us / 1e6;
        assert!((capacity(&before) - capacity(&after) - 9.0).abs() < 1e-9);
    }
}
