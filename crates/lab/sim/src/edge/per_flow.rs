//! Rivals that pick for each flow by an estimate of every core's load: an exponential mean of 5 ms of the packets sent
//! there, and what the flows just placed will add.

use crate::RandomStream;

/// Weight of the last millisecond in the mean.
const LAST: f64 = 0.2;

/// The estimates.
#[derive(Debug)]
pub(super) struct PerFlow {
    /// How many cores are drawn for each flow; all of them where none.
    drawn: Option<usize>,
    /// Packets per millisecond, and those expected from new flows.
    mean: Vec<f64>,
    pending: Vec<f64>,
    /// Packets per millisecond of a flow in the mean.
    each: f64,
    rng: RandomStream,
}

impl PerFlow {
    pub fn new(cores: usize, drawn: Option<usize>, each: f64, seed: u64) -> Self {
        let nothing = vec![0.0; cores];
        let rng = RandomStream::new(seed, 25);
        PerFlow { drawn, mean: nothing.clone(), pending: nothing, each, rng }
    }

    /// The core of a new flow.
    pub fn pick(&mut self) -> usize {
        let cores = self.mean.len();
        let first = self.rng.index(cores);
        let load = |core: usize| self.mean[core] + self.pending[core];
        let mut best = first;
        match self.drawn {
            Some(drawn) => {
                for _ in 1..drawn {
                    let other = self.rng.index(cores);
                    if load(other) < load(best) {
                        best = other;
                    }
                }
            }
            None => {
                for step in 1..cores {
                    let other = (first + step) % cores;
                    if load(other) < load(best) {
                        best = other;
                    }
                }
            }
        }
        self.pending[best] += self.each;
        best
    }

    /// Packets sent in the last millisecond.
    pub fn millisecond(&mut self, sent: &[u64]) {
        for ((mean, pending), &sent) in self.mean.iter_mut().zip(&mut self.pending).zip(sent) {
            *mean += LAST * (sent as f64 - *mean);
            *pending *= 1.0 - LAST;
        }
    }
}
