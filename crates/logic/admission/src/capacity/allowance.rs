//! How many more than the cores can work on are let in, so that a core that is done finds the next.
//!
//! A request that was refused for good is *owed*: had there been room, it would have been served by a
//! core that was idle later. Idle core time, as long as something is owed, is thus throughput lost by
//! refusing, `lost = min(owed, ∫ (c − n)⁺ dt / s)`, and the allowance is the least for which
//! `lost ≤ e`, where `e = loss · ρ · completions` and `ρ` is the busy part of the cores: at light load
//! queues are short whatever the limit, and there is no reason to refuse. All are counted since the last
//! change; the allowance
//!
//! * rises when `lost ≥ e + σ·√e + 4`, for losses come in bursts,
//! * falls when `e ≥ lost + σ·√lost + 3` (375 completions without any loss, at 0.8 % and full load),
//!
//! so it stays where it is for as long as chance could explain the difference. It rises with overload
//! and with bursts, and falls to its least where refused requests find room elsewhere: these are not owed.
//! A mean of what was in flight, as in the paper, cannot do that: it only ever goes down.
//!
//! Cost: O(1) per event.

use super::AdaptiveOptions;

/// Standard deviations that chance is granted.
const SIGMA: f64 = 2.0;
/// Losses that prove nothing yet: one burst may bring so many.
const RISE: f64 = 4.0;
/// Losses whose absence proves nothing yet.
const FALL: f64 = 3.0;
/// Losses that may be, after which half of what was counted is forgotten.
const MEMORY: f64 = 30.0;
/// What is let in beyond the cores, in square roots of these, for a queue that forms by chance is of that
/// order: the least, which a core that is done finds at once, the first, and the most.
const LEAST: f64 = 1.0;
const FIRST: f64 = 2.0;
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
    /// Core time that was used, and that there was, seconds.
    busy_s: f64,
    all_s: f64,
}

impl Allowance {
    pub(super) fn new(cores: f64, options: &AdaptiveOptions) -> Self {
        let mut new = Allowance {
            loss: options.loss,
            amount: 0.0,
            owed: 0.0,
            lost: 0.0,
            completions: 0.0,
            busy_s: 0.0,
            all_s: 0.0,
        };
        new.restart(cores);
        new
    }

    /// So many beyond the cores.
    pub(super) fn amount(&self) -> f64 {
        self.amount
    }

    /// What was learned was learned with other cores: begins anew.
    pub(super) fn restart(&mut self, cores: f64) {
        self.change(FIRST * cores.sqrt(), cores);
    }

    /// A request was refused for good.
    pub(super) fn refused(&mut self, cores: f64) {
        self.owed = (self.owed + 1.0).min(OWED * cores);
    }

    /// So many were in flight for so long; one takes a core `service_s`.
    pub(super) fn pass(&mut self, cores: f64, in_flight: f64, seconds: f64, service_s: f64) {
        self.busy_s += in_flight.min(cores) * seconds;
        self.all_s += cores * seconds;
        if self.owed > 0.0 && in_flight < cores {
            let lost = ((cores - in_flight) * seconds / service_s).min(self.owed);
            self.owed -= lost;
            self.lost += lost;
        }
    }

    /// A request was done.
    pub(super) fn complete(&mut self, cores: f64) {
        self.completions += 1.0;
        let load = if self.all_s > 0.0 { self.busy_s / self.all_s } else { 0.0 };
        let may = self.loss * load * self.completions;
        if self.lost >= may + SIGMA * may.sqrt() + RISE {
            self.change(self.amount + (cores.sqrt() / 2.0).round().max(1.0), cores);
        } else if may >= self.lost + SIGMA * self.lost.sqrt() + FALL {
            self.change(self.amount - (self.amount / 4.0).round().max(1.0), cores);
        } else if may > MEMORY {
            for count in [&mut self.lost, &mut self.completions, &mut self.busy_s, &mut self.all_s]
            {
                *count /= 2.0;
            }
        }
    }

    fn change(&mut self, to: f64, cores: f64) {
        let root = cores.sqrt();
        self.amount = to.round().clamp((LEAST * root).round(), (MOST * root).round());
        (self.lost, self.completions, self.busy_s, self.all_s) = (0.0, 0.0, 0.0, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One core, requests of 1 s, busy all the time but for `idle_s` after each; all that is refused
    /// would have been served.
    fn serve(allowance: &mut Allowance, requests: u32, idle_s: f64) {
        for _ in 0..requests {
            allowance.refused(1.0);
            allowance.pass(1.0, 1.0, 1.0, 1.0);
            allowance.pass(1.0, 0.0, idle_s, 1.0);
            allowance.complete(1.0);
        }
    }

    fn allowance() -> Allowance {
        Allowance::new(1.0, &AdaptiveOptions::default())
    }

    #[test]
    fn it_rises_where_refusing_costs_and_falls_where_it_does_not() {
        let mut costly = allowance();
        serve(&mut costly, 200, 0.1);
        assert!(costly.amount() >= 4.0, "{}", costly.amount());
        serve(&mut costly, 100_000, 0.1);
        assert_eq!(costly.amount(), MOST, "and no further");
        let mut free = allowance();
        serve(&mut free, 199, 0.0);
        assert_eq!(free.amount(), 2.0, "chance could explain that");
        serve(&mut free, 2_000, 0.0);
        assert_eq!(free.amount(), LEAST);
    }

    #[test]
    fn it_stays_where_the_loss_is_as_wished() {
        let mut even = allowance();
        serve(&mut even, 50_000, 0.008);
        assert_eq!(even.amount(), FIRST);
    }

    #[test]
    fn what_is_tried_elsewhere_costs_nothing_and_neither_does_idling_unasked() {
        let mut idle = allowance();
        for _ in 0..1_000 {
            idle.pass(1.0, 1.0, 1.0, 1.0);
            idle.pass(1.0, 0.0, 0.1, 1.0);
            idle.complete(1.0);
        }
        assert!(idle.amount() < 2.0, "{}", idle.amount());
    }

    /// Else a few refusals would let everything in, once the traffic ends.
    #[test]
    fn a_refused_request_is_lost_once_however_long_cores_idle() {
        let mut idle = allowance();
        for _ in 0..RISE as u32 - 1 {
            idle.refused(1.0);
        }
        for _ in 0..1_000 {
            idle.pass(1.0, 0.0, 1.0, 1.0);
            idle.complete(1.0);
        }
        assert_eq!(idle.amount(), FIRST);
    }

    #[test]
    fn at_light_load_less_may_be_lost() {
        let mut light = allowance();
        // Busy for a third of the time: 600 completions must lose nothing before it falls.
        for _ in 0..500 {
            light.pass(1.0, 1.0, 1.0, 1.0);
            light.pass(1.0, 0.0, 2.0, 1.0);
            light.complete(1.0);
        }
        assert_eq!(light.amount(), FIRST);
    }
}
