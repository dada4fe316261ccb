use rand::RngCore;

/// How long requests take on one core of speed 1, as multiples of their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServiceTime {
    /// All alike.
    Deterministic,
    /// Memoryless.
    Exponential,
    /// One request in twenty takes nineteen times as long as the others (the mean stays 1).
    Bimodal,
}

impl ServiceTime {
    /// Draws one service time, in multiples of the mean.
    pub fn draw(self, rng: &mut dyn RngCore) -> f64 {
        match self {
            ServiceTime::Deterministic => 1.0,
            ServiceTime::Exponential => exponential(rng),
            ServiceTime::Bimodal => {
                if uniform(rng) < 0.05 {
                    10.0
                } else {
                    10.0 / 19.0
                }
            }
        }
    }
}

/// A number from the half-open interval (0, 1].
pub(crate) fn uniform(rng: &mut dyn RngCore) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// An exponential variate of mean 1.
pub(crate) fn exponential(rng: &mut dyn RngCore) -> f64 {
    -uniform(rng).ln()
}
