//! A textbook discrete PID on each core's distance from the mean predicted load.
//!
//! ```text
//! e = load_i - mean        positive: overloaded, so the output is subtracted
//! w_i -= (kP e + kI Σ e dt + kD (e - e_before)) / n
//! ```
//!
//! Gains of the paper (§3): kP 0.6, kI 0.5 per second, kD 0.125, at 30 ms. The derivative is taken per interval: over
//! dt = 30 ms, kD / dt would be a gain of 4 on noise. The weight itself sums up the output, so there is one integration
//! more than a textbook's plant has: stable for few cores, slow, and unstable for many (see `docs/edge-policies.md`).
//! Anti-windup: while a weight is clamped to the floor or to all, an error that pushes on is not summed up.

use crate::balance::{FLOOR, mean_of, normalise, sane};
use crate::{Balancer, CoreLoad};

/// The gains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gains {
    /// Proportional.
    pub p: f64,
    /// Integral, per second.
    pub i: f64,
    /// Derivative, per interval.
    pub d: f64,
}

impl Gains {
    /// The paper's.
    pub const PAPER: Gains = Gains { p: 0.6, i: 0.5, d: 0.125 };
}

/// The policy, with the state of each core's controller.
#[derive(Clone, Debug)]
pub struct Pid {
    gains: Gains,
    state: Vec<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    sum: f64,
    before: f64,
    serves: bool,
}

impl Default for Pid {
    fn default() -> Self {
        Pid::new(Gains::PAPER)
    }
}

impl Pid {
    /// With these gains.
    pub fn new(gains: Gains) -> Self {
        Pid { gains, state: Vec::new() }
    }

    /// What the integral of this core's error has come to, core-seconds.
    pub fn integral(&self, core: usize) -> f64 {
        self.state.get(core).map_or(0.0, |state| state.sum)
    }
}

impl Balancer for Pid {
    fn update(&mut self, interval: f64, cores: &[CoreLoad], weights: &mut [f64]) {
        self.state.resize(cores.len(), State::default());
        let mean = mean_of(cores, |core| core.predicted);
        let n = cores.iter().filter(|core| core.serves).count().max(1) as f64;
        for ((core, state), weight) in cores.iter().zip(&mut self.state).zip(weights.iter_mut()) {
            let error = sane(core.predicted) - mean;
            if !core.serves {
                *state = State::default();
                continue;
            }
            if !state.serves {
                // It joins with an equal share and no past.
                *state = State { sum: 0.0, before: error, serves: true };
                *weight = if *weight > 0.0 { *weight } else { 1.0 / n };
            }
            let sum = state.sum + error * interval;
            let change =
                self.gains.p * error + self.gains.i * sum + self.gains.d * (error - state.before);
            state.before = error;
            let wanted = *weight - change / n;
            if (wanted > FLOOR || error < 0.0) && (wanted < 1.0 || error > 0.0) {
                state.sum = sum;
            }
            *weight = wanted.clamp(FLOOR, 1.0);
        }
        normalise(cores, weights, FLOOR);
    }
}
