//! Backends in an order that goes round, each as often as it has turns or points there, and the next of them
//! that may be had.
//!
//! The entries at hand are tried first; mostly the very first does. Where they are all closed, going on would
//! take as many steps as there are entries, hundreds of thousands, and most of all when none is open. So each
//! backend is then asked once, and of those open the nearest entry is looked up in a list of its own:
//! O(n + open·log entries), and O(n) when none is.

/// With half of all entries closed, one search in 4 billion needs more.
const TRIES: usize = 32;

/// The order, and where each backend stands in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    entries: Vec<u32>,
    /// Where each backend's list begins in `places`, and where the last one's ends.
    begins: Vec<u32>,
    /// Places in the order, backend by backend.
    places: Vec<u32>,
}

impl Round {
    /// Has `fill` write the order of so many backends anew, over what it was.
    pub(crate) fn set(&mut self, backends: usize, fill: impl FnOnce(&mut Vec<u32>)) {
        fill(&mut self.entries);
        self.begins.clear();
        self.begins.resize(backends + 1, 0);
        self.entries.iter().for_each(|&i| self.begins[i as usize + 1] += 1);
        for i in 0..backends {
            self.begins[i + 1] += self.begins[i];
        }
        self.places.resize(self.entries.len(), 0);
        // Each beginning moves to its end while its list is written, and so to where the next one began.
        for (place, &i) in (0u32..).zip(&self.entries) {
            let slot = &mut self.begins[i as usize];
            self.places[*slot as usize] = place;
            *slot += 1;
        }
        self.begins.rotate_right(1);
        self.begins[0] = 0;
    }

    pub(crate) fn entries(&self) -> &[u32] {
        &self.entries
    }

    /// The backend at this place.
    pub(crate) fn backend(&self, place: usize) -> usize {
        self.entries[place] as usize
    }

    /// The first place from `at` on and around whose backend may be had.
    pub(crate) fn next(&self, at: usize, mut open: impl FnMut(usize) -> bool) -> Option<usize> {
        let all = self.entries.len();
        let mut place = if at < all { at } else { 0 };
        for _ in 0..TRIES.min(all) {
            if open(self.backend(place)) {
                return Some(place);
            }
            place = if place + 1 < all { place + 1 } else { 0 };
        }
        let after = |places: &[u32]| {
            let k = places.partition_point(|&p| (p as usize) < place);
            *places.get(k).unwrap_or(&places[0]) as usize
        };
        let way = |to: usize| if to >= place { to - place } else { to + all - place };
        self.of_open(open).map(after).min_by_key(|&to| way(to))
    }

    /// The last place before `at` and around whose backend may be had.
    pub(crate) fn previous(&self, at: usize, mut open: impl FnMut(usize) -> bool) -> Option<usize> {
        let all = self.entries.len();
        // One more than the place that is looked at.
        let mut end = at.min(all);
        for _ in 0..TRIES.min(all) {
            end = if end == 0 { all } else { end };
            if open(self.backend(end - 1)) {
                return Some(end - 1);
            }
            end -= 1;
        }
        let before = |places: &[u32]| {
            let k = places.partition_point(|&p| (p as usize) < end);
            places[if k == 0 { places.len() - 1 } else { k - 1 }] as usize
        };
        let way = |to: usize| if to < end { end - to } else { end + all - to };
        self.of_open(open).map(before).min_by_key(|&to| way(to))
    }

    /// The lists of those that may be had and stand in the order; none when all of it was tried.
    fn of_open(&self, mut open: impl FnMut(usize) -> bool) -> impl Iterator<Item = &[u32]> {
        let backends = if self.entries.len() > TRIES { self.begins.len() - 1 } else { 0 };
        let list = |i: usize| &self.places[self.begins[i] as usize..self.begins[i + 1] as usize];
        (0..backends).filter(move |&i| !list(i).is_empty() && open(i)).map(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngCore, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn the_nearest_open_one_either_way_by_walking_or_by_lists() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut round = Round::default();
        for turn in 0..3_000 {
            let backends = 1 + rng.next_u64() % 9;
            let length = rng.next_u64() % [12, 400][turn % 2];
            round.set(backends as usize, |entries| {
                entries.clear();
                // The first of them is seldom.
                let mut draw = || rng.next_u64() % 60 % backends.max(2);
                entries.extend((0..length).map(|_| draw().min(backends - 1) as u32));
            });
            let closed = rng.next_u64() & rng.next_u64().rotate_left(turn as u32);
            let closed = if turn % 3 == 0 { !1 } else { closed };
            let open = |i: usize| closed >> i & 1 == 0;
            let at = (rng.next_u64() % (length + 2)) as usize;
            let all = length as usize;
            let from = if at < all { at } else { 0 };
            let ahead = (from..all).chain(0..from).find(|&p| open(round.backend(p)));
            assert_eq!(round.next(at, open), ahead);
            let end = at.min(all);
            let mut behind = (0..end).rev().chain((end..all).rev());
            let behind = behind.find(|&p| open(round.backend(p)));
            assert_eq!(round.previous(at, open), behind);
        }
    }

    #[test]
    fn tries_are_bounded_when_no_backend_is_open() {
        let mut round = Round::default();
        round.set(10, |entries| entries.extend((0..100_000).map(|k| k % 10)));
        let mut asked = 0;
        let mut closed = |_| {
            asked += 1;
            false
        };
        assert_eq!(round.next(77, &mut closed), None);
        assert_eq!(round.previous(77, &mut closed), None);
        assert_eq!(asked, 2 * (TRIES + 10));
    }
}
