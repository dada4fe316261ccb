//! How requests overtake: with `c` cores and a queue that is first in first out, a request that is done has at most
//! `c − 1` earlier ones beside it, for all others wait behind these.
//!
//! A request's *place* is 1 + the number of those in flight that were admitted before it. When one of `n` is done,
//! each of the `min(n, c)` that are worked on is as likely to be it, so its place is at most `r` with probability
//! `r / min(n, c)`; where all share the processors, with `r / n`, which is less. That is so where some requests take
//! next to no time. Where each takes some, even the shortest leaves behind only the part `f` of those that are worked on
//! in the mean (the [reach](super::Knee::reach)), and of many the greatest place is `m`, [`SEEN`] deviations of that beyond
//! it, `min(n, c)` at most. If the greatest place of late is `r`, more cores than these are contradicted by twice the logarithm,
//!
//! `misfit(c) = 2·w·Σ ln(m / r)`, over completions with `m > r`, `w =` [`WORTH`],
//!
//! and fewer are not: sharing processors, few cores too let requests overtake. That tells within tens of requests
//! what latency ([`Knee`](super::Knee)) tells within thousands where few requests take most of the time; and the
//! other way about: where all take as long, nobody overtakes anybody whatever the cores, so it says nothing below
//! [`LEAST_VARIATION`]. It fails where answers are held back to leave in order; latency may then outweigh it, for
//! it says no more than [`MOST`].
//!
//! Cost: O([`WINDOW`]/64) per completion, O(candidates) per review, no allocation.

use super::grid::{CANDIDATES, EQUAL, cores, position};

/// Requests, the last to be admitted, whose order is known: as many may be in flight.
const WINDOW: u64 = 1_024;
const WORDS: usize = WINDOW as usize / 64;
/// A place counts that was seen within so many completions.
const LATELY: u64 = 1_000;
/// Completions after which their counts are multiplied by [`KEPT`]: about the last 1,300 count.
const BLOCK: u64 = 64;
const KEPT: f64 = 0.95;
/// What one completion is worth of an independent one: a long request is passed by many.
const WORTH: f64 = 0.5;
/// Most that is said against a candidate.
const MOST: f64 = 12.0;
/// Standard deviations by which the greatest place of late exceeds the mean one.
const SEEN: f64 = 2.0;
/// Squared coefficient of variation of service times; that of exponential ones is 1.
const LEAST_VARIATION: f64 = 0.5;

/// The order of requests, and what it says of the cores.
#[derive(Clone, Debug)]
pub(super) struct Overtaking {
    /// A bit for each of the last [`WINDOW`] turns: in flight. An ending that is lost stays until its bit comes
    /// round, and until then makes places too great, so that less is contradicted.
    inside: [u64; WORDS],
    next: u64,
    completions: u64,
    /// Of late, by how many were in flight.
    in_flight: [f64; CANDIDATES],
    /// Which completion was the last in a place, the first being 1; 0 for none.
    last_in: [u64; CANDIDATES],
}

impl Overtaking {
    pub(super) fn new() -> Self {
        Overtaking {
            inside: [0; WORDS],
            next: 0,
            completions: 0,
            in_flight: [0.0; CANDIDATES],
            last_in: [0; CANDIDATES],
        }
    }

    /// A request is admitted; its turn.
    pub(super) fn enter(&mut self) -> u64 {
        let turn = self.next;
        self.next += 1;
        let at = (turn % WINDOW) as usize;
        self.inside[at / 64] |= 1 << (at % 64);
        turn
    }

    /// The request of this turn is no longer in flight; its place, if it is known.
    pub(super) fn leave(&mut self, turn: u64) -> Option<u32> {
        if turn >= self.next || turn + WINDOW < self.next {
            return None;
        }
        let (at, oldest) = ((turn % WINDOW) as usize, (self.next % WINDOW) as usize);
        self.inside[at / 64] &= !(1 << (at % 64));
        let round = if at < oldest { self.before(WINDOW as usize) } else { 0 };
        Some(1 + self.before(at) + round - self.before(oldest))
    }

    /// One of so many was answered, in this place.
    pub(super) fn observe(&mut self, in_flight: u32, place: u32) {
        self.completions += 1;
        self.in_flight[position(in_flight.max(1))] += 1.0;
        self.last_in[position(place)] = self.completions;
        if self.completions.is_multiple_of(BLOCK) {
            self.in_flight.iter_mut().for_each(|count| *count *= KEPT);
        }
    }

    /// What each candidate is contradicted by, services having this squared variation and this reach.
    pub(super) fn misfits(&self, variation: f64, reach: f64) -> [f64; CANDIDATES] {
        let mut misfits = [0.0; CANDIDATES];
        let lately = |&last: &u64| last > 0 && self.completions - last < LATELY;
        let Some(seen) = self.last_in.iter().rposition(lately) else { return misfits };
        if variation < LEAST_VARIATION {
            return misfits;
        }
        // From one candidate to the next the logarithm grows for those that had as many in flight; the greatest
        // place may be any up to the first of them.
        let place = |cores: f64| greatest_place(cores, reach);
        let first = (seen + 1..CANDIDATES).find(|&k| place(cores(k)) > cores(seen));
        let Some(first) = first else { return misfits };
        let mut having: f64 = self.in_flight[first..].iter().sum();
        let (mut misfit, mut below) = (0.0, f64::INFINITY);
        for (k, contradicted) in misfits.iter_mut().enumerate().skip(first) {
            let most = place(cores(k));
            // What is subtracted one by one may leave a rest of rounding.
            if having > EQUAL {
                misfit += 2.0 * WORTH * having * (most / below.min(place(cores(k) - 1.0))).ln();
            }
            *contradicted = f64::min(misfit, MOST);
            having -= self.in_flight[k];
            below = most;
        }
        misfits
    }

    /// How many bits are set before this one.
    fn before(&self, at: usize) -> u32 {
        let whole: u32 = self.inside[..at / 64].iter().map(|word| word.count_ones()).sum();
        let part = self.inside.get(at / 64).map_or(0, |word| word & ((1 << (at % 64)) - 1));
        whole + part.count_ones()
    }
}

/// The greatest place to be expected of late among so many in service: the short ones leave `reach` of the others behind in
/// the mean, sometimes more, never more than all.
fn greatest_place(in_service: f64, reach: f64) -> f64 {
    let others = in_service - 1.0;
    let deviation = (reach * (1.0 - reach) * others).sqrt();
    (1.0 + reach * others + SEEN * deviation).min(in_service)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngCore, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn a_place_is_one_more_than_the_earlier_ones_in_flight_all_the_way_round() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let (mut overtaking, mut inside) = (Overtaking::new(), Vec::new());
        for _ in 0..20_000 {
            let at_most = if rng.next_u32() % 500 == 0 { 0 } else { 200 };
            while inside.len() > at_most {
                let at = rng.next_u32() as usize % inside.len();
                assert_eq!(overtaking.leave(inside.remove(at)), Some(at as u32 + 1));
            }
            // Some stay for long, but not for the whole window.
            if inside.first().is_some_and(|&first| first + WINDOW <= overtaking.next) {
                assert_eq!(overtaking.leave(inside.remove(0)), Some(1));
            }
            inside.push(overtaking.enter());
        }
    }

    #[test]
    fn a_request_out_of_the_window_has_no_place_and_affects_no_other() {
        let mut overtaking = Overtaking::new();
        let lost = overtaking.enter();
        let next = overtaking.enter();
        assert_eq!(overtaking.leave(next), Some(2));
        (0..WINDOW).for_each(|_| {
            let turn = overtaking.enter();
            overtaking.leave(turn);
        });
        assert_eq!(overtaking.leave(lost), None);
        let turn = overtaking.enter();
        assert_eq!(overtaking.leave(turn), Some(1));
        assert_eq!(overtaking.leave(turn + 1), None, "was never admitted");
    }

    /// Ten are always in flight, of which any of the `worked_on` earliest is done next.
    fn busy(worked_on: u32, completions: u32) -> Overtaking {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(u64::from(worked_on));
        let mut overtaking = Overtaking::new();
        for _ in 0..completions {
            overtaking.observe(10, 1 + rng.next_u32() % worked_on);
        }
        overtaking
    }

    #[test]
    fn more_cores_than_requests_overtake_are_contradicted_and_fewer_are_not() {
        for cores in [1, 2, 4, 8] {
            let misfits = busy(cores, 100).misfits(1.0, 1.0);
            let at = position(cores);
            assert!(misfits[..=at].iter().all(|&misfit| misfit == 0.0), "{cores}");
            assert!(misfits[at + 1..].iter().all(|&misfit| misfit >= 6.0), "{cores}: {misfits:?}");
        }
    }

    #[test]
    fn where_even_the_shortest_takes_some_time_more_cores_agree_with_a_place() {
        assert_eq!(greatest_place(4.0, 0.5), 4.0, "of a few all, now and then");
        assert_eq!((greatest_place(101.0, 0.5), greatest_place(101.0, 1.0)), (61.0, 101.0));
        let contradicted = |reach| busy(5, 1_000).misfits(1.0, reach)[position(10)];
        assert!(contradicted(0.1) == 0.0 && contradicted(0.9) >= 6.0);
        assert_eq!(busy(1, 1_000).misfits(1.0, 0.0), [0.0; CANDIDATES], "nobody overtakes anybody");
    }

    #[test]
    fn where_anybody_may_be_next_or_all_take_as_long_it_says_nothing() {
        assert_eq!(busy(10, 1_000).misfits(1.0, 1.0), [0.0; CANDIDATES], "shared processors");
        assert_eq!(busy(1, 1_000).misfits(0.1, 1.0), [0.0; CANDIDATES], "all as long");
    }

    #[test]
    fn cores_that_go_are_noticed_after_a_thousand_and_those_that_come_at_once() {
        let mut overtaking = busy(8, 1_000);
        (0..1_500).for_each(|_| overtaking.observe(10, 1));
        assert_eq!(overtaking.misfits(1.0, 1.0)[1], MOST);
        overtaking.observe(10, 4);
        let misfits = overtaking.misfits(1.0, 1.0);
        assert_eq!((misfits[position(4)], misfits[position(8)]), (0.0, MOST));
    }
}
