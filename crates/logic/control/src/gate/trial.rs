//! Did the last plan help? Compares the clients' mean response time before and after it, over the whole pool; a plan after which it is longer is rolled back and remembered.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_model::{BackendId, Nanos};

use crate::commit::plan::Decision;
use crate::tuning::gate::trial::{
    CERTAIN, COMPARED, CORRELATION, KEPT, MAX_REJECTED, MEMORY, SAME_PLAN, SAME_RATE, SAME_TRAFFIC,
    SETTLE, WORSE,
};

/// One window of the whole pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PoolWindow {
    pub at: Nanos,
    pub seconds: f64,
    pub started: f64,
    /// The time that its requests took together.
    pub request_seconds: f64,
}

impl PoolWindow {
    fn mean_us(&self) -> f64 {
        self.request_seconds / self.started * 1e6
    }
}

/// Recent traffic of the whole pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolHistory {
    windows: VecDeque<PoolWindow>,
}

impl PoolHistory {
    pub fn push(&mut self, window: PoolWindow) {
        if self.windows.len() == KEPT {
            self.windows.pop_front();
        }
        self.windows.push_back(window);
    }

    pub fn clear(&mut self) {
        self.windows.clear();
    }

    /// When the last window closed.
    pub fn last_at(&self) -> Option<Nanos> {
        self.windows.back().map(|window| window.at)
    }

    /// Requests per second over the last three windows: fast enough for a rise and smooth enough for Poisson noise.
    pub fn rate_rps(&self) -> Option<f64> {
        self.rate_over(3)
    }

    /// The same over the last ten windows: for plans, which should not follow noise.
    pub fn calm_rate_rps(&self) -> Option<f64> {
        self.rate_over(10)
    }

    fn rate_over(&self, windows: usize) -> Option<f64> {
        let last = self.windows.iter().rev().take(windows);
        let (started, seconds) = last.fold((0.0, 0.0), |(n, t), w| (n + w.started, t + w.seconds));
        (seconds > 0.0).then(|| started / seconds)
    }

    /// Mean response time over the last ten windows, microseconds.
    pub fn mean_us(&self) -> Option<f64> {
        let last = self.windows.iter().rev().take(10);
        let (area, started) =
            last.fold((0.0, 0.0), |(a, n), w| (a + w.request_seconds, n + w.started));
        (started > 0.0).then(|| area / started * 1e6)
    }

    fn between(&self, from: Nanos, to: Nanos) -> impl Iterator<Item = &PoolWindow> {
        self.windows.iter().filter(move |w| w.at > from && w.at <= to && w.started > 0.0)
    }
}

/// Mean response time, its standard error and the rate over some windows.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Level {
    mean_us: f64,
    error_us: f64,
    rate_rps: f64,
    count: usize,
}

fn level<'a>(windows: impl Iterator<Item = &'a PoolWindow>) -> Option<Level> {
    let all: Vec<&PoolWindow> = windows.collect();
    let count = all.len();
    if count < 2 {
        return None;
    }
    let started: f64 = all.iter().map(|w| w.started).sum();
    let area: f64 = all.iter().map(|w| w.request_seconds).sum();
    let seconds: f64 = all.iter().map(|w| w.seconds).sum();
    let mean_us = area / started * 1e6;
    let spread: f64 = all.iter().map(|w| (w.mean_us() - mean_us).powi(2)).sum();
    let error_us = CORRELATION * (spread / ((count - 1) * count) as f64).sqrt();
    Some(Level { mean_us, error_us, rate_rps: started / seconds, count })
}

/// The weights before a plan, for a rollback.
pub(crate) type Weights = Vec<(BackendId, u32)>;

/// The result of a trial.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// Not enough windows yet.
    Open,
    /// No worse, or no fair comparison.
    Kept,
    /// The mean response time rose.
    Worse { before_us: f64, after_us: f64 },
}

/// A plan on trial.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub applied_at: Nanos,
    pub before: Weights,
    pub shares: Vec<(BackendId, f64)>,
    base: Option<Level>,
}

impl Trial {
    pub fn new(
        now: Nanos,
        history: &PoolHistory,
        calm_since: Nanos,
        before: Weights,
        decision: &Decision,
    ) -> Self {
        let from = calm_since.max(now - Duration::from_secs(3 * COMPARED as u64));
        // Nearly full, the weights before may be those that gave a backend less load for its queue, and twelve windows
        // show nothing.
        let is_fair = !decision.is_nearly_full();
        let base = level(history.between(from, now));
        let base = base.filter(|l| is_fair && l.count >= COMPARED / 2);
        Trial { applied_at: now, before, shares: decision.shares(), base }
    }

    pub fn judge(&self, history: &PoolHistory, now: Nanos) -> Verdict {
        let Some(base) = self.base else { return Verdict::Kept };
        let Some(after) = level(history.between(self.applied_at + SETTLE, now)) else {
            return Verdict::Open;
        };
        if after.count < COMPARED {
            return Verdict::Open;
        }
        if after.rate_rps > base.rate_rps * (1.0 + SAME_RATE) {
            return Verdict::Kept;
        }
        let noise = (base.error_us.powi(2) + after.error_us.powi(2)).sqrt();
        let worse =
            after.mean_us > WORSE * base.mean_us && after.mean_us - base.mean_us > CERTAIN * noise;
        if worse {
            Verdict::Worse { before_us: base.mean_us, after_us: after.mean_us }
        } else {
            Verdict::Kept
        }
    }
}

#[derive(Clone, Debug)]
struct RejectedPlan {
    at: Nanos,
    rate_rps: f64,
    shares: Vec<(BackendId, f64)>,
}

/// Plans that were rolled back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rejected {
    plans: VecDeque<RejectedPlan>,
}

impl Rejected {
    pub fn add(&mut self, now: Nanos, rate_rps: f64, shares: Vec<(BackendId, f64)>) {
        if self.plans.len() == MAX_REJECTED {
            self.plans.pop_front();
        }
        self.plans.push_back(RejectedPlan { at: now, rate_rps, shares });
    }

    /// Whether a plan like this was rejected recently at similar traffic.
    pub fn contains(&self, now: Nanos, rate_rps: f64, shares: &[(BackendId, f64)]) -> bool {
        self.plans.iter().any(|plan| {
            now.since(plan.at) < MEMORY
                && (rate_rps / plan.rate_rps - 1.0).abs() < SAME_TRAFFIC
                && moved(&plan.shares, shares) < SAME_PLAN
        })
    }
}

/// The shares that weights give under a split.
pub(crate) fn shares_of(weights: &[(BackendId, u32)]) -> Vec<(BackendId, f64)> {
    let sum: f64 = weights.iter().map(|(_, weight)| f64::from(*weight)).sum();
    weights.iter().map(|(id, weight)| (*id, f64::from(*weight) / sum.max(1.0))).collect()
}

/// The part of the traffic that moves between two sets of shares: half the sum of differences.
pub(crate) fn moved(from: &[(BackendId, f64)], to: &[(BackendId, f64)]) -> f64 {
    let share = |of: &[(BackendId, f64)], id: BackendId| {
        of.iter().find(|(b, _)| *b == id).map_or(0.0, |(_, s)| *s)
    };
    let gained: f64 = to.iter().map(|&(id, s)| (s - share(from, id)).abs()).sum();
    let lost: f64 =
        from.iter().filter(|(id, _)| !to.iter().any(|(b, _)| b == id)).map(|(_, s)| *s).sum();
    0.5 * (gained + lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(before_ms: f64, after_ms: f64, rate_after: f64) -> PoolHistory {
        let mut history = PoolHistory::default();
        for s in 1..=60u64 {
            let (ms, rate) = if s <= 30 { (before_ms, 100.0) } else { (after_ms, rate_after) };
            let wobble = 1.0 + 0.03 * ((s % 5) as f64 - 2.0);
            history.push(PoolWindow {
                at: Nanos(s * 1_000_000_000),
                seconds: 1.0,
                started: rate,
                request_seconds: rate * ms * wobble / 1e3,
            });
        }
        history
    }

    fn trial(history: &PoolHistory, capacity_rps: f64) -> Trial {
        let until_plan = first(30, history);
        let decision = Decision { rate_rps: 100.0, capacity_rps, ..Decision::default() };
        Trial::new(Nanos(30_000_000_000), &until_plan, Nanos::ZERO, vec![], &decision)
    }

    fn first(windows: usize, history: &PoolHistory) -> PoolHistory {
        PoolHistory { windows: history.windows.iter().take(windows).copied().collect() }
    }

    fn verdict(history: &PoolHistory) -> Verdict {
        let trial = trial(history, 140.0);
        let soon = first(30, history);
        assert_eq!(trial.judge(&soon, Nanos(34_000_000_000)), Verdict::Open);
        trial.judge(history, Nanos(60_000_000_000))
    }

    #[test]
    fn only_a_significant_increase_at_the_same_traffic_is_rolled_back() {
        assert!(matches!(verdict(&history(50.0, 70.0, 100.0)), Verdict::Worse { .. }));
        assert_eq!(verdict(&history(50.0, 53.0, 100.0)), Verdict::Kept);
        assert_eq!(verdict(&history(50.0, 40.0, 100.0)), Verdict::Kept);
        assert_eq!(verdict(&history(50.0, 70.0, 130.0)), Verdict::Kept, "traffic rose");
    }

    #[test]
    fn no_plan_is_rolled_back_near_capacity() {
        let history = history(50.0, 70.0, 100.0);
        let judged = |capacity| trial(&history, capacity).judge(&history, Nanos(60_000_000_000));
        assert!(matches!(judged(115.0), Verdict::Worse { .. }));
        assert_eq!(judged(105.0), Verdict::Kept);
    }

    #[test]
    fn rejected_plans_are_remembered_for_ten_minutes() {
        let (a, b) = (BackendId(1), BackendId(2));
        let mut rejected = Rejected::default();
        let now = Nanos(1_000_000_000);
        rejected.add(now, 100.0, vec![(a, 0.5), (b, 0.5)]);
        assert!(rejected.contains(now, 105.0, &[(a, 0.51), (b, 0.49)]));
        assert!(!rejected.contains(now, 100.0, &[(a, 0.6), (b, 0.4)]));
        assert!(!rejected.contains(now, 150.0, &[(a, 0.5), (b, 0.5)]));
        assert!(!rejected.contains(now + MEMORY, 100.0, &[(a, 0.5), (b, 0.5)]));
        assert!((moved(&[(a, 1.0)], &[(b, 1.0)]) - 1.0).abs() < 1e-12);
    }
}
