//! From requests that have ended to what was in flight: at an instant that lies far enough back, every request that was
//! under way then has been logged.
//!
//! At time t − lag, what was in flight are the requests begun by then and not ended: exact for those that take no longer
//! than the lag. A longer one is counted as begun when its line comes, so that counters never fall.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plimsoll_model::Nanos;

/// Requests that wait for their instant; more are dropped, and counted as errors of the log.
const MOST_WAITING: usize = 1 << 20;

/// The requests of one server.
#[derive(Debug, Default)]
pub struct Flights {
    begins: BinaryHeap<Reverse<Nanos>>,
    ends: BinaryHeap<Reverse<(Nanos, bool, bool)>>,
    /// Begun, ended, failed and answered up to the instant that was last looked at.
    pub begun: u64,
    ended: u64,
    /// Failed so far.
    pub failed: u64,
    /// Answered by the server itself so far.
    pub answered: u64,
}

impl Flights {
    /// A request has ended that began at this instant. False when there is no room for it.
    pub fn record(&mut self, began: Nanos, ended: Nanos, failed: bool, answered: bool) -> bool {
        if self.ends.len() >= MOST_WAITING {
            return false;
        }
        self.begins.push(Reverse(began.min(ended)));
        self.ends.push(Reverse((ended, failed, answered)));
        true
    }

    /// Goes on to an instant; tells what was in flight then.
    pub fn advance(&mut self, to: Nanos) -> u32 {
        while self.begins.peek().is_some_and(|Reverse(at)| *at <= to) {
            self.begins.pop();
            self.begun += 1;
        }
        while let Some(Reverse((at, failed, answered))) = self.ends.peek().copied() {
            if at > to {
                break;
            }
            self.ends.pop();
            self.ended += 1;
            self.failed += u64::from(failed);
            self.answered += u64::from(answered);
        }
        u32::try_from(self.begun.saturating_sub(self.ended)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_in_flight_is_exact_for_requests_within_the_lag_and_nothing_ever_falls() {
        let ms = |n: u64| Nanos(n * 1_000_000);
        let mut flights = Flights::default();
        // (began, ended): reported when they end.
        let requests = [(0, 10), (5, 50), (20, 30), (40, 45), (60, 61)];
        let mut told: Vec<(u64, u64)> = requests.to_vec();
        told.sort_by_key(|(_, ended)| *ended);
        let (mut began, mut next) = (0, 0);
        for now in 0..200u64 {
            while next < told.len() && told[next].1 <= now {
                let (b, e) = told[next];
                assert!(flights.record(ms(b), ms(e), e == 45, true));
                next += 1;
            }
            let Some(then) = now.checked_sub(100) else { continue };
            let expected = requests.iter().filter(|(b, e)| *b <= then && then < *e).count();
            assert_eq!(flights.advance(ms(then)) as usize, expected, "at {then}");
            assert!(flights.begun >= began);
            began = flights.begun;
        }
        assert_eq!((flights.begun, flights.failed, flights.answered), (5, 1, 5));
        // One that took longer than the lag comes late: it counts, and is not in flight any more.
        flights.record(ms(0), ms(150), false, true);
        assert_eq!(flights.advance(ms(160)), 0);
        assert_eq!(flights.begun, 6);
    }
}
