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

use plimsoll_model::{BackendId, Method, Nanos, Plan, PlanEntry, PlanKind};

use crate::commit::commitment::Sent;
use crate::commit::plan::{Decision, Wish};
use crate::controller::Controller;
use crate::event::Action;
use crate::gate::trial::moved;
use crate::tuning::gate::decide::IDLE_RPS;
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

impl Controller {
    /// Corrects the last decision's weights for the present backlogs, where that moves enough of the traffic.
    pub(crate) fn follow_backlogs(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if !self.may_follow(now) {
            return;
        }
        let needed = self.needs_corrections();
        if !needed && self.backends.iter().all(|b| b.corrected.is_none()) {
            return;
        }
        let Some(decision) = self.commitment.decision() else { return };
        // If a backend joined or left since, a decision of its own follows.
        let usable = |w: &Wish| self.backends.iter().any(|b| b.id == w.id && b.is_usable());
        let members = self.backends.iter().filter(|b| b.is_usable()).count();
        if members != decision.wishes.len() || !decision.wishes.iter().all(usable) {
            return;
        }
        let planned = || decision.wishes.iter().map(|w| (w.id, w.weight)).collect();
        let weights = if needed { self.corrected_weights(decision) } else { Some(planned()) };
        let Some(weights) = weights else { return };
        let held: Vec<(BackendId, u32)> = self
            .backends
            .iter()
            .filter(|b| b.is_usable())
            .filter_map(|b| Some((b.id, b.programmed?)))
            .collect();
        let moves = moved(&parts(&held), &parts(&weights));
        if moves == 0.0 || (needed && moves < self.spec.min_change) {
            return;
        }
        let mut decision = decision.clone();
        for (wish, (_, weight)) in decision.wishes.iter_mut().zip(&weights) {
            if let Some(b) = self.backends.iter_mut().find(|b| b.id == wish.id) {
                b.corrected = Some(Corrected { planned: wish.weight, held: *weight });
            }
            wish.weight = *weight;
        }
        let epoch = self.commitment.send(now, decision, held, Sent::Correction);
        let entries = parts(&weights).into_iter().zip(&weights);
        let mut entries: Vec<PlanEntry> = entries
            .map(|((backend, share), (_, weight))| PlanEntry { backend, share, weight: *weight })
            .collect();
        let others = self.backends.iter().filter(|b| !b.is_usable() && !b.is_reserved());
        entries.extend(others.map(|b| PlanEntry { backend: b.id, share: 0.0, weight: 0 }));
        entries.sort_by_key(|e| e.backend);
        let reason = "corrected for backlogs".to_owned();
        let kind = PlanKind::Backlog;
        out.push(Action::Correct(Plan { epoch, at: now, kind, reason, entries }));
    }

    /// CPU quotas and slow requests make backlogs that last. Without them the planned weights serve nearly as well, and
    /// arrivals that are independent of the number in flight show the cores better.
    fn needs_corrections(&self) -> bool {
        self.backends.iter().any(|b| b.knowledge.is_held() || b.knowledge.is_slow())
    }

    /// Whether corrections are possible at all: the balancer splits by weights without keys, and backends are watched.
    pub(crate) fn follows_backlogs(&self) -> bool {
        self.balancer.method().is_some_and(Method::is_keyless_split) && self.watches()
    }

    /// The pool is as in the decision, no backend is being measured, and the last change is long enough ago.
    fn may_follow(&self, now: Nanos) -> bool {
        self.follows_backlogs()
            && self.may_steer()
            && !self.commitment.is_owed()
            && self.commitment.may_answer_foreign(now)
            && self.is_paced(now)
            && self.traffic.rate() >= IDLE_RPS
            && !self.is_pinned()
            && self.aside().next().is_none()
    }

    /// The corrected weights, in the order of the decision's wishes.
    fn corrected_weights(&self, decision: &Decision) -> Option<Vec<(BackendId, u32)>> {
        let rate_rps = self.traffic.rate();
        let total: f64 = decision.wishes.iter().map(|w| f64::from(w.weight)).sum();
        let serve = || decision.wishes.iter().filter(|w| w.weight > 0);
        let serving = |w: &Wish| {
            let b = self.backends.iter().find(|b| b.id == w.id)?;
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
        let arrivals = rate_rps * self.bearable_interval().as_secs_f64();
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
}

fn parts(weights: &[(BackendId, u32)]) -> Vec<(BackendId, f64)> {
    let sum: f64 = weights.iter().map(|(_, w)| f64::from(*w)).sum();
    weights.iter().map(|(id, w)| (*id, f64::from(*w) / sum.max(1.0))).collect()
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
