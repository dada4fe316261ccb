//! Clients that come again at once: refusing does not send them away, so they wait.
//!
//! Refusing shortens the wait of those that are let in where the refused stay away. Of a fixed number of clients, each of
//! whom sends again as soon as it was answered or refused, nobody is served sooner for it: each has an answer every
//! `clients ÷ throughput` in the mean (Little's law), whatever the limit is, and every refusal is only asked again. The two
//! differ in what is refused for good: open arrivals of four times the capacity have three for each that is served, a single
//! client without a pause has one in every round trip.
//!
//! * `excess = Σ (refused for good − ` [`PER_COMPLETION`]`)` over completions, never below 0. From [`COME_AGAIN`] on the
//!   refused are taken for clients that come again, and are *held*. One completion adds at most a quarter of that, for many
//!   are refused while one long request is served.
//! * Then one limit holds for all tries, and it rises by one whenever a request was refused for good, at every fourth
//!   completion at most ([`BETWEEN`]), so that no backend takes all before others have noticed. So it ends as the least limit with
//!   which all have a place: what is refused still goes where there is room, and all wait about as long.
//! * Where none was refused for [`QUIET`] completions, or as many as may be in flight, the limit falls to the most
//!   that were in flight meanwhile; where the usual limit is no less, that holds again.
//! * Where a request would wait longer than [`MOST_WAIT_S`] and more than a tenth is still refused over as many completions, no line
//!   holds them: they are too many, or come once each. The usual limit holds again, and the next attempt is made when the
//!   overload has lasted [`PAUSE`] times as long.
//!
//! Cost: O(1) per event.

/// Refused for good at each completion, in the mean, that may be open arrivals. In a pool of unequal backends the small ones,
/// which complete least, are refused as many as the others: ten where the pool has four times what it can serve.
const PER_COMPLETION: f64 = 16.0;
/// And so many more are no chance.
const COME_AGAIN: f64 = 64.0;
/// One completion proves no more than this: the request may have been a long one.
const MOST_AT_ONCE: f64 = COME_AGAIN / 4.0;
/// Of what is beyond that only so much counts: an overload is over after as many completions without refusals as it allows.
const MOST_EXCESS: f64 = 4.0 * COME_AGAIN;
/// Completions from one rise to the next, at least.
const BETWEEN: u32 = 4;
/// Least completions after which a limit is judged.
const QUIET: u32 = 64;
/// Nobody is to wait longer than this, seconds.
const MOST_WAIT_S: f64 = 5.0;
/// With a line that long, more than so many refused for good at each completion show that it does not hold all.
const STILL: f64 = 0.1;
/// An attempt that failed is made again when the overload has lasted so many times as long.
const PAUSE: u64 = 8;
/// Completions over which the time between two is averaged, half of which are forgotten then.
const AVERAGED: f64 = 128.0;

/// Whether the refused come again, and how many may be in flight if so.
#[derive(Clone, Debug, Default)]
pub(super) struct Returning {
    /// While they are held.
    limit: Option<u32>,
    excess: f64,
    /// Completions since the overload began, and when the next attempt may be made.
    completions: u64,
    next_attempt: u64,
    /// Refused for good since the last completion.
    refused: u32,
    /// Since the limit changed: completions, what was refused for good, and the most in flight.
    since: u32,
    refused_since: u32,
    most: u32,
    /// Of late: completions, and the time that they took, seconds.
    ended: f64,
    ended_in_s: f64,
}

impl Returning {
    /// The most in flight, for any try, while clients are held.
    pub(super) fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// So many were in flight for so long.
    pub(super) fn pass(&mut self, in_flight: u32, seconds: f64) {
        self.most = self.most.max(in_flight);
        self.ended_in_s += seconds;
    }

    /// A request was refused for good.
    pub(super) fn refused(&mut self) {
        self.refused += 1;
    }

    /// A request was done, where so many may usually be in flight.
    pub(super) fn complete(&mut self, usual: u32) {
        let refused = std::mem::take(&mut self.refused);
        self.ended += 1.0;
        if self.ended >= AVERAGED {
            (self.ended, self.ended_in_s) = (self.ended / 2.0, self.ended_in_s / 2.0);
        }
        self.completions += 1;
        let beyond = f64::from(refused) - PER_COMPLETION;
        self.excess = (self.excess + beyond.min(MOST_AT_ONCE)).clamp(0.0, MOST_EXCESS);
        self.since += 1;
        self.refused_since = self.refused_since.saturating_add(refused);
        match self.limit {
            Some(limit) => self.hold(limit, usual),
            None if self.excess == 0.0 => (self.completions, self.next_attempt) = (0, 0),
            None if self.excess >= COME_AGAIN && self.completions >= self.next_attempt => {
                self.set(Some(usual + 1));
            }
            None => {}
        }
    }

    fn hold(&mut self, limit: u32, usual: u32) {
        let wait_s = f64::from(limit) * self.ended_in_s / self.ended;
        let is_judged = self.since >= QUIET.max(limit);
        let refused = f64::from(self.refused_since);
        if refused > 0.0 && wait_s <= MOST_WAIT_S {
            if self.since >= BETWEEN {
                self.set(Some(limit + 1));
            }
        } else if is_judged && refused > STILL * f64::from(self.since) {
            self.next_attempt = self.completions * PAUSE;
            self.set(None);
        } else if is_judged {
            self.set(Some(limit.min(self.most)).filter(|&limit| limit > usual));
        }
    }

    fn set(&mut self, limit: Option<u32>) {
        self.limit = limit;
        (self.since, self.refused_since, self.most) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: u32 = 3;

    /// A backend of one core that is never idle, 100 ms a request. Of clients without a pause, each of those that have no
    /// place asks [`ASKS`] times a request; of others that many per completion come and are refused in any case.
    struct Pool {
        returning: Returning,
        clients: u32,
        others: f64,
        owed: f64,
    }

    const ASKS: u32 = 20;

    impl Pool {
        fn new(clients: u32, others: f64) -> Self {
            Pool { returning: Returning::default(), clients, others, owed: 0.0 }
        }

        /// The greatest limit meanwhile, and how many were refused.
        fn serve(&mut self, completions: u32) -> (u32, u32) {
            let (mut most, mut refused) = (0, 0);
            for _ in 0..completions {
                let limit = self.returning.limit().unwrap_or(USUAL);
                self.owed += self.others;
                let out = self.clients.saturating_sub(limit) * ASKS + self.owed as u32;
                self.owed = self.owed.fract();
                let in_flight = if self.others > 0.0 { limit } else { limit.min(self.clients) };
                (0..out).for_each(|_| self.returning.refused());
                self.returning.pass(in_flight, 0.1);
                self.returning.complete(USUAL);
                (most, refused) = (most.max(limit), refused + out);
            }
            (most, refused)
        }
    }

    #[test]
    fn clients_that_come_again_at_once_are_held_and_no_longer_than_they_are_there() {
        let mut pool = Pool::new(12, 0.0);
        assert!(pool.serve(60).1 > 0);
        assert_eq!(pool.serve(10_000), (12, 0), "the least limit that holds all");
        pool.clients = 7;
        pool.serve(200);
        assert_eq!(pool.returning.limit(), Some(7), "what is not used is given back");
        pool.clients = 2;
        pool.serve(200);
        assert_eq!(pool.returning.limit(), None);
    }

    #[test]
    fn open_arrivals_of_many_times_the_capacity_change_nothing() {
        let mut pool = Pool::new(0, 15.5);
        assert_eq!(pool.serve(100_000).0, USUAL);
    }

    #[test]
    fn open_arrivals_beyond_that_are_refused_as_usual_after_attempts_that_grow_rare() {
        let mut pool = Pool::new(0, 40.0);
        let (most, _) = pool.serve(1_000);
        assert!((50..=52).contains(&most), "5 s of 100 ms: {most}");
        let held = (0..30_000).filter(|_| {
            pool.serve(1);
            pool.returning.limit().is_some()
        });
        let held = held.count();
        assert!((100..1_000).contains(&held), "of 30,000: {held}");
    }

    #[test]
    fn more_clients_than_may_wait_five_seconds_are_not_held() {
        let mut pool = Pool::new(200, 0.0);
        pool.serve(1_000);
        assert_eq!(pool.returning.limit(), None);
        let mut few = Pool::new(45, 0.0);
        few.serve(1_000);
        assert_eq!(few.returning.limit(), Some(45));
    }

    #[test]
    fn application_that_stands_still_now_and_then_changes_nothing() {
        let mut pool = Pool::new(0, 0.0);
        for _ in 0..100 {
            (0..10_000).for_each(|_| pool.returning.refused());
            assert_eq!(pool.serve(10).0, USUAL);
        }
    }

    #[test]
    fn open_overload_after_clients_that_were_held_ends_the_line() {
        let mut pool = Pool::new(12, 0.0);
        pool.serve(1_000);
        (pool.clients, pool.others) = (0, 0.5);
        pool.serve(400);
        assert_eq!(pool.returning.limit(), None);
        assert_eq!(pool.serve(10_000).0, USUAL);
    }
}
