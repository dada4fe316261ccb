//! Draws in proportion to weights that change with every request: sums of sixteen, so that a draw reads
//! n/16 of them and then sixteen, and a change adds up sixteen.

use rand::RngCore;

use crate::{MAX_AVOID, Request};

const BLOCK: usize = 16;

/// A weight per backend, 0 for those that are out.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    parts: Vec<f32>,
    sums: Vec<f32>,
    hidden: Vec<(usize, f32)>,
}

impl Shares {
    /// Of so many backends, all out.
    pub(super) fn reset(&mut self, backends: usize) {
        self.parts.clear();
        self.parts.resize(backends, 0.0);
        self.sums.clear();
        self.sums.resize(backends.div_ceil(BLOCK), 0.0);
        self.hidden.clear();
        self.hidden.reserve(backends + MAX_AVOID);
    }

    /// Gives a backend its weight; one that was given no room is out anyhow.
    pub(super) fn set(&mut self, backend: usize, part: f32) {
        if let Some(slot) = self.parts.get_mut(backend) {
            *slot = part;
            let block = backend / BLOCK;
            let end = (BLOCK * (block + 1)).min(self.parts.len());
            self.sums[block] = self.parts[BLOCK * block..end].iter().sum();
        }
    }

    /// Draws one that the request allows.
    pub(super) fn draw(&mut self, request: &Request<'_>, rng: &mut dyn RngCore) -> Option<usize> {
        self.hide_for(request);
        let backend = self.throw(rng);
        self.restore();
        backend
    }

    /// Draws up to `count` more different ones that the request allows.
    pub(super) fn draw_some(
        &mut self,
        count: u32,
        request: &Request<'_>,
        rng: &mut dyn RngCore,
        drawn: &mut Vec<usize>,
    ) {
        self.hide_for(request);
        for &i in drawn.iter() {
            self.hide(i);
        }
        for _ in 0..count {
            let Some(i) = self.throw(rng) else { break };
            self.hide(i);
            drawn.push(i);
        }
        self.restore();
    }

    /// Hides the backends that the request does not allow.
    fn hide_for(&mut self, request: &Request<'_>) {
        for &i in request.avoided() {
            self.hide(i);
        }
        for i in request.closed().into_iter().flat_map(|closed| closed.iter()) {
            self.hide(i);
        }
    }

    fn hide(&mut self, backend: usize) {
        if let Some(&part) = self.parts.get(backend).filter(|p| **p > 0.0) {
            self.hidden.push((backend, part));
            self.set(backend, 0.0);
        }
    }

    fn restore(&mut self) {
        while let Some((i, part)) = self.hidden.pop() {
            self.set(i, part);
        }
    }

    fn throw(&self, rng: &mut dyn RngCore) -> Option<usize> {
        let all: f32 = self.sums.iter().sum();
        let uniform = (rng.next_u64() >> 40) as f32 / (1u64 << 24) as f32;
        let mut point = uniform * all;
        // Rounding may leave the point beyond the last: the last of weight is held.
        let mut last = None;
        for (block, &sum) in self.sums.iter().enumerate() {
            if sum <= 0.0 {
                continue;
            }
            if point >= sum {
                point -= sum;
                last = Some(block);
                continue;
            }
            last = Some(block);
            break;
        }
        let block = last?;
        let end = (BLOCK * (block + 1)).min(self.parts.len());
        let mut found = None;
        for (i, &part) in (BLOCK * block..end).zip(&self.parts[BLOCK * block..end]) {
            if part > 0.0 {
                found = Some(i);
                if point < part {
                    break;
                }
                point -= part;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn draws_are_in_proportion_and_an_avoided_backend_is_back_afterwards() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut shares = Shares::default();
        shares.reset(40);
        for i in 0..40 {
            shares.set(i, (i % 4) as f32);
        }
        let count = |shares: &mut Shares, rng: &mut Xoshiro256PlusPlus, avoid: &[usize]| {
            let mut count = [0u32; 40];
            for _ in 0..120_000 {
                count[shares.draw(&Request::default().avoiding(avoid), rng).unwrap()] += 1;
            }
            count
        };
        // All weigh 60; without 1, 2, 3 and 39 they weigh 51.
        for (avoid, all) in [(&[][..], 60.0), (&[1, 2, 3, 39, 77][..], 51.0), (&[][..], 60.0)] {
            let got = count(&mut shares, &mut rng, avoid);
            for (i, &n) in got.iter().enumerate() {
                let part = if avoid.contains(&i) { 0.0 } else { f64::from(i as u32 % 4) };
                let due = 120_000.0 * part / all;
                assert!((f64::from(n) - due).abs() <= 5.0 * due.sqrt(), "{i}: {n} for {due}");
            }
        }
    }

    #[test]
    fn some_are_different_and_none_is_left_of_none() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut shares = Shares::default();
        shares.reset(5);
        assert_eq!(shares.draw(&Request::default(), &mut rng), None);
        (0..3).for_each(|i| shares.set(i, 1.0));
        let mut drawn = Vec::new();
        shares.draw_some(9, &Request::default(), &mut rng, &mut drawn);
        drawn.sort();
        assert_eq!(drawn, [0, 1, 2]);
        drawn.clear();
        shares.draw_some(9, &Request::default().avoiding(&[1]), &mut rng, &mut drawn);
        drawn.sort();
        assert_eq!(drawn, [0, 2], "who is avoided is not asked");
        assert_eq!(shares.draw(&Request::default().avoiding(&[0, 1, 2]), &mut rng), None);
    }
}
