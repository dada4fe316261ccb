//! Draws in proportion to weight, without replacement: exactly, without trying again, in O(log n) for
//! each of the few drawn. Those already taken are cut out of the line on which a point is thrown. Of
//! those closed there can be any number: a draw that hits one is repeated, and after [`TRIES`] the rest is
//! added up, O(n).

use rand::RngCore;

use super::Closed;
use crate::{MAX_AVOID, MAX_CHOICES, Request};

const MAX_TAKEN: usize = MAX_AVOID + MAX_CHOICES as usize;
/// With half of the weight closed, 1 draw in 256 needs more.
const TRIES: u32 = 8;

/// Backends that are not to be drawn.
pub(crate) struct Taken<'a> {
    /// In order of index.
    backends: [usize; MAX_TAKEN],
    len: usize,
    closed: [Option<&'a Closed>; 2],
}

impl<'a> Taken<'a> {
    /// Those that this request must not be sent to.
    pub(crate) fn new(request: &Request<'a>) -> Self {
        let mut taken =
            Taken { backends: [0; MAX_TAKEN], len: 0, closed: [request.closed(), None] };
        request.avoided().iter().for_each(|&i| taken.add(i));
        taken
    }

    /// These, too.
    pub(crate) fn and(self, closed: &'a Closed) -> Self {
        Taken { closed: [self.closed[0], Some(closed)], ..self }
    }

    fn contains(&self, backend: usize) -> bool {
        self.as_slice().binary_search(&backend).is_ok() || self.closes(backend)
    }

    fn closes(&self, backend: usize) -> bool {
        self.closed.iter().flatten().any(|closed| closed.contains(backend))
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

/// An integer below `end`, each alike but for one part in 2^64 / `end`.
pub(crate) fn below(end: u64, rng: &mut dyn RngCore) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(end)) >> 64) as u64
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

    pub(crate) fn weight(&self, backend: usize) -> u64 {
        self.ends.get(backend).map_or(0, |end| end - self.start(backend))
    }

    /// Draws one that is not taken and takes it; `None` when none of weight above 0 is left.
    pub(crate) fn draw(&self, taken: &mut Taken<'_>, rng: &mut dyn RngCore) -> Option<usize> {
        let all = self.ends.last().copied().unwrap_or(0);
        let left = all - taken.as_slice().iter().map(|&i| self.weight(i)).sum::<u64>();
        if left == 0 {
            return None;
        }
        let thrown = (0..TRIES).map(|_| self.throw(left, taken, rng)).find(|&i| !taken.closes(i));
        let backend = thrown.or_else(|| self.scan(taken, rng))?;
        taken.add(backend);
        Some(backend)
    }

    /// One that is not taken, though it may be closed.
    fn throw(&self, left: u64, taken: &Taken<'_>, rng: &mut dyn RngCore) -> usize {
        let mut point = below(left, rng);
        for &i in taken.as_slice() {
            if i >= self.ends.len() || point < self.start(i) {
                break;
            }
            point += self.weight(i);
        }
        self.ends.partition_point(|&end| end <= point)
    }

    /// One that is neither taken nor closed, by adding up all those.
    fn scan(&self, taken: &Taken<'_>, rng: &mut dyn RngCore) -> Option<usize> {
        let open = || (0..self.ends.len()).filter(|&i| !taken.contains(i));
        let left: u64 = open().map(|i| self.weight(i)).sum();
        if left == 0 {
            return None;
        }
        let mut point = below(left, rng);
        open().find(|&i| {
            let weight = self.weight(i);
            let found = point < weight;
            point = point.saturating_sub(weight);
            found
        })
    }

    /// Draws up to `choices` different ones and gives that of the least cost; ties to the first drawn.
    pub(crate) fn least_of(
        &self,
        choices: u32,
        taken: &mut Taken<'_>,
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
            let mut taken = Taken::new(&Request::default());
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
    fn avoided_backends_are_never_drawn_and_none_is_returned_at_the_end() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let sampler = Sampler::new([1, 1_000_000, 1].into_iter());
        for _ in 0..1_000 {
            let request = Request::default().avoiding(&[1, 7]);
            let mut taken = Taken::new(&request);
            let mut got = [sampler.draw(&mut taken, &mut rng), sampler.draw(&mut taken, &mut rng)];
            got.sort();
            assert_eq!(got, [Some(0), Some(2)]);
            assert_eq!(sampler.draw(&mut taken, &mut rng), None);
        }
        let none = Sampler::new([0, 0].into_iter());
        assert_eq!(none.draw(&mut Taken::new(&Request::default()), &mut rng), None);
    }
    #[test]
    fn the_rest_is_drawn_by_weight_however_many_are_closed() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let sampler = Sampler::new([1_000_000; 98].into_iter().chain([1, 3]));
        let mut closed = Closed::default();
        closed.grow(100);
        (0..98).for_each(|i| closed.set(i, true));
        let request = Request::default().without(&closed);
        let mut draw = |request: Request<'_>| sampler.draw(&mut Taken::new(&request), &mut rng);
        let light = (0..10_000).filter(|_| draw(request) == Some(98)).count();
        assert!(light.abs_diff(2_500) < 150, "{light}");
        assert_eq!(draw(request.avoiding(&[98])), Some(99));
        assert_eq!(draw(request.avoiding(&[98, 99])), None);
    }
}
