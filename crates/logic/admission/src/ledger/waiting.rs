//! Backends that are not eligible, by when they will be: a binary heap that knows where each stands, so
//! that a backend that earns a chip leaves from the middle. O(log n), no allocation but in [`Waiting::grow`].

use plimsoll_model::Nanos;

use super::NOWHERE;

/// A heap of backends, the earliest first; of equals the lesser index.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    heap: Vec<(Nanos, u32)>,
    /// Position of each backend in the heap, or nowhere.
    places: Vec<u32>,
}

impl Waiting {
    /// Makes room for so many backends.
    pub(super) fn grow(&mut self, backends: usize) {
        self.places.resize(self.places.len().max(backends), NOWHERE);
        self.heap.reserve(self.places.len().saturating_sub(self.heap.len()));
    }

    pub(super) fn contains(&self, backend: usize) -> bool {
        self.places[backend] != NOWHERE
    }

    /// The backend that is ready first.
    pub(super) fn first(&self) -> Option<usize> {
        self.heap.first().map(|&(_, backend)| backend as usize)
    }

    /// Which of those allowed is ready first: the first, or O(n).
    pub(super) fn earliest(&self, allowed: &impl Fn(usize) -> bool) -> Option<usize> {
        let found = self.first().filter(|&backend| allowed(backend));
        found.or_else(|| {
            let open = self.heap.iter().filter(|&&(_, backend)| allowed(backend as usize));
            open.min().map(|&(_, backend)| backend as usize)
        })
    }

    /// A backend that is not there waits until then.
    pub(super) fn insert(&mut self, backend: usize, ready_at: Nanos) {
        self.heap.push((ready_at, backend as u32));
        self.up(self.heap.len() - 1);
    }

    /// Nothing happens to a backend that is not there.
    pub(super) fn remove(&mut self, backend: usize) {
        let place = std::mem::replace(&mut self.places[backend], NOWHERE);
        if place == NOWHERE {
            return;
        }
        let place = place as usize;
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            let place = self.up(place);
            self.down(place);
        }
    }

    /// Lifts the backend here to the right place, which is returned.
    fn up(&mut self, mut place: usize) -> usize {
        while place > 0 && self.heap[place] < self.heap[(place - 1) / 2] {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        self.settle(place);
        place
    }

    fn down(&mut self, mut place: usize) {
        loop {
            let children = (2 * place + 1..2 * place + 3).filter(|&child| child < self.heap.len());
            let least = children.min_by_key(|&child| self.heap[child]);
            match least.filter(|&child| self.heap[child] < self.heap[place]) {
                Some(child) => self.swap(place, child),
                None => break self.settle(place),
            }
            place = least.unwrap_or(place);
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.settle(one);
        self.settle(other);
    }

    fn settle(&mut self, place: usize) {
        self.places[self.heap[place].1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngCore, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use std::collections::BTreeSet;

    #[test]
    fn it_agrees_with_an_ordered_set() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut waiting = Waiting::default();
        waiting.grow(50);
        let mut plain = BTreeSet::new();
        for _ in 0..20_000 {
            let backend = (rng.next_u64() % 50) as usize;
            let known = plain.iter().find(|&&(_, b)| b == backend).copied();
            assert_eq!(waiting.contains(backend), known.is_some());
            match known {
                Some(entry) => {
                    plain.remove(&entry);
                    waiting.remove(backend);
                }
                None => {
                    let at = Nanos(rng.next_u64() % 20);
                    plain.insert((at, backend));
                    waiting.insert(backend, at);
                }
            }
            assert_eq!(waiting.first(), plain.first().map(|entry| entry.1));
            let odd = plain.iter().find(|entry| entry.1 % 2 == 1).map(|entry| entry.1);
            assert_eq!(waiting.earliest(&|b| b % 2 == 1), odd);
        }
    }
}
