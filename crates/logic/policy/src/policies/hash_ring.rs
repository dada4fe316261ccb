//! The nearest point on a ring to the request's key; each backend has [`NODES_PER_WEIGHT`] points per
//! unit of weight, up to [`MAX_NODES_EACH`]: beyond, all are scaled down alike. O(log points); points of who is not allowed are as if they were not there, and who has
//! its bound in flight leaves the key to the next point. Requests without a key go round the ring.
//!
//! Source: Karger and others, "Consistent Hashing and Random Trees" (1997); HAProxy's `hash-type
//! consistent` (`src/lb_chash.c`): the points and the choice are the same, see `tests/haproxy.rs`, up to
//! [`MAX_NODES`] in all. When a backend leaves, its keys alone move. Shares are as uneven as the points
//! fall: 16 points each spread by 25 %, so give equal backends a weight of 16 and more.

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::key::full_hash;
use crate::state::Bound;
use crate::{Finish, Policy, Request, Settings};

/// HAProxy's `BE_WEIGHT_SCALE`.
const NODES_PER_WEIGHT: u64 = 16;
/// Names of a backend's points are this far from the next one's: HAProxy's `SRV_EWGHT_RANGE`.
const NAMES_PER_BACKEND: u32 = 4_096;
/// More points of one backend, of a weight above HAProxy's greatest, 256, would have the names of the next one's.
const MAX_NODES_EACH: u64 = NAMES_PER_BACKEND as u64;
/// More points than this are scaled down: HAProxy's greatest weight for 256 backends.
const MAX_NODES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    at: u32,
    backend: u32,
}

/// The nearest point on a ring.
pub struct HashRing {
    nodes: Vec<Node>,
    bound: Bound,
    turn: usize,
}

impl HashRing {
    /// Over backends of these weights; heeds `hash_balance_factor`.
    pub fn new(weights: &[u32], settings: &Settings) -> Self {
        let bound = Bound::new(weights, settings.hash_balance_factor);
        let mut policy = HashRing { nodes: Vec::new(), bound, turn: 0 };
        policy.place(weights);
        policy
    }

    fn place(&mut self, weights: &[u32]) {
        let greatest = u64::from(weights.iter().copied().max().unwrap_or(0)).max(1);
        let sum = weights.iter().map(|&w| u64::from(w)).sum::<u64>().max(1);
        // Points per unit of weight, as a fraction: the least that one of the three allows.
        let by_names = (MAX_NODES_EACH, greatest);
        let by_all = (MAX_NODES, sum);
        let (points, per) = [by_names, by_all].into_iter().fold((NODES_PER_WEIGHT, 1), lesser);
        self.nodes.clear();
        for (backend, &weight) in (0u32..).zip(weights) {
            let nodes = u128::from(weight) * u128::from(points) / u128::from(per);
            let nodes = (nodes as u32).max(weight.min(1));
            // HAProxy counts its servers from 1.
            let name = (backend + 1).wrapping_mul(NAMES_PER_BACKEND);
            let node = |k: u32| Node { at: full_hash(name.wrapping_add(k)), backend };
            self.nodes.extend((0..nodes).map(node));
        }
        self.nodes.sort_unstable();
    }

    /// The nearest point whose backend the request allows: the others are as if they were not there.
    fn nearest(&self, key: u64, request: &Request<'_>) -> Option<usize> {
        // HAProxy's hashes are 32 bits wide and stay what they are.
        let at = (key >> 32) as u32 ^ key as u32;
        let n = self.nodes.len();
        let from = self.nodes.partition_point(|node| node.at < at);
        let open = |at: &usize| request.allows(self.nodes[*at].backend as usize);
        let next = (from..n).chain(0..from).find(open)?;
        let before = (0..from).rev().chain((from..n).rev()).find(open)?;
        let nearer = at.wrapping_sub(self.nodes[before].at) <= self.nodes[next].at.wrapping_sub(at);
        Some(if nearer { before } else { next })
    }
}

/// The lesser of two fractions, each a numerator and a denominator above 0.
fn lesser(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    let of = |x: (u64, u64), y: (u64, u64)| u128::from(x.0) * u128::from(y.1);
    if of(b, a) < of(a, b) { b } else { a }
}

impl Policy for HashRing {
    fn set_weights(&mut self, weights: &[u32]) {
        self.place(weights);
        self.bound.set_weights(weights);
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, _rng: &mut dyn RngCore) -> Option<usize> {
        let n = self.nodes.len();
        if n == 0 {
            return None;
        }
        let from = match request.key {
            Some(key) => self.nearest(key, request)?,
            None => self.turn % n,
        };
        let HashRing { nodes, bound, .. } = self;
        let backend = |at: usize| nodes[at].backend as usize;
        let open = |at: &usize| request.allows(backend(*at));
        let bounded =
            (from..n).chain(0..from).find(|at| open(at) && bound.allows(backend(*at), now));
        // All that are left have their bound: it yields before the request does.
        let at = match bounded {
            Some(at) => at,
            None => (from..n).chain(0..from).find(open)?,
        };
        if request.key.is_none() {
            self.turn = at + 1;
        }
        Some(self.nodes[at].backend as usize)
    }

    fn on_start(&mut self, backend: usize, _now: Nanos) {
        self.bound.start(backend);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.bound.finish(backend, finish, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn places(policy: &mut HashRing, keys: u32) -> Vec<usize> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let key = |k| u64::from(full_hash(k));
        let mut pick = |k| policy.pick(&Request::with_key(key(k)), Nanos::ZERO, &mut rng);
        (0..keys).map(|k| pick(k).unwrap()).collect()
    }

    #[test]
    fn only_the_keys_of_who_leaves_move() {
        let mut ring = HashRing::new(&[16; 10], &Settings::default());
        let before = places(&mut ring, 20_000);
        let mut weights = [16; 10];
        weights[3] = 0;
        ring.set_weights(&weights);
        let after = places(&mut ring, 20_000);
        assert!(before.iter().zip(&after).all(|(b, a)| b == a || *b == 3));
        assert!(!after.contains(&3));
        for i in (0..10).filter(|&i| i != 3) {
            let share = after.iter().filter(|&&p| p == i).count() as f64 / 20_000.0;
            assert!((share - 1.0 / 9.0).abs() < 0.035, "{i}: {share}");
        }
    }

    #[test]
    fn weights_of_any_scale_are_shares() {
        let shares = |weights: &[u32]| {
            let mut ring = HashRing::new(weights, &Settings::default());
            assert!(ring.nodes.windows(2).filter(|w| w[0].at == w[1].at).count() < 20);
            let picks = places(&mut ring, 100_000);
            let of = |i| picks.iter().filter(|&&p| p == i).count() as f64 / 100_000.0;
            (0..weights.len()).map(of).collect::<Vec<f64>>()
        };
        for scale in [1, 4, 1_000_000] {
            for (i, share) in shares(&[250 * scale; 4]).into_iter().enumerate() {
                assert!((share - 0.25).abs() < 0.02, "{scale}, {i}: {share}");
            }
            for (share, due) in
                shares(&[100 * scale, 300 * scale, 0]).into_iter().zip([0.25, 0.75, 0.0])
            {
                assert!((share - due).abs() < 0.02, "{scale}: {share} for {due}");
            }
        }
        let mut most = HashRing::new(&[u32::MAX, 1, 0], &Settings::default());
        let points = |i| most.nodes.iter().filter(|node| node.backend == i).count();
        assert_eq!([0, 1, 2].map(points), [4_096, 1, 0], "the lightest keeps one");
        most.set_weights(&[256; 2]);
        assert_eq!(most.nodes.len(), 2 * 4_096, "HAProxy's own, all of them");
    }

    #[test]
    fn a_crowd_of_one_key_spills_over_in_order() {
        let settings = Settings { hash_balance_factor: Some(150), ..Settings::default() };
        let mut ring = HashRing::new(&[16; 5], &settings);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut count = [0u32; 5];
        for k in 0..100u32 {
            let i = ring.pick(&Request::with_key(7), Nanos::ZERO, &mut rng).unwrap();
            ring.on_start(i, Nanos::ZERO);
            count[i] += 1;
            let most = (f64::from(k + 1) / 5.0 * 1.5).ceil() as u32 + 1;
            assert!(count.iter().all(|&c| c <= most), "{count:?} of {k}");
        }
        assert!(count.iter().filter(|&&c| c >= 29).count() >= 3, "as few as can be: {count:?}");
        let all: Vec<usize> = (0..5).filter(|&i| i != 2).collect();
        (0..100).for_each(|_| ring.on_start(2, Nanos::ZERO));
        let only = Request::with_key(7).avoiding(&all);
        assert_eq!(ring.pick(&only, Nanos::ZERO, &mut rng), Some(2), "the bound yields");
    }
}
