//! Between two decisions the weights of a split follow the backlogs: a backend with more requests in flight than its
//! fair part of all that are in flight gets fewer of the next ones, until it has caught up.
//!
//! With fixed weights, noise piles up requests at one backend while another is idle, and every error of a capacity
//! estimate makes a queue that grows. For the next interval, in which `x` requests are planned for a backend that could
//! serve `y` more, one with `n` in flight whose fair part is `f` gets `x + (f − n)·m/(m + y)`, `m = max(f, n)`: of a
//! difference only the part counts that will still be there, because a backlog of `m` lasts about `m/y` intervals. A
//! backlog that all have in common moves nothing: the differences add up to zero. `O(n)` per interval.
//!
//! It has no effect where an interval is much longer than a backlog lasts, and costs nothing there.

use plimsoll_model::{BackendId, PlanEntry};

use crate::backend::Backend;
use crate::commit::plan::{Decision, Wish};
use crate::gate::trial::{moved, shares_of};
use crate::tuning::propose::backlog::SWEEPS;
use crate::tuning::propose::reserve::AFTER_A_LOSS;

/// A weight that corrects for a backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrected {
    /// The planned weight.
    pub planned: u32,
    /// The weight held in its place.
    pub held: u32,
}

/// A backend with weight.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Serving {
    /// Its planned part of the traffic; all add up to one.
    share: f64,
    /// Expected requests in flight, relative to the others.
    expected: f64,
    in_flight: f64,
    /// Its spare capacity in the same unit as `share`.
    spare: f64,
    /// It may get more than planned, because its capacity is known.
    grows: bool,
}

impl Serving {
    /// Upper bound of its part of the traffic.
    fn most(&self) -> f64 {
        let capacity = if self.grows { self.share + self.spare } else { 0.0 };
        self.share.max(AFTER_A_LOSS * capacity)
    }
}

/// The part of the traffic for each backend in an interval with this many arrivals.
fn corrected_shares(pool: &[Serving], arrivals: f64) -> Vec<f64> {
    let all: f64 = pool.iter().map(|b| b.in_flight).sum();
    let expected: f64 = pool.iter().map(|b| b.expected).sum();
    let wanted = |b: &Serving| {
        let planned = b.share * arrivals;
        let fair = all * b.expected / expected;
        let most = fair.max(b.in_flight);
        let stays = if most > 0.0 { most / (most + b.spare * arrivals) } else { 0.0 };
        (planned + (fair - b.in_flight) * stays).max(0.0) / arrivals
    };
    let mut shares: Vec<f64> = pool.iter().map(wanted).collect();
    let mut full = vec![false; pool.len()];
    for _ in 0..SWEEPS {
        let sum = |shares: &[f64], of: bool| -> f64 {
            shares.iter().zip(&full).filter(|(_, full)| **full == of).map(|(share, _)| share).sum()
        };
        let scale = (1.0 - sum(&shares, true)) / sum(&shares, false);
        if !(scale > 0.0 && scale.is_finite()) {
            break;
        }
        for ((share, full), b) in shares.iter_mut().zip(&mut full).zip(pool) {
            if !*full {
                *share *= scale;
                *full = *share >= b.most();
                *share = share.min(b.most());
            }
        }
    }
    // What is still left is spread over all.
    let sum: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= sum);
    shares
}

/// CPU quotas and slow requests make backlogs that last. Without them the planned weights serve nearly as well, and
/// arrivals that are independent of the number in flight show the cores better.
fn are_needed(backends: &[Backend]) -> bool {
    backends.iter().any(|b| b.knowledge.is_held() || b.knowledge.is_slow())
}

/// Weights in place of the decision's.
pub(crate) struct Correction {
    /// In the order of the decision's wishes.
    pub weights: Vec<(BackendId, u32)>,
    /// The weights that the usable backends hold.
    pub held: Vec<(BackendId, u32)>,
}

/// Corrects the decision's weights for the present backlogs, for `arrivals` until the next correction, where that moves
/// `min_change` of the traffic; takes corrections back where they are no longer needed.
pub(crate) fn correct(
    backends: &[Backend],
    decision: &Decision,
    rate_rps: f64,
    arrivals: f64,
    min_change: f64,
) -> Option<Correction> {
    let needed = are_needed(backends);
    if !needed && backends.iter().all(|b| b.corrected.is_none()) {
        return None;
    }
    // If a backend joined or left since, a decision of its own follows.
    let usable = || backends.iter().filter(|b| b.is_usable());
    let is_usable = |w: &Wish| usable().any(|b| b.id == w.id);
    if usable().count() != decision.wishes.len() || !decision.wishes.iter().all(is_usable) {
        return None;
    }
    let weights = if needed {
        corrected_weights(backends, decision, rate_rps, arrivals)?
    } else {
        decision.wishes.iter().map(|w| (w.id, w.weight)).collect()
    };
    let held: Vec<_> = usable().filter_map(|b| Some((b.id, b.programmed?))).collect();
    let moves = moved(&shares_of(&held), &shares_of(&weights));
    let is_enough = moves > 0.0 && (!needed || moves >= min_change);
    is_enough.then_some(Correction { weights, held })
}

/// The corrected weights, in the order of the decision's wishes.
fn corrected_weights(
    backends: &[Backend],
    decision: &Decision,
    rate_rps: f64,
    arrivals: f64,
) -> Option<Vec<(BackendId, u32)>> {
    let total: f64 = decision.wishes.iter().map(|w| f64::from(w.weight)).sum();
    let serve = || decision.wishes.iter().filter(|w| w.weight > 0);
    let serving = |w: &Wish| {
        let b = backends.iter().find(|b| b.id == w.id)?;
        let share = f64::from(w.weight) / total;
        let known_rps = b.knowledge.capacity_rps().filter(|_| b.knowledge.is_known());
        let spare = known_rps.map_or(share, |rps| (rps / rate_rps - share).max(0.0));
        let grows = known_rps.is_some() && b.ramping_since.is_none();
        let expected = share * w.expected_us.unwrap_or(1.0);
        Some(Serving { share, expected, in_flight: f64::from(b.in_flight), spare, grows })
    };
    let pool: Vec<Serving> = serve().map(serving).collect::<Option<_>>()?;
    if pool.len() < 2 {
        return None;
    }
    let shares = corrected_shares(&pool, arrivals);
    let greatest = decision.wishes.iter().map(|w| w.weight).max().map_or(0.0, f64::from);
    let most = shares.iter().copied().fold(0.0, f64::max);
    let mut corrected = shares.iter().map(|s| ((s / most * greatest).round() as u32).max(1));
    let weight = |w: &Wish| {
        let weight = if w.weight > 0 { corrected.next()? } else { 0 };
        Some((w.id, weight))
    };
    decision.wishes.iter().map(weight).collect()
}

impl Correction {
    /// Shares and weights: failed backends have weight 0, those reserved by an administrator no entry.
    pub fn entries(&self, backends: &[Backend]) -> Vec<PlanEntry> {
        let entries = shares_of(&self.weights).into_iter().zip(&self.weights);
        let mut entries: Vec<PlanEntry> = entries
            .map(|((backend, share), (_, weight))| PlanEntry { backend, share, weight: *weight })
            .collect();
        let others = backends.iter().filter(|b| !b.is_usable() && !b.is_reserved());
        entries.extend(others.map(|b| PlanEntry { backend: b.id, share: 0.0, weight: 0 }));
        entries.sort_by_key(|e| e.backend);
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serving(share: f64, in_flight: f64, spare: f64) -> Serving {
        Serving { share, expected: share, in_flight, spare, grows: true }
    }

    #[test]
    fn fair_backlogs_leave_planned_shares_unchanged() {
        for all in [0.0, 2.0, 100.0] {
            let pool = [0.2, 0.3, 0.5].map(|share| serving(share, share * all, 0.1));
            let shares = corrected_shares(&pool, 10.0);
            let kept = shares.iter().zip(&pool).all(|(share, b)| (share - b.share).abs() < 1e-9);
            assert!(kept, "{shares:?}");
        }
    }

    #[test]
    fn a_longer_backlog_means_less_load_and_no_backend_gets_more_than_it_can_serve() {
        let part = |in_flight: f64| {
            let pool = [serving(0.5, in_flight, 0.1), serving(0.5, 2.0, 0.1)];
            let shares = corrected_shares(&pool, 20.0);
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            shares[0]
        };
        let parts: Vec<f64> = [0.0, 2.0, 3.0, 5.0, 200.0].map(part).to_vec();
        assert!(parts.windows(2).all(|pair| pair[0] > pair[1]), "{parts:?}");
        assert!(parts[0] <= 0.6 + 1e-9 && parts[4] < 0.1, "{parts:?}");
    }

    #[test]
    fn a_backlog_that_is_served_within_the_interval_moves_little() {
        let moved = |spare: f64| {
            let pool = [serving(0.5, 3.0, spare), serving(0.5, 1.0, spare)];
            0.5 - corrected_shares(&pool, 20.0)[0]
        };
        assert!(moved(0.1) > 3.0 * moved(10.0), "{} {}", moved(0.1), moved(10.0));
    }

    #[test]
    fn backend_with_unknown_capacity_gets_no_more_than_planned() {
        let unknown = Serving { grows: false, ..serving(0.3, 0.0, 0.3) };
        let pool = [serving(0.4, 9.0, 0.4), serving(0.3, 2.0, 0.3), unknown];
        let shares = corrected_shares(&pool, 20.0);
        assert!(shares[0] < 0.4 && shares[1] > 0.3 && shares[2] <= 0.3 + 1e-9, "{shares:?}");
    }
}
