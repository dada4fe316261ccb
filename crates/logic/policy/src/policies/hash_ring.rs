//! The nearest point on a ring to the request's key; each backend has [`NODES_PER_WEIGHT`] points per
//! unit of weight, up to [`MAX_NODES_EACH`]: beyond, all are scaled down alike. Points of a backend not allowed are as
//! if they were not there, and one that has its bound in flight leaves the key to the next point. Requests without a
//! key go round the ring. O(log points), and at most O(n log points) where most are avoided, closed or at their
//! bound (`state/round.rs`). When weights change, only points that come or go are hashed and sorted; the rest
//! is one pass over the ring.
//!
//! Source: Karger and others, "Consistent Hashing and Random Trees" (1997); HAProxy's `hash-type
//! consistent` (`src/lb_chash.c`): the points and the choice are the same, see `tests/haproxy.rs`, up to
//! [`MAX_NODES`] in all. When a backend leaves, its keys alone move. Shares are as uneven as the points
//! fall: 16 points each spread by 25 %, so give equal backends a weight of 16 and more.

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::key::full_hash;
use crate::state::{Bound, Round};
use crate::{Finish, Policy, Request, Settings};

/// HAProxy's `BE_WEIGHT_SCALE`.
const NODES_PER_WEIGHT: u64 = 16;
/// Names of a backend's points are this far from the next one's: HAProxy's `SRV_EWGHT_RANGE`.
const NAMES_PER_BACKEND: u32 = 4_096;
/// More points of one backend, of a weight above HAProxy's greatest, 256, would have the names of the next one's.
const MAX_NODES_EACH: u64 = NAMES_PER_BACKEND as u64;
/// More points than this are scaled down: HAProxy's greatest weight for 256 backends.
const MAX_NODES: u64 = 1 << 20;

/// Where a point stands, and whose it is: in the order of the ring, and of backends where points meet.
fn node(at: u32, backend: usize) -> u64 {
    u64::from(at) << 32 | backend as u64
}

/// The points in order: where each stands, and whose it is.
#[derive(Clone, Debug, Default)]
struct Ring {
    at: Vec<u32>,
    round: Round,
    /// How many points each backend has.
    points: Vec<u32>,
}

impl Ring {
    fn set_weights(&mut self, weights: &[u32]) {
        let greatest = u64::from(weights.iter().copied().max().unwrap_or(0)).max(1);
        let sum = weights.iter().map(|&w| u64::from(w)).sum::<u64>().max(1);
        // Points per unit of weight, as a fraction: the least that one of the three allows.
        let by_names = (MAX_NODES_EACH, greatest);
        let by_all = (MAX_NODES, sum);
        let (points, per) = [by_names, by_all].into_iter().fold((NODES_PER_WEIGHT, 1), lesser);
        let backends = self.points.len().max(weights.len());
        self.points.resize(backends, 0);
        let (mut coming, mut going) = (Vec::new(), Vec::new());
        for (backend, had) in self.points.iter_mut().enumerate() {
            let weight = weights.get(backend).copied().unwrap_or(0);
            let has = u128::from(weight) * u128::from(points) / u128::from(per);
            let has = (has as u32).max(weight.min(1));
            // HAProxy counts its servers from 1.
            let name = (backend as u32 + 1).wrapping_mul(NAMES_PER_BACKEND);
            let point = |k: u32| node(full_hash(name.wrapping_add(k)), backend);
            coming.extend((*had..has).map(point));
            going.extend((has..*had).map(point));
            *had = has;
        }
        coming.sort_unstable();
        going.sort_unstable();
        let Ring { at, round, .. } = self;
        round.set(backends, |owners| {
            take_out(at, owners, &going);
            put_in(at, owners, &coming);
        });
    }

    /// The nearest point whose backend the request allows: the others are as if they were not there.
    fn nearest(&self, key: u64, request: &Request<'_>) -> Option<usize> {
        // HAProxy's hashes are 32 bits wide and stay what they are.
        let at = (key >> 32) as u32 ^ key as u32;
        let from = self.at.partition_point(|&point| point < at);
        let next = self.round.next(from, |i| request.allows(i))?;
        let before = self.round.previous(from, |i| request.allows(i))?;
        let nearer = at.wrapping_sub(self.at[before]) <= self.at[next].wrapping_sub(at);
        Some(if nearer { before } else { next })
    }
}

/// Takes these points, in order, out of the ring, of which all are in it.
fn take_out(at: &mut Vec<u32>, owners: &mut Vec<u32>, going: &[u64]) {
    let (mut kept, mut gone) = (0, 0);
    for k in 0..at.len() {
        if going.get(gone) == Some(&node(at[k], owners[k] as usize)) {
            gone += 1;
        } else {
            (at[kept], owners[kept]) = (at[k], owners[k]);
            kept += 1;
        }
    }
    at.truncate(kept);
    owners.truncate(kept);
}

/// Puts these points, in order, into the ring, from its end on.
fn put_in(at: &mut Vec<u32>, owners: &mut Vec<u32>, coming: &[u64]) {
    let mut old = at.len();
    let mut place = old + coming.len();
    at.resize(place, 0);
    owners.resize(place, 0);
    for &point in coming.iter().rev() {
        while old > 0 && node(at[old - 1], owners[old - 1] as usize) > point {
            (old, place) = (old - 1, place - 1);
            (at[place], owners[place]) = (at[old], owners[old]);
        }
        place -= 1;
        (at[place], owners[place]) = ((point >> 32) as u32, point as u32);
    }
}

/// The nearest point on a ring.
pub struct HashRing {
    ring: Ring,
    bound: Bound,
    turn: usize,
}

impl HashRing {
    /// Over backends of these weights; heeds `hash_balance_factor`.
    pub fn new(weights: &[u32], settings: &Settings) -> Self {
        let bound = Bound::new(weights, settings.hash_balance_factor);
        let mut policy = HashRing { ring: Ring::default(), bound, turn: 0 };
        policy.ring.set_weights(weights);
        policy
    }
}

/// The lesser of two fractions, each a numerator and a denominator above 0.
fn lesser(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    let of = |x: (u64, u64), y: (u64, u64)| u128::from(x.0) * u128::from(y.1);
    if of(b, a) < of(a, b) { b } else { a }
}

impl Policy for HashRing {
    fn set_weights(&mut self, weights: &[u32]) {
        self.ring.set_weights(weights);
        self.bound.set_weights(weights);
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, _rng: &mut dyn RngCore) -> Option<usize> {
        let from = match request.key {
            Some(key) => self.ring.nearest(key, request)?,
            None => self.turn % self.ring.at.len().max(1),
        };
        let at = self.bound.next(&self.ring.round, from, request, now)?;
        if request.key.is_none() {
            self.turn = at + 1;
        }
        Some(self.ring.round.backend(at))
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
    fn only_the_keys_of_a_backend_that_leaves_move() {
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
            assert!(ring.ring.at.windows(2).filter(|w| w[0] == w[1]).count() < 20);
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
        assert_eq!(most.ring.points, [4_096, 1, 0], "the lightest keeps one");
        most.set_weights(&[256; 2]);
        assert_eq!(most.ring.at.len(), 2 * 4_096, "HAProxy's own, all of them");
    }

    #[test]
    fn a_ring_is_its_weights_whatever_they_were_before() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut ring = Ring::default();
        for turn in 0..200 {
            let n = 1 + rng.next_u64() % 9;
            let most = [3, 40, 300, u64::from(u32::MAX)][turn % 4];
            let weights: Vec<u32> = (0..n).map(|_| (rng.next_u64() % most) as u32).collect();
            ring.set_weights(&weights);
            let mut anew = Ring::default();
            anew.set_weights(&weights);
            assert_eq!(ring.at, anew.at, "{weights:?}");
            assert_eq!(ring.round.entries(), anew.round.entries(), "{weights:?}");
            assert!(ring.at.is_sorted());
            let points = |i: usize| ring.round.entries().iter().filter(|&&o| o == i as u32).count();
            assert!((0..n as usize).all(|i| points(i) == ring.points[i] as usize));
        }
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
