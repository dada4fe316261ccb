//! The paper's baseline Monitor (§4): its PID, fed with the busy time that nodes report instead of the model's prediction.
//!
//! Where it fails: a core reports at most 100 %, whatever is offered; reports are late and noisy. A core without a recent
//! report counts as the mean of the others.

use crate::balance::{mean_of, sane};
use crate::{Balancer, CoreLoad, PidLiteral};

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct Monitor {
    pid: PidLiteral,
    known: Vec<CoreLoad>,
}

impl Balancer for Monitor {
    fn update(&mut self, interval: f64, cores: &[CoreLoad], weights: &mut [f64]) {
        self.known.clear();
        let reporting = cores.iter().filter(|core| core.serves && core.reported.is_some());
        self.known.extend(reporting);
        let mean = mean_of(&self.known, |core| core.reported.unwrap_or(0.0));
        let load = |core: &CoreLoad| sane(core.reported.unwrap_or(mean));
        self.pid.update_by(load, interval, cores, weights);
    }
}
