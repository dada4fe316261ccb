//! What part of the requests each of several balancers has.

use std::time::Duration;

use tokio::time::Instant;

/// How fast traffic of before is forgotten.
const MEMORY: Duration = Duration::from_secs(10);
/// The number of balancers that share the traffic is said to be another one when it differs by more than this: half of
/// what lies between two numbers, and some noise.
const CLEARLY: f64 = 0.65;
/// It is not known from fewer requests.
const ENOUGH: f64 = 50.0;

/// The balancers' parts of the traffic.
pub(super) struct Shares {
    /// Requests of each balancer, those long ago for less.
    pub(super) seen: Vec<f64>,
    /// What each had counted when last looked at.
    counted: Vec<Option<u64>>,
    pub(super) looked: Instant,
    /// How many share the traffic, as last said.
    sharing: u32,
}

impl Shares {
    /// Nothing is known of the traffic of so many.
    pub(super) fn new(count: usize) -> Self {
        Shares {
            seen: vec![0.0; count],
            counted: vec![None; count],
            looked: Instant::now(),
            sharing: count as u32,
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

    /// How many share the traffic, where that is news: equal ones that would know as little of each other's requests,
    /// 1 / Σ p² of their parts p. Of a pair of which one stands by, it is one.
    pub(super) fn sharing(&mut self) -> Option<u32> {
        let all: f64 = self.seen.iter().sum();
        if all < ENOUGH {
            return None;
        }
        let alike: f64 = self.seen.iter().map(|seen| (seen / all).powi(2)).sum();
        let number = 1.0 / alike;
        if (number - f64::from(self.sharing)).abs() <= CLEARLY {
            return None;
        }
        self.sharing = (number.round() as u32).max(1);
        Some(self.sharing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_balancer_that_stands_by_does_not_share() {
        let mut shares = Shares::new(2);
        let mut now = shares.looked;
        let mut counted = [0, 0];
        let mut after = |seconds: u64, rates: [u64; 2]| {
            for _ in 0..seconds {
                now += Duration::from_secs(1);
                (0..2).for_each(|i| counted[i] += rates[i]);
                shares.look(now, &counted.map(Some));
            }
            shares.sharing()
        };
        assert_eq!(after(1, [0, 0]), None, "nothing is known");
        assert_eq!(after(60, [100, 90]), None, "they are two, as was said");
        assert_eq!(after(60, [200, 0]), Some(1));
        assert_eq!(after(60, [200, 2]), None);
        assert_eq!(after(5, [0, 200]), Some(2), "both had some lately");
        assert_eq!(after(60, [0, 200]), Some(1));
        assert_eq!(after(60, [100, 100]), Some(2));
    }
}
