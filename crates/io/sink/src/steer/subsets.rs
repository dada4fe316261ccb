//! Each of several balancers gets the servers that its part of the traffic needs, and no weight at the others: what it
//! counts in flight is then what its servers have, but for those on a cut.

use std::collections::BTreeMap;

use plimsoll_model::BackendId;

use super::shares::Shares;

/// Weights of one balancer.
pub(super) type Row = BTreeMap<BackendId, u32>;

/// Requests of each balancer that are believed before any has come, so that the first ones decide little.
const PRIOR: f64 = 10.0;
/// The least part of a balancer, in parts of an equal one: its traffic may grow at once.
const LEAST: f64 = 0.25;
/// Parts that differ by less from those in use, of the whole, change nothing: ten times as much costs clients a
/// twentieth at 70 % load, and each change writes weights.
const WORTH: f64 = 0.05;

/// How the servers are divided.
pub(super) struct Subsets {
    /// By which the weights are divided now; 0 where a balancer is lost.
    in_use: Vec<f64>,
    /// The highest weight that all balancers can hold.
    greatest: u32,
}

impl Subsets {
    /// Not divided yet among so many.
    pub(super) fn new(count: usize, greatest: u32) -> Self {
        Subsets { in_use: vec![0.0; count], greatest }
    }

    /// Whether the weights should be divided anew, these balancers being there.
    pub(super) fn is_stale(&self, shares: &Shares, live: &[bool]) -> bool {
        let parts = parts(shares, live);
        let differs = |(part, used): (&f64, &f64)| {
            (*part > 0.0) != (*used > 0.0) || (part - used).abs() > WORTH
        };
        parts.iter().any(|part| *part > 0.0) && parts.iter().zip(&self.in_use).any(differs)
    }

    /// The weights of each balancer by what is known of their traffic now. All are scaled up as far as they can be held:
    /// only their ratios count, and a cut is the finer.
    pub(super) fn divide(&mut self, shares: &Shares, live: &[bool], planned: &Row) -> Vec<Row> {
        self.in_use = parts(shares, live);
        let scale =
            planned.values().max().map_or(1, |most| (self.greatest / (*most).max(1)).max(1));
        let weights: Vec<u32> = planned.values().map(|weight| weight * scale).collect();
        let rows = plimsoll_pack::subsets(&weights, &self.in_use);
        rows.into_iter().map(|row| planned.keys().copied().zip(row).collect()).collect()
    }
}

fn parts(shares: &Shares, live: &[bool]) -> Vec<f64> {
    let normal = |parts: Vec<f64>| -> Vec<f64> {
        let all: f64 = parts.iter().sum();
        parts.iter().map(|part| if all > 0.0 { part / all } else { 0.0 }).collect()
    };
    let of_live = |(seen, live): (&f64, &bool)| if *live { seen + PRIOR } else { 0.0 };
    let parts = normal(shares.seen.iter().zip(live).map(of_live).collect());
    let least = LEAST / live.iter().filter(|live| **live).count().max(1) as f64;
    normal(parts.iter().map(|part| if *part > 0.0 { part.max(least) } else { 0.0 }).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn row(weights: &[u32]) -> Row {
        (1..).map(BackendId).zip(weights.iter().copied()).collect()
    }

    fn after(requests: [u64; 2]) -> (Shares, Subsets) {
        let mut shares = Shares::new(2);
        let begin = shares.looked;
        shares.look(begin, &[Some(0), Some(0)]);
        shares.look(begin + Duration::from_secs(1), &requests.map(Some));
        (shares, Subsets::new(2, 256))
    }

    #[test]
    fn weights_follow_the_traffic_of_each_balancer() {
        let (shares, mut subsets) = after([740, 490]);
        let rows = subsets.divide(&shares, &[true, true], &row(&[64, 64, 64, 64, 64]));
        assert_eq!(rows, [row(&[256, 256, 256, 0, 0]), row(&[0, 0, 0, 256, 256])]);
        assert!(!subsets.is_stale(&shares, &[true, true]));
    }

    #[test]
    fn first_requests_decide_little_and_an_idle_balancer_keeps_a_part() {
        let both = [true, true];
        assert!(parts(&after([1, 0]).0, &both)[0] < 0.53);
        let parts = super::parts(&after([1_000_000, 0]).0, &both);
        assert!((0.1..0.13).contains(&parts[1]), "{parts:?}");
    }

    #[test]
    fn a_lost_balancer_leaves_all_to_the_others_and_gets_its_part_again() {
        let (shares, mut subsets) = after([500, 500]);
        subsets.divide(&shares, &[true, true], &row(&[1, 1]));
        assert!(subsets.is_stale(&shares, &[true, false]));
        let rows = subsets.divide(&shares, &[true, false], &row(&[1, 1]));
        assert_eq!(rows, [row(&[256, 256]), row(&[0, 0])]);
        assert!(
            !subsets.is_stale(&shares, &[true, false]) && subsets.is_stale(&shares, &[true, true])
        );
        assert!(!subsets.is_stale(&shares, &[false, false]), "there is none to give them to");
    }

    #[test]
    fn traffic_that_moves_makes_the_division_stale_and_noise_does_not() {
        let (mut shares, mut subsets) = after([500, 500]);
        let (both, at) = ([true, true], shares.looked);
        subsets.divide(&shares, &both, &row(&[1, 1]));
        shares.look(at + Duration::from_secs(1), &[Some(1_010), Some(990)]);
        assert!(!subsets.is_stale(&shares, &both));
        shares.look(at + Duration::from_secs(2), &[Some(2_010), Some(990)]);
        assert!(subsets.is_stale(&shares, &both));
    }

    #[test]
    fn a_balancer_that_was_started_anew_is_counted_on() {
        let (mut shares, _) = after([500, 500]);
        let at = shares.looked;
        shares.look(at, &[Some(600), None]);
        shares.look(at, &[Some(700), Some(100)]);
        assert_eq!(shares.seen, [700.0, 600.0]);
    }
}
