//! Each of several balancers gets the servers that its part of the traffic needs, and no weight at the others: what it
//! counts in flight is then what its servers have, but for those on a cut.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_model::BackendId;
use tokio::time::Instant;

/// Weights of one balancer.
pub(super) type Row = BTreeMap<BackendId, u32>;

/// How fast traffic of before is forgotten.
const MEMORY: Duration = Duration::from_secs(10);
/// Requests of each balancer that are believed before any has come, so that the first ones decide little.
const PRIOR: f64 = 10.0;
/// The least part of a balancer, in parts of an equal one: its traffic may grow at once.
const LEAST: f64 = 0.25;
/// Parts that differ by less from those in use, of the whole, change nothing: ten times as much costs clients a
/// twentieth at 70 % load, and each change writes weights.
const WORTH: f64 = 0.05;

/// The balancers' parts of the traffic.
pub(super) struct Subsets {
    /// Requests of each balancer, those long ago for less.
    seen: Vec<f64>,
    /// What each had counted when last looked at.
    counted: Vec<Option<u64>>,
    looked: Instant,
    /// By which the weights are divided now; 0 where a balancer is lost.
    in_use: Vec<f64>,
    /// The highest weight that all balancers can hold.
    greatest: u32,
}

impl Subsets {
    /// Nothing is known of the traffic of so many.
    pub(super) fn new(count: usize, greatest: u32) -> Self {
        Subsets {
            seen: vec![0.0; count],
            counted: vec![None; count],
            looked: Instant::now(),
            in_use: vec![0.0; count],
            greatest,
        }
    }

    /// What each balancer has counted by now; none where that is not known.
    pub(super) fn look(&mut self, now: Instant, counted: &[Option<u64>]) {
        let passed = now.duration_since(self.looked).as_secs_f64();
        self.looked = now;
        let kept = (-passed / MEMORY.as_secs_f64()).exp();
        for ((seen, before), now) in self.seen.iter_mut().zip(&mut self.counted).zip(counted) {
            // A balancer that was started anew counts from zero.
            let came = match (*before, *now) {
                (Some(before), Some(now)) => now.checked_sub(before).unwrap_or(now),
                _ => 0,
            };
            *seen = *seen * kept + came as f64;
            *before = now.or(*before);
        }
    }

    /// Whether the weights should be divided anew, these balancers being there.
    pub(super) fn is_stale(&self, live: &[bool]) -> bool {
        let parts = self.parts(live);
        let differs = |(part, used): (&f64, &f64)| {
            (*part > 0.0) != (*used > 0.0) || (part - used).abs() > WORTH
        };
        parts.iter().any(|part| *part > 0.0) && parts.iter().zip(&self.in_use).any(differs)
    }

    /// The weights of each balancer by what is known of their traffic now. All are scaled up as far as they can be held:
    /// only their ratios count, and a cut is the finer.
    pub(super) fn divide(&mut self, live: &[bool], planned: &Row) -> Vec<Row> {
        self.in_use = self.parts(live);
        let scale =
            planned.values().max().map_or(1, |most| (self.greatest / (*most).max(1)).max(1));
        let weights: Vec<u32> = planned.values().map(|weight| weight * scale).collect();
        let rows = plimsoll_pack::subsets(&weights, &self.in_use);
        rows.into_iter().map(|row| planned.keys().copied().zip(row).collect()).collect()
    }

    fn parts(&self, live: &[bool]) -> Vec<f64> {
        let normal = |parts: Vec<f64>| -> Vec<f64> {
            let all: f64 = parts.iter().sum();
            parts.iter().map(|part| if all > 0.0 { part / all } else { 0.0 }).collect()
        };
        let of_live = |(seen, live): (&f64, &bool)| if *live { seen + PRIOR } else { 0.0 };
        let parts = normal(self.seen.iter().zip(live).map(of_live).collect());
        let least = LEAST / live.iter().filter(|live| **live).count().max(1) as f64;
        normal(parts.iter().map(|part| if *part > 0.0 { part.max(least) } else { 0.0 }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(weights: &[u32]) -> Row {
        (1..).map(BackendId).zip(weights.iter().copied()).collect()
    }

    fn after(requests: [u64; 2]) -> Subsets {
        let mut subsets = Subsets::new(2, 256);
        let begin = subsets.looked;
        subsets.look(begin, &[Some(0), Some(0)]);
        subsets.look(begin + Duration::from_secs(1), &requests.map(Some));
        subsets
    }

    #[test]
    fn weights_follow_the_traffic_of_each_balancer() {
        let mut subsets = after([740, 490]);
        let rows = subsets.divide(&[true, true], &row(&[64, 64, 64, 64, 64]));
        assert_eq!(rows, [row(&[256, 256, 256, 0, 0]), row(&[0, 0, 0, 256, 256])]);
        assert!(!subsets.is_stale(&[true, true]));
    }

    #[test]
    fn first_requests_decide_little_and_an_idle_balancer_keeps_a_part() {
        let both = [true, true];
        assert!(after([1, 0]).parts(&both)[0] < 0.53);
        let parts = after([1_000_000, 0]).parts(&both);
        assert!((0.1..0.13).contains(&parts[1]), "{parts:?}");
    }

    #[test]
    fn a_lost_balancer_leaves_all_to_the_others_and_gets_its_part_again() {
        let mut subsets = after([500, 500]);
        subsets.divide(&[true, true], &row(&[1, 1]));
        assert!(subsets.is_stale(&[true, false]));
        let rows = subsets.divide(&[true, false], &row(&[1, 1]));
        assert_eq!(rows, [row(&[256, 256]), row(&[0, 0])]);
        assert!(!subsets.is_stale(&[true, false]) && subsets.is_stale(&[true, true]));
        assert!(!subsets.is_stale(&[false, false]), "there is none to give them to");
    }

    #[test]
    fn traffic_that_moves_makes_the_division_stale_and_noise_does_not() {
        let mut subsets = after([500, 500]);
        let (both, at) = ([true, true], subsets.looked);
        subsets.divide(&both, &row(&[1, 1]));
        subsets.look(at + Duration::from_secs(1), &[Some(1_010), Some(990)]);
        assert!(!subsets.is_stale(&both));
        subsets.look(at + Duration::from_secs(2), &[Some(2_010), Some(990)]);
        assert!(subsets.is_stale(&both));
    }

    #[test]
    fn a_balancer_that_was_started_anew_is_counted_on() {
        let mut subsets = after([500, 500]);
        let at = subsets.looked;
        subsets.look(at, &[Some(600), None]);
        subsets.look(at, &[Some(700), Some(100)]);
        assert_eq!(subsets.seen, [700.0, 600.0]);
    }
}
