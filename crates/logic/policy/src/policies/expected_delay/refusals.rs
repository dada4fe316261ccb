//! What refusals teach: a weight per backend, by which tries are drawn.
//!
//! A try that was refused lowers its backend's weight, one that was admitted raises it, by
//! `g·(admitted − a_i)` in the logarithm, so that each admits the part `a_i = a·(s_i/s)^(2a²)` of its tries,
//! `a` being the pool's mean part and `s_i/s` service time over the pool's. At high load all refuse alike,
//! which is a split by capacity in which larger backends are filled further; at low load, where a try costs
//! nothing, fast ones are tried first.
//!
//! A try whose client gave up after `t` was admitted as far as is known, and the longer it waited the less that is
//! worth: the part `t / 10·S` of a failure (`state/failure.rs`) is as if refused, if that lowers the weight. A
//! backend that hangs refuses nothing, and is found out by nothing else.
//!
//! A backend left alone is forgotten: in a round of the pool in which a backend was not tried its weight goes
//! a step towards the mean. One that refuses all gets about an eighth of its part for that, and is found when
//! it has room again. A backend that joins has the mean.

/// Least gain `g`: a weight remembers about 30 tries.
const GAIN: f32 = 0.03;
/// Logarithms of weights stay within this of 0: a factor of 30.
const SPREAD: f32 = 3.4;
/// What is left of a weight's distance from the mean after a round without a try.
const IDLE_KEPT: f32 = 0.998;

#[derive(Clone, Copy, Debug)]
struct Taught {
    /// The weight's logarithm.
    log: f32,
    tries: f32,
    /// Since the last round.
    tried: bool,
}

/// A weight per backend.
#[derive(Clone, Debug)]
pub(super) struct Refusals {
    taught: Vec<Taught>,
    /// The pool's mean part of tries that are admitted.
    admitted: f32,
    /// Of the logarithms.
    mean: f32,
}

impl Default for Refusals {
    fn default() -> Self {
        Refusals { taught: Vec::new(), admitted: 1.0, mean: 0.0 }
    }
}

impl Refusals {
    /// Makes room for so many backends; never forgets one.
    pub(super) fn grow(&mut self, backends: usize) {
        self.taught.resize(backends, Taught { log: self.mean, tries: 0.0, tried: false });
    }

    pub(super) fn weight(&self, backend: usize) -> f32 {
        self.taught[backend].log.exp()
    }

    /// Learns from a try that was admitted, or was not, by a backend of this service time over the pool's.
    pub(super) fn tried(&mut self, backend: usize, admitted: bool, relative: f32) {
        self.learn(backend, if admitted { 1.0 } else { 0.0 }, self.target(relative));
    }

    /// Learns from a try that was given up, as much of a failure as this.
    pub(super) fn given_up(&mut self, backend: usize, failed: f32, relative: f32) {
        let target = self.target(relative);
        if 1.0 - failed < target {
            self.learn(backend, 1.0 - failed, target);
        }
    }

    /// The part of its tries that a backend of this service time over the pool's should admit.
    fn target(&self, relative: f32) -> f32 {
        let a = self.admitted;
        (a * relative.powf(2.0 * a * a)).clamp(0.02, 0.98)
    }

    fn learn(&mut self, backend: usize, x: f32, target: f32) {
        let Taught { log, tries, tried } = &mut self.taught[backend];
        *tries += 1.0;
        *tried = true;
        let gain = GAIN.max(1.0 / (*tries + 4.0));
        *log = (*log + gain * (x - target)).clamp(-SPREAD, SPREAD);
        self.admitted += (x - self.admitted) * GAIN / self.taught.len().max(1) as f32;
    }

    /// A round of the pool has passed: as many requests as there are backends.
    pub(super) fn round(&mut self, backend: usize) {
        let Some(Taught { log, tried, .. }) = self.taught.get_mut(backend) else { return };
        if !std::mem::take(tried) {
            *log = self.mean + (*log - self.mean) * IDLE_KEPT;
        }
    }

    /// Looks at all of them.
    pub(super) fn review(&mut self) {
        let sum: f32 = self.taught.iter().map(|taught| taught.log).sum();
        self.mean = sum / self.taught.len().max(1) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(backends: usize) -> Refusals {
        let mut refusals = Refusals::default();
        refusals.grow(backends);
        refusals
    }

    #[test]
    fn a_backend_that_refuses_more_than_the_others_weighs_less() {
        let mut refusals = of(3);
        for k in 0..3_000 {
            refusals.tried(0, k % 10 == 0, 1.0);
            refusals.tried(1, k % 2 == 0, 1.0);
            refusals.tried(2, k % 10 != 0, 1.0);
        }
        let [w0, w1, w2] = [0, 1, 2].map(|i| refusals.weight(i));
        assert!(w0 < 0.2 * w1 && w1 < 0.2 * w2, "{w0} {w1} {w2}");
        assert!((refusals.admitted - 0.5).abs() < 0.05, "{}", refusals.admitted);
    }

    #[test]
    fn a_backend_whose_clients_give_up_weighs_less_and_never_more() {
        let mut refusals = of(3);
        (0..300).for_each(|_| (0..3).for_each(|i| refusals.tried(i, true, 1.0)));
        let before = refusals.weight(0);
        (0..300).for_each(|_| refusals.given_up(0, 0.01, 1.0));
        assert_eq!(refusals.weight(0), before, "hardly waited");
        (0..300).for_each(|_| refusals.given_up(0, 1.0, 1.0));
        assert!(refusals.weight(0) < 0.1 * before && refusals.weight(1) >= before);
    }

    #[test]
    fn where_all_refuse_alike_the_fast_are_asked_more() {
        let mut refusals = of(2);
        for k in 0..400 {
            (0..2).for_each(|i| refusals.tried(i, k % 5 != 0, if i == 0 { 0.5 } else { 1.5 }));
        }
        assert!(refusals.weight(0) > 2.0 * refusals.weight(1));
    }

    #[test]
    fn a_backend_not_tried_returns_to_the_mean_and_a_new_one_starts_there() {
        let mut refusals = of(2);
        (0..1_000).for_each(|_| refusals.tried(0, false, 1.0));
        let refused = refusals.weight(0);
        refusals.review();
        refusals.round(0);
        assert_eq!(refusals.weight(0), refused, "it was tried in this round");
        let mean = refusals.mean.exp();
        (0..10_000).for_each(|_| refusals.round(0));
        assert!(refused < 0.1 && (refusals.weight(0) / mean - 1.0).abs() < 0.01);
        refusals.grow(3);
        assert_eq!(refusals.weight(2), mean);
    }
}
