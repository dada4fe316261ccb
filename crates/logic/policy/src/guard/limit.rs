//! The per-backend limit: a backend with so many requests in flight takes no more until one ends. Backends of a list
//! have each their own, all others the same one. Exact, for it
//! counts what this balancer has sent; a failure does not stay in flight here, or a bad minute would make
//! the pool look full. Source: HAProxy's `maxconn` of a server, without its queue: what queues, if anything,
//! is the caller, that gets no backend.

use crate::state::Closed;

/// Requests in flight against a limit.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    /// By backend.
    own: Vec<u32>,
    /// Of those beyond that list.
    others: u32,
    count: Vec<u32>,
    full: Closed,
}

impl Limit {
    pub(super) fn new(own: &[u32], others: u32, backends: usize) -> Self {
        let (own, count) = (own.to_vec(), Vec::new());
        let mut limit = Limit { own, others, count, full: Closed::default() };
        limit.grow(backends);
        limit
    }

    /// Makes room for so many backends; never forgets one.
    pub(super) fn grow(&mut self, backends: usize) {
        self.count.resize(self.count.len().max(backends), 0);
        self.full.grow(backends);
    }

    pub(super) fn start(&mut self, backend: usize) {
        self.count[backend] += 1;
        self.review(backend);
    }

    pub(super) fn finish(&mut self, backend: usize) {
        self.count[backend] = self.count[backend].saturating_sub(1);
        self.review(backend);
    }

    fn review(&mut self, backend: usize) {
        let most = self.own.get(backend).copied().unwrap_or(self.others);
        self.full.set(backend, self.count[backend] >= most);
    }

    pub(super) fn full(&self) -> &Closed {
        &self.full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_until_one_ends() {
        let mut limit = Limit::new(&[], 2, 2);
        let full = |limit: &Limit| limit.full().iter().collect::<Vec<_>>();
        limit.start(1);
        assert!(limit.full().is_empty());
        limit.start(1);
        assert_eq!(full(&limit), [1]);
        // A request that was sent past the limit: two more must end.
        limit.start(1);
        limit.finish(1);
        assert_eq!(full(&limit), [1]);
        limit.finish(1);
        assert!(limit.full().is_empty());
    }

    #[test]
    fn each_of_the_list_has_its_own() {
        let mut limit = Limit::new(&[3, 1], 2, 3);
        for (backend, most) in [(0, 3), (1, 1), (2, 2)] {
            for k in 1..=most {
                assert!(!limit.full().contains(backend), "{backend}");
                limit.start(backend);
                assert_eq!(limit.full().contains(backend), k == most, "{backend}");
            }
        }
        limit.grow(5);
        (0..2).for_each(|_| limit.start(4));
        assert!(limit.full().contains(4), "who joins has what the others have");
    }
}
