//! Once per window: curves are fitted again.

use plimsoll_model::Nanos;

use crate::belief::knowledge::Knowledge;
use crate::belief::typical::{self, Typical};
use crate::controller::Controller;
use crate::event::Action;
use crate::show::view::Phase;
use crate::tuning::control::controller::{LIVELY, REFITS, UNHURRIED};
use crate::tuning::observe::traffic::WINDOW;

impl Controller {
    /// Estimates that are typical of the pool's backends.
    pub(crate) fn typical(&self) -> Typical {
        let known = || self.backends.iter().map(|b| &b.knowledge);
        Typical {
            variability: typical::variability(known().filter_map(Knowledge::own_variability)),
            dispersion: typical::dispersion(
                known().filter_map(|k| Some((!k.is_lower_bound(), k.own_dispersion()?))),
            ),
            quotas: known().any(Knowledge::is_held),
        }
    }

    /// Once per window of a second: refits curves, judges errors and looks for changes.
    pub(crate) fn on_window(&mut self, now: Nanos, out: &mut Vec<Action>) {
        self.traffic.note_latencies(self.backends.iter().filter_map(|b| b.recent.latency_us));
        let choice = self.spec.curve;
        // In a large pool the backends take turns, so that no step takes long.
        let settled = self.phase.is_packed();
        let turns_at_most = self.backends.len().div_ceil(REFITS).max(1);
        let turns = turns_at_most * if settled { UNHURRIED } else { 1 };
        let factor = self.spec.latency_factor;
        let typical = self.typical();
        // A curve that no decision will read before the next window need not be refitted.
        let due = self.gate.is_due(now + WINDOW) || self.is_in_distress();
        for (i, b) in self.backends.iter_mut().enumerate() {
            let lively = b.pin.is_some()
                || b.is_over_utilised(factor)
                || b.changed.is_some_and(|(at, _)| now.since(at) < LIVELY)
                || self.phase.is(Phase::Exploring);
            let turns = if lively { turns_at_most } else { turns };
            if (due || !lively) && (i + self.traffic.windows()).is_multiple_of(turns) {
                b.knowledge.refit(choice, typical);
            }
        }
        self.eject_failing(now, out);
        self.correct_underestimates(now, out);
        self.refresh(now, out);
        self.hurry(now);
    }
}
