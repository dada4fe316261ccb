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
use crate::controller::Controller;
use crate::gate::trial::moved;
use crate::tuning::gate::worth::{MIN_GAIN, ROUNDED, SHORT};

impl Controller {
    /// Whether the decision moves enough traffic and promises enough gain.
    pub(crate) fn is_worth_it(&self, decision: &Decision) -> bool {
        if self.commitment.decision().is_none() {
            return true;
        }
        if !self.moves(decision, self.spec.min_change) {
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
    pub(crate) fn is_worth_it_when_short(&self, decision: &Decision) -> bool {
        self.moves(decision, SHORT * self.spec.min_change)
    }

    /// Whether the decision moves at least this part of the traffic.
    fn moves(&self, decision: &Decision, part: f64) -> bool {
        let Some(last) = self.commitment.decision() else { return true };
        // Simulated shares are comparable only with those of the same model.
        let before = decision.as_is.as_ref().map_or_else(|| last.shares(), |a| a.shares.clone());
        moved(&before, &decision.shares()) >= part && self.moves_weights(decision, part - ROUNDED)
    }

    /// Whether its weights move this part of the traffic against the weights in force, where shares follow from
    /// weights. (The last decision may have equalled the weights in force only by rounding.)
    fn moves_weights(&self, decision: &Decision, part: f64) -> bool {
        if self.balancer.kind() != MethodKind::Split {
            return true;
        }
        let wanted = decision.wishes.iter().map(|w| (w.id, w.weight)).collect();
        moved(&self.shares_in_force(), &shares(wanted)) >= part
    }

    /// The shares that the weights in force give under a split, over the backends whose weight is known.
    fn shares_in_force(&self) -> Vec<(BackendId, f64)> {
        shares(self.backends.iter().filter_map(|b| Some((b.id, b.planned_weight()?))).collect())
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
        if self.balancer.kind() != MethodKind::Split {
            return None;
        }
        let shares = self.shares_in_force();
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

fn shares(weights: Vec<(BackendId, u32)>) -> Vec<(BackendId, f64)> {
    let sum: f64 = weights.iter().map(|(_, weight)| f64::from(*weight)).sum();
    weights.into_iter().map(|(id, weight)| (id, f64::from(weight) / sum.max(1.0))).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{Method, Nanos};

    use super::*;
    use crate::commit::plan::Wish;
    use crate::spec::{BackendSpec, ServiceSpec};

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

    #[test]
    fn under_an_in_flight_method_a_change_must_gain_more_than_it_risks() {
        let backends = (0..2).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        let leastconn = Method { name: "leastconn".to_owned(), kind: MethodKind::InFlight };
        controller.balancer.set_method(leastconn);
        controller.commitment.adopt(decision([0.9, 0.1], 1e4), None);
        let as_is = AsIs { shares: vec![(BackendId(0), 0.5), (BackendId(1), 0.5)], mean_us: 1e4 };
        let worth = |shares, expected_us| {
            let as_is = Some(as_is.clone());
            controller.is_worth_it(&Decision { as_is, ..decision(shares, expected_us) })
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
        assert!(controller.is_worth_it(&untried), "nothing to compare with");
    }

    #[test]
    fn under_a_split_a_change_is_compared_with_the_weights_in_force_too() {
        let backends = (0..2).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let spec = ServiceSpec::new("shop", backends.collect());
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        let roundrobin = Method { name: "roundrobin".to_owned(), kind: MethodKind::Split };
        controller.balancer.set_method(roundrobin);
        for (b, held) in controller.backends.iter_mut().zip([57, 72]) {
            b.programmed = Some(held);
        }
        // 57 of 129 are 0.442: by rounding that equals the last decision, and nearly the wanted one.
        controller.commitment.adopt(decision([0.452, 0.548], 1e4), None);
        assert!(!controller.is_worth_it(&decision([0.44, 0.56], 1e4)));
        assert!(controller.is_worth_it(&decision([0.43, 0.57], 1e4)));
    }
}
