//! HAProxy's roundrobin with its real keys, turn by turn as a HAProxy of one thread has them.
//!
//! A server's turn comes when the group's position reaches its own; a turn moves it on by
//! `next_weight / eweight` (remainders are carried), `eweight = 16·weight`. Servers wait in three trees:
//! `init` (not yet served in this round, heaviest first), `curr` (by position) and `next` (the next
//! round); when both are empty, `init` and `next` are swapped (`src/lb_fwrr.c`, HAProxy 2.6). A server that
//! is passed over, because it is full or the request must avoid it, pays for its turn and is put back. A pick
//! costs O(log n) in HAProxy and O(n) here. A weight that changes begins that server's part of the
//! round anew: change it more often than a round lasts, and a light server starves, as in HAProxy.

use crate::des::Pick;

const SCALE: i64 = 16;
const HEAVIEST: i64 = 256 * SCALE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tree {
    Out,
    Curr,
    /// One of the two that are swapped.
    Side(bool),
}

#[derive(Clone, Debug)]
struct Server {
    eweight: i64,
    tree: Tree,
    key: i64,
    /// When it was inserted: of equal keys the first comes first.
    order: u64,
    npos: i64,
    lpos: i64,
    rweight: i64,
}

/// HAProxy's roundrobin over one pool.
#[derive(Clone, Debug)]
pub struct HaproxyRoundRobin {
    servers: Vec<Server>,
    /// Which side is `init`; the other is `next`.
    init: bool,
    curr_weight: i64,
    next_weight: i64,
    curr_pos: i64,
    inserted: u64,
    /// Those passed over by the pick at hand; empty in between.
    passed: Vec<usize>,
}

impl HaproxyRoundRobin {
    /// A pool with these weights (0…256), in the order of the configuration.
    pub fn new(weights: &[u32]) -> Self {
        let server = |&w: &u32| Server {
            eweight: i64::from(w) * SCALE,
            tree: Tree::Out,
            key: 0,
            order: 0,
            npos: 0,
            lpos: 0,
            rweight: 0,
        };
        let servers: Vec<Server> = weights.iter().map(server).collect();
        let sum = servers.iter().map(|s| s.eweight).sum();
        let mut group = HaproxyRoundRobin {
            servers,
            init: false,
            curr_weight: sum,
            next_weight: sum,
            curr_pos: sum,
            inserted: 0,
            passed: Vec::with_capacity(weights.len()),
        };
        for (i, _) in weights.iter().enumerate().filter(|(_, w)| **w > 0) {
            group.queue_by_weight(i, group.init);
        }
        group
    }

    fn insert(&mut self, i: usize, tree: Tree, key: i64) {
        self.inserted += 1;
        let s = &mut self.servers[i];
        (s.tree, s.key, s.order) = (tree, key, self.inserted);
    }

    fn queue_by_weight(&mut self, i: usize, side: bool) {
        let key = HEAVIEST - self.servers[i].eweight;
        self.insert(i, Tree::Side(side), key);
    }

    /// Inserts a server into the tree for its position.
    fn queue(&mut self, i: usize) {
        let s = &mut self.servers[i];
        let beyond =
            s.npos >= 2 * self.curr_weight || s.npos >= self.curr_weight + self.next_weight;
        if s.eweight <= 0 || beyond {
            s.npos -= self.curr_weight;
            self.queue_by_weight(i, !self.init);
            return;
        }
        let key = 256 * s.npos + (HEAVIEST + s.rweight - s.eweight) / SCALE;
        self.insert(i, Tree::Curr, key);
    }

    fn first(&self, tree: Tree) -> Option<usize> {
        let of = |i: &usize| self.servers[*i].tree == tree;
        (0..self.servers.len())
            .filter(of)
            .min_by_key(|&i| (self.servers[i].key, self.servers[i].order))
    }

    fn next_server(&mut self) -> Option<usize> {
        let due = self.first(Tree::Curr);
        if due.is_some_and(|i| self.servers[i].npos <= self.curr_pos) {
            return due;
        }
        let Some(fresh) = self.first(Tree::Side(self.init)) else { return due };
        let s = &mut self.servers[fresh];
        (s.npos, s.rweight) = (0, 0);
        Some(fresh)
    }

    fn move_on(&mut self, i: usize) {
        let (pos, next) = (self.curr_pos, self.next_weight);
        let s = &mut self.servers[i];
        s.lpos = if s.npos == 0 { pos } else { s.npos };
        s.npos = s.lpos + next / s.eweight;
        s.rweight += next % s.eweight;
        if s.rweight >= s.eweight {
            s.rweight -= s.eweight;
            s.npos += 1;
        }
    }

    /// Changes the weight of a server, as `set server … weight` does.
    pub fn set_weight(&mut self, i: usize, weight: u32) {
        let new = i64::from(weight) * SCALE;
        let old = self.servers[i].eweight;
        if new == old {
            return;
        }
        self.next_weight += new - old;
        self.servers[i].eweight = new;
        let (curr, next, pos) = (self.curr_weight, self.next_weight, self.curr_pos);
        if new == 0 {
            self.servers[i].tree = Tree::Out;
        } else if old == 0 {
            self.servers[i].npos = pos + (next + curr - pos) / new;
            self.queue(i);
        } else if self.servers[i].tree == Tree::Side(self.init) {
            self.queue_by_weight(i, self.init);
        } else {
            let s = &mut self.servers[i];
            if s.tree == Tree::Side(!self.init) {
                s.npos += curr;
            }
            let step = next / new;
            s.npos = s.npos.min(s.lpos + step);
            s.rweight = 0;
            if s.npos < pos + 2 {
                s.npos = pos + step;
            }
            self.queue(i);
        }
    }
}

impl HaproxyRoundRobin {
    /// How many servers it has, those of weight 0 included.
    pub fn servers(&self) -> usize {
        self.servers.len()
    }

    /// Adds a server of this weight at the end, as one that comes up.
    pub fn add(&mut self, weight: u32) {
        self.servers.push(Server {
            eweight: 0,
            tree: Tree::Out,
            key: 0,
            order: 0,
            npos: 0,
            lpos: 0,
            rweight: 0,
        });
        self.passed.reserve(self.servers.len());
        self.set_weight(self.servers.len() - 1, weight);
    }

    /// The server whose turn it is, among those allowed: `fwrr_get_next_server`.
    pub fn pick_where(&mut self, allowed: impl Fn(usize) -> bool) -> Option<usize> {
        if self.next_weight == 0 {
            return None;
        }
        if self.curr_weight == 0 {
            (self.curr_weight, self.curr_pos) = (self.next_weight, self.next_weight);
        }
        let mut switched = false;
        let picked = loop {
            let Some(next) = self.next_server() else {
                if switched {
                    break None;
                }
                switched = true;
                self.init = !self.init;
                self.curr_weight = self.next_weight;
                self.curr_pos = self.curr_weight;
                continue;
            };
            self.move_on(next);
            self.curr_pos += 1;
            self.servers[next].tree = Tree::Out;
            if allowed(next) {
                self.queue(next);
                break Some(next);
            }
            self.passed.push(next);
        };
        while let Some(i) = self.passed.pop() {
            // After a change of trees their places are lost, and only their weights matter.
            if switched { self.queue_by_weight(i, self.init) } else { self.queue(i) }
        }
        picked
    }
}

impl Pick for HaproxyRoundRobin {
    fn pick(&mut self) -> Option<usize> {
        self.pick_where(|_| true)
    }

    fn changed(&mut self, _: usize, _: u32) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(group: &mut HaproxyRoundRobin, picks: usize) -> Vec<usize> {
        let mut seen = vec![0; group.servers.len()];
        for _ in 0..picks {
            seen[group.pick().expect("a server with a weight")] += 1;
        }
        seen
    }

    #[test]
    fn shares_follow_weights() {
        let weights = [120, 33, 0, 7, 256];
        let mut group = HaproxyRoundRobin::new(&weights);
        let seen = counts(&mut group, 41_600);
        for (n, w) in seen.iter().zip(weights) {
            let exact = 100.0 * f64::from(w);
            assert!((*n as f64 - exact).abs() <= 0.02 * exact + 2.0, "{seen:?}");
        }
        assert!(HaproxyRoundRobin::new(&[0, 0]).pick().is_none());
    }

    #[test]
    fn equal_weights_take_turns() {
        let mut group = HaproxyRoundRobin::new(&[5, 5, 5]);
        let picks: Vec<usize> = (0..9).filter_map(|_| group.pick()).collect();
        for turn in picks.chunks(3) {
            let mut turn = turn.to_vec();
            turn.sort_unstable();
            assert_eq!(turn, [0, 1, 2], "{picks:?}");
        }
    }

    #[test]
    fn servers_that_are_passed_over_are_not_lost() {
        let mut group = HaproxyRoundRobin::new(&[3, 2, 1]);
        for _ in 0..100 {
            assert_eq!(group.pick_where(|_| false), None);
            assert_eq!(group.pick_where(|i| i == 2), Some(2));
        }
        let seen = counts(&mut group, 6_000);
        for (n, due) in seen.iter().zip([3_000, 2_000, 1_000]) {
            assert!(n.abs_diff(due) < 60, "{seen:?}");
        }
        group.add(6);
        let seen = counts(&mut group, 12_000);
        assert!(seen[3].abs_diff(6_000) < 100, "{seen:?}");
        assert_eq!(group.servers(), 4);
    }

    #[test]
    fn weights_changed_during_a_round_apply_from_then_on() {
        let mut group = HaproxyRoundRobin::new(&[10, 10, 10]);
        counts(&mut group, 17);
        group.set_weight(0, 0);
        group.set_weight(1, 30);
        let seen = counts(&mut group, 4_000);
        assert_eq!(seen[0], 0);
        assert!((seen[1] as f64 / seen[2] as f64 - 3.0).abs() < 0.1, "{seen:?}");
        group.set_weight(0, 20);
        let seen = counts(&mut group, 6_000);
        assert!((seen[0] as f64 / 2_000.0 - 1.0).abs() < 0.05, "{seen:?}");
    }
}
