//! The reserve: the weights in the balancer survive the loss of any one server, whether or not the controller is
//! there to react. At least two servers hold weight, and when one of them is lost the others that hold weight can
//! carry the traffic. A server gets weight 0 (it is parked) only beyond that reserve; where no weights could carry
//! the traffic without the largest server, no server is parked.
//!
//! The condition depends on the balancer. A least-connections balancer moves load to any backend with room, so the sum
//! of the capacities counts. A balancer that splits by weights gives the lost server's part to the others in proportion
//! to their weights, so each of them must have capacity for its part of it. `O(n)`.

use plimsoll_model::Nanos;

use crate::backend::Backend;
use crate::commit::plan::Decision;
use crate::tuning::propose::reserve::AFTER_A_LOSS;

/// Whether a least-connections balancer with these weights survives the loss of any one server at this traffic.
pub(crate) fn in_flight_survives(capacity_rps: &[f64], weights: &[u32], rate_rps: f64) -> bool {
    let holds = || capacity_rps.iter().zip(weights).filter(|(_, weight)| **weight > 0);
    let none_parked = holds().count() == capacity_rps.len();
    let rest: f64 = holds().map(|(capacity, _)| capacity).sum();
    let largest = holds().map(|(capacity, _)| *capacity).fold(0.0, f64::max);
    none_parked || (holds().count() >= 2 && rate_rps <= AFTER_A_LOSS * (rest - largest))
}

/// The same for a balancer that splits the traffic in proportion to weights. Backends at the positions `measured` are
/// near their bound on purpose, for seconds only: a loss may overload them.
pub(crate) fn split_survives(
    capacity_rps: &[f64],
    weights: &[u32],
    measured: &[usize],
    rate_rps: f64,
) -> bool {
    let n = capacity_rps.len();
    let holders = weights.iter().filter(|weight| **weight > 0).count();
    if n < 2 {
        return true;
    }
    if holders < 2 {
        return false;
    }
    let total: f64 = weights.iter().map(|w| f64::from(*w)).sum();
    let all: f64 = capacity_rps.iter().sum();
    // Load over capacity per unit of remaining weight: the greatest, and the second greatest.
    let load = |i: usize| rate_rps * f64::from(weights[i]) / capacity_rps[i].max(1e-9);
    let by_load = |a: &usize, b: &usize| load(*a).total_cmp(&load(*b));
    let judged = || (0..n).filter(|i| !measured.contains(i));
    let first = judged().max_by(by_load);
    let second = judged().filter(|i| Some(*i) != first).max_by(by_load);
    (0..n).filter(|&lost| weights[lost] > 0).all(|lost| {
        if rate_rps > AFTER_A_LOSS * (all - capacity_rps[lost]) {
            return holders == n;
        }
        let worst = if first == Some(lost) { second } else { first };
        worst.is_none_or(|i| load(i) <= total - f64::from(weights[lost]))
    })
}

/// Takes positions back from `parked` (in the order in which they were parked) until the weights survive a loss.
pub(crate) fn unpark(capacity_rps: &[f64], parked: &mut Vec<usize>, rate_rps: f64) {
    let survives = |parked: &[usize]| {
        let weights: Vec<u32> =
            (0..capacity_rps.len()).map(|i| u32::from(!parked.contains(&i))).collect();
        in_flight_survives(capacity_rps, &weights, rate_rps)
    };
    while !parked.is_empty() && !survives(parked) {
        parked.pop();
    }
}

/// Moves shares by this part towards those in proportion to `capacity_rps`; those at the positions `measured` stay.
pub(crate) fn blend(
    shares: &[f64],
    capacity_rps: &[f64],
    measured: &[usize],
    part: f64,
) -> Vec<f64> {
    let free = || (0..shares.len()).filter(|i| !measured.contains(i));
    let all = |of: &[f64]| free().map(|i| of[i]).sum::<f64>();
    let per_capacity = all(shares) / all(capacity_rps).max(1e-9);
    let mut moved = shares.to_vec();
    for i in free() {
        moved[i] = (1.0 - part) * shares[i] + part * per_capacity * capacity_rps[i];
    }
    moved
}

/// The pool whose weights must survive the loss of a server.
pub(crate) struct Reserve<'a> {
    pub backends: &'a [Backend],
    pub rate_rps: f64,
    /// Weights give parts of the traffic, and capacities are known well enough to judge each.
    pub by_shares: bool,
}

impl Reserve<'_> {
    fn usable(&self) -> impl Iterator<Item = &Backend> {
        self.backends.iter().filter(|b| b.is_usable())
    }

    /// Whether the weights in force would not survive the loss of a server, as far as known.
    pub fn is_lacking(&self) -> bool {
        let held: Option<Vec<u32>> = self.usable().map(Backend::planned_weight).collect();
        // Plans keep a margin, which may be used up before the next plan.
        held.is_some_and(|held| !self.survives(&held, AFTER_A_LOSS * self.rate_rps))
    }

    /// Whether a decision's weights survive a loss.
    pub fn is_left_by(&self, decision: &Decision) -> bool {
        let weight =
            |b: &Backend| decision.wishes.iter().find(|w| w.id == b.id).map_or(0, |w| w.weight);
        let weights: Vec<u32> = self.usable().map(weight).collect();
        self.survives(&weights, AFTER_A_LOSS * self.rate_rps)
    }

    /// Whether the weights of the usable backends, in their order, survive a loss; true where capacities are unknown.
    pub fn survives(&self, weights: &[u32], rate_rps: f64) -> bool {
        let capacity: Option<Vec<f64>> =
            self.usable().map(|b| b.knowledge.capacity_rps()).collect();
        let Some(capacity) = capacity else { return true };
        if self.by_shares {
            split_survives(&capacity, weights, &[], rate_rps)
        } else {
            in_flight_survives(&capacity, weights, rate_rps)
        }
    }
}

/// No plan leaves all traffic to one server where there are others, whatever it was made for.
pub(crate) fn have_two_hold_weight(now: Nanos, backends: &[Backend], decision: &mut Decision) {
    let wishes = &mut decision.wishes;
    let holders = wishes.iter().filter(|w| w.weight > 0).count();
    let Some(alone) = wishes.iter().find(|w| w.weight > 0).cloned() else { return };
    if wishes.len() < 2 || holders > 1 {
        return;
    }
    let find = |id| backends.iter().find(|b| b.id == id);
    let capacity = |id| find(id).and_then(|b| b.knowledge.capacity_rps());
    for w in wishes.iter_mut().filter(|w| w.weight == 0) {
        let size = capacity(w.id).zip(capacity(alone.id)).map_or(1.0, |(its, all)| its / all);
        let ramp = find(w.id).map_or(1.0, |b| b.ramp(now));
        let weight = f64::from(alone.weight) * size.min(1.0) * ramp;
        w.weight = (weight.round() as u32).max(1);
        "reserve: at least two backends get traffic".clone_into(&mut w.reason);
    }
    let sum: f64 = wishes.iter().map(|w| f64::from(w.weight)).sum();
    wishes.iter_mut().for_each(|w| w.share = f64::from(w.weight) / sum);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_model::BackendId;

    use super::*;
    use crate::commit::plan::Wish;
    use crate::spec::BackendSpec;

    #[test]
    fn at_least_two_servers_hold_weight_where_there_are_two() {
        let split = |c: &[f64], w: &[u32], rate| split_survives(c, w, &[], rate);
        for survives in [in_flight_survives, split] {
            assert!(survives(&[10.0], &[5], 1.0), "there is but one");
            assert!(!survives(&[10.0, 10.0, 10.0], &[5, 0, 0], 0.01));
            assert!(survives(&[10.0, 10.0, 10.0], &[5, 5, 0], 0.01));
        }
    }

    #[test]
    fn remaining_servers_can_carry_the_traffic_or_none_is_parked() {
        let capacity = [10.0, 6.0, 1.0, 1.0];
        assert!(in_flight_survives(&capacity, &[9, 9, 0, 0], 5.0));
        assert!(
            !in_flight_survives(&capacity, &[9, 9, 0, 0], 6.0),
            "the loss of the first leaves 6"
        );
        assert!(in_flight_survives(&capacity, &[9, 9, 1, 0], 6.0));
        assert!(in_flight_survives(&capacity, &[9, 9, 1, 1], 12.0), "no weights could carry that");
        assert!(!in_flight_survives(&capacity, &[9, 9, 1, 0], 12.0));
        assert!(!split_survives(&capacity, &[90, 0, 1, 1], &[], 5.0));
        assert!(!split_survives(&capacity, &[90, 6, 0, 0], &[], 12.0));
        assert!(split_survives(&capacity, &[10, 6, 1, 1], &[], 12.0));
    }

    #[test]
    fn under_a_split_each_remaining_server_has_capacity_for_its_part() {
        let capacity = [10.0, 10.0, 1.0];
        assert!(
            !split_survives(&capacity, &[98, 1, 1], &[], 5.0),
            "half of 5 would go to the third"
        );
        assert!(split_survives(&capacity, &[90, 9, 1], &[], 5.0));
        // The loss of a medium one changes the most loaded one least.
        assert!(!split_survives(&[10.0, 10.0, 10.0, 1.0], &[10, 10, 10, 3], &[], 12.0));
    }

    #[test]
    fn no_more_are_unparked_than_needed_the_last_parked_first() {
        let capacity = [10.0, 6.0, 1.0, 2.0];
        let unparked = |rate| {
            let mut parked = vec![2, 3, 1];
            unpark(&capacity, &mut parked, rate);
            parked
        };
        assert_eq!(unparked(5.0), [2, 3]);
        assert_eq!(unparked(7.0), [2]);
        assert!(unparked(50.0).is_empty());
    }

    #[test]
    fn blending_keeps_the_sum_and_measured_shares() {
        let moved = blend(&[0.7, 0.3, 0.0], &[1.0, 1.0, 2.0], &[0], 0.5);
        let wanted = [0.7, 0.2, 0.1];
        assert!(moved.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9), "{moved:?}");
    }

    #[test]
    fn a_reserve_server_gets_a_weight_on_the_scale_of_the_decision() {
        let mut backends: Vec<Backend> = (0..2)
            .map(|i| {
                Backend::new(
                    &BackendSpec { id: BackendId(i), name: format!("s{i}") },
                    Duration::ZERO,
                )
            })
            .collect();
        backends.iter_mut().for_each(|b| b.programmed = Some(256));
        let wish = |(i, weight): (u32, u32)| Wish {
            id: BackendId(i),
            share: f64::from(weight.min(1)),
            weight,
            expected_us: None,
            reason: String::new(),
        };
        let wishes = [(0, 40), (1, 0)].into_iter().map(wish).collect();
        let mut decision = Decision { wishes, ..Decision::default() };
        have_two_hold_weight(Nanos::ZERO, &backends, &mut decision);
        let given: Vec<(u32, f64)> = decision.wishes.iter().map(|w| (w.weight, w.share)).collect();
        assert_eq!(given, [(40, 0.5), (40, 0.5)]);
    }
}
