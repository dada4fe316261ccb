//! Hysteresis: whether a regular decision for a known pool is worth programming.
//!
//! A change must move `min_change` of the traffic, and its expected mean response time must be below that of the
//! weights in force by [`MIN_GAIN`] and by its risk: `Σ (share gained)⁺ · (relative error of the capacity)`. Under a
//! split the expectation for the weights in force is read off the curves; under an in-flight method both were
//! simulated on the same model with the same random numbers (`search`). Decisions without a search (a backend is
//! overloaded, in slow start or measured) have nothing to compare and are not held back.
//!
//! Short of capacity, curves predict no finite time, and load given to the wrong backend is lost: a change that moves
//! [`SHORT`] of `min_change` is programmed.

use plimsoll_model::{BackendId, Curve, MethodKind};

use crate::backend::Backend;
use crate::commit::plan::{AsIs, Decision};
use crate::gate::trial::{moved, shares_of};
use crate::tuning::gate::worth::{MIN_GAIN, ROUNDED, SHORT};

/// What a new decision is held against.
pub(crate) struct InForce<'a> {
    pub backends: &'a [Backend],
    /// The last decision, if there was one: without it any decision is worth programming.
    pub decision: Option<&'a Decision>,
    pub kind: MethodKind,
    /// The part of the traffic that a change must move.
    pub min_change: f64,
}

impl InForce<'_> {
    /// Whether the decision moves enough traffic and promises enough gain.
    pub fn is_beaten_by(&self, decision: &Decision) -> bool {
        if self.decision.is_none() {
            return true;
        }
        if !self.is_moved_by(decision, self.min_change) {
            return false;
        }
        let as_is = decision.as_is.clone().or_else(|| self.split_as_is(decision.rate_rps));
        match (as_is, decision.expected_us) {
            (Some(now), Some(then)) => {
                then < now.mean_us * (1.0 - MIN_GAIN - self.risk(decision, &now))
            }
            _ => true,
        }
    }

    /// The same for a pool that is short of capacity.
    pub fn is_beaten_when_short_by(&self, decision: &Decision) -> bool {
        self.is_moved_by(decision, SHORT * self.min_change)
    }

    /// Whether the decision moves at least this part of the traffic.
    fn is_moved_by(&self, decision: &Decision, part: f64) -> bool {
        let Some(last) = self.decision else { return true };
        // Simulated shares are comparable only with those of the same model.
        let before = decision.as_is.as_ref().map_or_else(|| last.shares(), |a| a.shares.clone());
        moved(&before, &decision.shares()) >= part && self.moves_weights(decision, part - ROUNDED)
    }

    /// Whether its weights move this part of the traffic against the weights in force, where shares follow from
    /// weights. (The last decision may have equalled the weights in force only by rounding.)
    fn moves_weights(&self, decision: &Decision, part: f64) -> bool {
        if self.kind != MethodKind::Split {
            return true;
        }
        let wanted: Vec<_> = decision.wishes.iter().map(|w| (w.id, w.weight)).collect();
        moved(&self.shares(), &shares_of(&wanted)) >= part
    }

    /// The shares that the weights in force give under a split, over the backends whose weight is known.
    fn shares(&self) -> Vec<(BackendId, f64)> {
        let held = self.backends.iter().filter_map(|b| Some((b.id, b.planned_weight()?)));
        shares_of(&held.collect::<Vec<_>>())
    }

    /// The risk of a change: the traffic that it moves goes to backends whose capacity is known only to within its
    /// error.
    fn risk(&self, decision: &Decision, now: &AsIs) -> f64 {
        let gains = |b: &Backend| {
            let held = now.shares.iter().find(|(id, _)| *id == b.id).map_or(0.0, |(_, s)| *s);
            let wish = decision.wishes.iter().find(|w| w.id == b.id)?;
            Some((wish.share - held).max(0.0) * b.knowledge.error().min(1.0))
        };
        self.backends.iter().filter_map(gains).sum()
    }

    /// The expectation of the curves for the weights in force, under a split.
    fn split_as_is(&self, rate_rps: f64) -> Option<AsIs> {
        if self.kind != MethodKind::Split {
            return None;
        }
        let shares = self.shares();
        if shares.len() < self.backends.len() {
            return None;
        }
        let mut mean_us = 0.0;
        for (b, (_, share)) in self.backends.iter().zip(&shares).filter(|(_, (_, s))| *s > 0.0) {
            mean_us += share * b.knowledge.shape_to_pack()?.latency_at(share * rate_rps);
        }
        Some(AsIs { shares, mean_us })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::commit::plan::Wish;
    use crate::spec::BackendSpec;

    fn decision(shares: [f64; 2], expected_us: f64) -> Decision {
        let wish = |(i, share): (usize, f64)| Wish {
            id: BackendId(i as u32),
            share,
            weight: (share * 100.0) as u32,
            expected_us: None,
            reason: String::new(),
        };
        let wishes = shares.into_iter().enumerate().map(wish).collect();
        Decision { wishes, expected_us: Some(expected_us), ..Decision::default() }
    }

    fn backends() -> [Backend; 2] {
        [0, 1].map(|i| {
            let spec = BackendSpec { id: BackendId(i), name: format!("s{i}") };
            Backend::new(&spec, Duration::ZERO)
        })
    }

    fn in_force<'a>(
        backends: &'a [Backend],
        decision: &'a Decision,
        kind: MethodKind,
    ) -> InForce<'a> {
        InForce { backends, decision: Some(decision), kind, min_change: 0.01 }
    }

    #[test]
    fn under_an_in_flight_method_a_change_must_gain_more_than_it_risks() {
        let (backends, last) = (backends(), decision([0.9, 0.1], 1e4));
        let in_force = in_force(&backends, &last, MethodKind::InFlight);
        let as_is = AsIs { shares: vec![(BackendId(0), 0.5), (BackendId(1), 0.5)], mean_us: 1e4 };
        let worth = |shares, expected_us| {
            let as_is = Some(as_is.clone());
            in_force.is_beaten_by(&Decision { as_is, ..decision(shares, expected_us) })
        };
        // Both capacities are unknown: moving 10 % of the traffic risks 10 % of the mean.
        assert!(!worth([0.6, 0.4], 0.95e4));
        assert!(worth([0.6, 0.4], 0.85e4));
        assert!(
            !worth([0.502, 0.498], 0.5e4),
            "held against what is in force, not the last decision"
        );
        assert!(!worth([0.52, 0.48], 1.0e4), "it gains nothing");
        let untried = decision([0.6, 0.4], 2e4);
        assert!(in_force.is_beaten_by(&untried), "nothing to compare with");
    }

    #[test]
    fn under_a_split_a_change_is_compared_with_the_weights_in_force_too() {
        let mut backends = backends();
        for (b, held) in backends.iter_mut().zip([57, 72]) {
            b.programmed = Some(held);
        }
        // 57 of 129 are 0.442: by rounding that equals the last decision, and nearly the wanted one.
        let last = decision([0.452, 0.548], 1e4);
        let in_force = in_force(&backends, &last, MethodKind::Split);
        assert!(!in_force.is_beaten_by(&decision([0.44, 0.56], 1e4)));
        assert!(in_force.is_beaten_by(&decision([0.43, 0.57], 1e4)));
    }
}
