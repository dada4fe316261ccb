//! How many more than the cores can work on are let in, so that a core that is done finds the next.
//!
//! A request that was refused for good is *owed*: had there been room, it would have been served by a
//! core that was idle later. Idle core time, as long as something is owed, is thus throughput lost by
//! refusing, `lost = min(owed, ∫ (c − n)⁺ dt / s)`, and the allowance is the least for which
//! `lost ≤ loss · completions`. Both are counted since the last change; the allowance
//!
//! * rises when `lost ≥ e + σ·√e + 2`, with `e = loss · completions`,
//! * falls when `e ≥ lost + σ·√lost + 3` (300 completions without any loss, at 1 %),
//!
//! so it stays where it is for as long as chance could explain the difference. It rises with overload
//! and with bursts, and falls towards 0 where refused requests find room elsewhere: these are not owed.
//! A mean of what was in flight, as in the paper, cannot do that: it only ever goes down.
//!
//! Cost: O(1) per event.

use super::AdaptiveOptions;

/// Standard deviations that chance is granted.
const SIGMA: f64 = 2.0;
/// Losses that prove nothing yet.
const RISE: f64 = 2.0;
/// Losses whose absence proves nothing yet.
const FALL: f64 = 3.0;
/// Completions after which half of what was counted is forgotten.
const MEMORY: f64 = 3_000.0;
/// Most that are let in beyond the cores, in square roots of these: a queue that forms by chance is of
/// that order.
const MOST: f64 = 12.0;
/// Most that is owed, in cores.
const OWED: f64 = 8.0;

/// The allowance, and what is counted to judge it.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    loss: f64,
    amount: f64,
    owed: f64,
    lost: f64,
    completions: f64,
}

impl Allowance {
    pub(super) fn new(cores: f64, options: &AdaptiveOptions) -> Self {
        let mut new =
            Allowance { loss: options.loss, amount: 0.0, owed: 0.0, lost: 0.0, completions: 0.0 };
        new.restart(cores);
        new
    }

    /// So many beyond the cores.
    pub(super) fn amount(&self) -> f64 {
        self.amount
    }

    /// What was learned was learned with other cores: begins with two square roots of these.
    pub(super) fn restart(&mut self, cores: f64) {
        self.change(2.0 * cores.sqrt(), cores);
    }

    /// A request was refused for good.
    pub(super) fn refused(&mut self, cores: f64) {
        self.owed = (self.owed + 1.0).min(OWED * cores);
    }

    /// Cores were idle for so many services.
    pub(super) fn idle(&mut self, services: f64) {
        let lost = services.min(self.owed);
        self.owed -= lost;
        self.lost += lost;
    }

    /// A request was done.
    pub(super) fn complete(&mut self, cores: f64) {
        self.completions += 1.0;
        let may = self.loss * self.completions;
        if self.lost >= may + SIGMA * may.sqrt() + RISE {
            self.change(self.amount + (cores.sqrt() / 2.0).round().max(1.0), cores);
        } else if may >= self.lost + SIGMA * self.lost.sqrt() + FALL {
            self.change(self.amount - (self.amount / 4.0).round().max(1.0), cores);
        } else if self.completions > MEMORY {
            self.lost /= 2.0;
            self.completions /= 2.0;
        }
    }

    fn change(&mut self, to: f64, cores: f64) {
        self.amount = to.clamp(0.0, MOST * cores.sqrt()).round();
        (self.lost, self.completions) = (0.0, 0.0);
    }
}
