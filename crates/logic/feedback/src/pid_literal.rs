//! The PID as the EdgeBalance paper prints it (HotEdge '20, §3), for the record.
//!
//! ```text
//! err = kP (load_i - mean);  sum += kI err dt;  d = kD (err_before - err) dt;  diff = err + sum + d
//! ```
//!
//! The proportional gain multiplies the other terms too; the derivative has its sign turned and is multiplied by dt where a
//! derivative divides, so it hardly acts. Its output is positive for an overloaded core and is therefore subtracted
//! from the weight, which the paper does not say; the floor and the normalisation are ours, without anti-windup.

use crate::balance::{FLOOR, mean_of, normalise, sane};
use crate::pid::Gains;
use crate::{Balancer, CoreLoad};

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct PidLiteral {
    /// Sum and last error of each core.
    state: Vec<(f64, f64)>,
}

impl PidLiteral {
    /// The same over any load, for [`Monitor`](crate::Monitor).
    pub(crate) fn update_by(
        &mut self,
        load: impl Fn(&CoreLoad) -> f64,
        interval: f64,
        cores: &[CoreLoad],
        weights: &mut [f64],
    ) {
        let gains = Gains::PAPER;
        self.state.resize(cores.len(), (0.0, 0.0));
        let mean = mean_of(cores, &load);
        let n = cores.iter().filter(|core| core.serves).count().max(1) as f64;
        for ((core, (sum, before)), weight) in
            cores.iter().zip(&mut self.state).zip(weights.iter_mut())
        {
            if !core.serves {
                (*sum, *before) = (0.0, 0.0);
                continue;
            }
            if *weight <= 0.0 {
                *weight = 1.0 / n;
            }
            let error = gains.p * (sane(load(core)) - mean);
            *sum += gains.i * error * interval;
            let derivative = gains.d * (*before - error) * interval;
            *before = error;
            *weight = (*weight - (error + *sum + derivative)).max(FLOOR);
        }
        normalise(cores, weights, FLOOR);
    }
}

impl Balancer for PidLiteral {
    fn update(&mut self, interval: f64, cores: &[CoreLoad], weights: &mut [f64]) {
        self.update_by(|core| core.predicted, interval, cores, weights);
    }
}
