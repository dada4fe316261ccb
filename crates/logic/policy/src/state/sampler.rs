//! Draws in proportion to weight, without replacement: exactly, without trying again, in O(log n) for
//! each of the few drawn. Those already taken are cut out of the line on which a point is thrown.

use rand::RngCore;

use crate::{MAX_AVOID, MAX_CHOICES};

const MAX_TAKEN: usize = MAX_AVOID + MAX_CHOICES as usize;

/// Backends that are not to be drawn, in order of index.
pub(crate) struct Taken {
    backends: [usize; MAX_TAKEN],
    len: usize,
}

impl Taken {
    /// Those avoided (at most [`MAX_AVOID`] of them).
    pub(crate) fn new(avoided: &[usize]) -> Self {
        let mut taken = Taken { backends: [0; MAX_TAKEN], len: 0 };
        avoided.iter().for_each(|&i| taken.add(i));
        taken
    }

    fn as_slice(&self) -> &[usize] {
        &self.backends[..self.len]
    }

    fn add(&mut self, backend: usize) {
        if let Err(at) = self.as_slice().binary_search(&backend) {
            self.backends.copy_within(at..self.len, at + 1);
            self.backends[at] = backend;
            self.len += 1;
        }
    }
}

/// Running sums of the weights.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    ends: Vec<u64>,
}

impl Sampler {
    pub(crate) fn new(weights: impl Iterator<Item = u32>) -> Self {
        let mut sampler = Sampler { ends: Vec::new() };
        sampler.set(weights);
        sampler
    }

    pub(crate) fn set(&mut self, weights: impl Iterator<Item = u32>) {
        self.ends.clear();
        self.ends.extend(weights.scan(0u64, |sum, w| {
            *sum += u64::from(w);
            Some(*sum)
        }));
    }

    fn start(&self, backend: usize) -> u64 {
        if backend == 0 { 0 } else { self.ends[backend - 1] }
    }

    fn weight(&self, backend: usize) -> u64 {
        self.ends.get(backend).map_or(0, |end| end - self.start(backend))
    }

    /// Draws one that is not taken and takes it; `None` when none of weight above 0 is left.
    pub(crate) fn draw(&self, taken: &mut Taken, rng: &mut dyn RngCore) -> Option<usize> {
        let all = self.ends.last().copied().unwrap_or(0);
        let left = all - taken.as_slice().iter().map(|&i| self.weight(i)).sum::<u64>();
        if left == 0 {
            return None;
        }
        let mut point = ((u128::from(rng.next_u64()) * u128::from(left)) >> 64) as u64;
        for &i in taken.as_slice() {
            if i >= self.ends.len() || point < self.start(i) {
                break;
            }
            point += self.weight(i);
        }
        let backend = self.ends.partition_point(|&end| end <= point);
        taken.add(backend);
        Some(backend)
    }

    /// Draws up to `choices` different ones and gives that of the least cost; ties to the first drawn.
    pub(crate) fn least_of(
        &self,
        choices: u32,
        taken: &mut Taken,
        rng: &mut dyn RngCore,
        mut cost: impl FnMut(usize) -> f64,
    ) -> Option<usize> {
        let mut best = self.draw(taken, rng)?;
        let mut least = if choices > 1 { cost(best) } else { 0.0 };
        for _ in 1..choices {
            let Some(other) = self.draw(taken, rng) else { break };
            let c = cost(other);
            if c < least {
                (best, least) = (other, c);
            }
        }
        Some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn the_second_draw_is_by_weight_among_the_rest() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let sampler = Sampler::new([3, 0, 5, 2].into_iter());
        let mut pairs = [[0u32; 4]; 4];
        for _ in 0..100_000 {
            let mut taken = Taken::new(&[]);
            let a = sampler.draw(&mut taken, &mut rng).unwrap();
            let b = sampler.draw(&mut taken, &mut rng).unwrap();
            pairs[a][b] += 1;
        }
        let w = [0.3, 0.0, 0.5, 0.2];
        for a in 0..4 {
            for b in 0..4 {
                let p = if a == b { 0.0 } else { w[a] * w[b] / (1.0 - w[a]) };
                let got = f64::from(pairs[a][b]) / 100_000.0;
                assert!((got - p).abs() < 0.006, "{a} then {b}: {got} for {p}");
            }
        }
    }

    #[test]
    fn what_is_avoided_is_never_drawn_and_the_end_is_told() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let sampler = Sampler::new([1, 1_000_000, 1].into_iter());
        for _ in 0..1_000 {
            let mut taken = Taken::new(&[1, 7]);
            let mut got = [sampler.draw(&mut taken, &mut rng), sampler.draw(&mut taken, &mut rng)];
            got.sort();
            assert_eq!(got, [Some(0), Some(2)]);
            assert_eq!(sampler.draw(&mut taken, &mut rng), None);
        }
        let none = Sampler::new([0, 0].into_iter());
        assert_eq!(none.draw(&mut Taken::new(&[]), &mut rng), None);
    }
}
