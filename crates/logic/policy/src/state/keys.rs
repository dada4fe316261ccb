//! The least of many costs, ties broken at random, each alike. O(n), and a nanosecond or less for each:
//! keys are dense 32-bit floats that change when a request starts or ends, so a pick is one pass for the
//! least and one for its equals, both in vectors, and no arithmetic on costs at all.

use rand::RngCore;

use super::sampler::below;
use crate::{MAX_AVOID, Request};

/// Eight floats are two SSE registers, or one of AVX.
const LANES: usize = 8;
/// The cost of those that are out.
const OUT: f32 = f32::INFINITY;

/// One cost per backend; infinite for those that are out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    costs: Vec<f32>,
    /// Costs of those that the request at hand must not be sent to.
    hidden: Vec<(usize, f32)>,
}

impl Keys {
    /// Of so many backends, all out.
    pub(crate) fn reset(&mut self, backends: usize) {
        self.costs.clear();
        self.costs.resize(backends, OUT);
        self.hidden.clear();
        self.hidden.reserve(backends + MAX_AVOID);
    }

    /// Gives a backend its cost; one that was given no room is out anyhow.
    pub(crate) fn set(&mut self, backend: usize, cost: f64) {
        if let Some(slot) = self.costs.get_mut(backend) {
            // What costs too much for a float is still in.
            *slot = (cost as f32).min(f32::MAX);
        }
    }

    /// The one of least cost that the request allows.
    pub(crate) fn least(&mut self, request: &Request<'_>, rng: &mut dyn RngCore) -> Option<usize> {
        for &i in request.avoided() {
            self.hide(i);
        }
        for i in request.closed().into_iter().flat_map(|closed| closed.iter()) {
            self.hide(i);
        }
        let backend = self.least_of_all(rng);
        for (i, cost) in self.hidden.drain(..).rev() {
            self.costs[i] = cost;
        }
        backend
    }

    fn hide(&mut self, backend: usize) {
        if let Some(cost) = self.costs.get_mut(backend) {
            self.hidden.push((backend, std::mem::replace(cost, OUT)));
        }
    }

    fn least_of_all(&self, rng: &mut dyn RngCore) -> Option<usize> {
        let least = least(&self.costs);
        if least == OUT {
            return None;
        }
        let ties = self.costs.iter().map(|&c| u32::from(c == least)).sum::<u32>();
        let skip = if ties > 1 { below(u64::from(ties), rng) as usize } else { 0 };
        nth_equal(&self.costs, least, skip)
    }
}

fn least(costs: &[f32]) -> f32 {
    let (chunks, rest) = costs.as_chunks::<LANES>();
    let mut lanes = [OUT; LANES];
    for chunk in chunks {
        for (lane, &c) in lanes.iter_mut().zip(chunk) {
            *lane = if c < *lane { c } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(OUT, |a, &b| a.min(b))
}

/// Where the `skip + 1`-th of those that cost this much stands.
fn nth_equal(costs: &[f32], cost: f32, mut skip: usize) -> Option<usize> {
    for (k, chunk) in costs.chunks(LANES).enumerate() {
        let equal = chunk.iter().map(|&c| usize::from(c == cost)).sum::<usize>();
        if skip < equal {
            let mut places = (0..chunk.len()).filter(|&i| chunk[i] == cost);
            return places.nth(skip).map(|i| k * LANES + i);
        }
        skip -= equal;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Closed;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn keys(costs: &[f64]) -> Keys {
        let mut keys = Keys::default();
        keys.reset(costs.len());
        (0..).zip(costs).for_each(|(i, &c)| keys.set(i, c));
        keys
    }

    #[test]
    fn ties_are_even() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut keys = keys(&[2.0, 1.0, 1.0, 3.0, 9.0, 9.0, 9.0, 9.0, 9.0, 1.0, 9.0]);
        let mut count = [0u32; 11];
        for _ in 0..100_000 {
            count[keys.least(&Request::default(), &mut rng).unwrap()] += 1;
        }
        for (i, c) in count.into_iter().enumerate() {
            let due = if [1, 2, 9].contains(&i) { 33_333 } else { 0 };
            assert!(c.abs_diff(due) < 700 && (due > 0 || c == 0), "{count:?}");
        }
    }

    #[test]
    fn the_least_of_any_number() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        for n in 1..70 {
            let costs: Vec<f64> = (0..n).map(|_| (rng.next_u64() % 1_000) as f64).collect();
            let got = keys(&costs).least(&Request::default(), &mut rng).unwrap();
            assert!(costs.iter().all(|&c| c >= costs[got]), "{costs:?}");
        }
    }

    #[test]
    fn a_hidden_backend_is_back_for_the_next_request() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut keys = keys(&[1.0, 2.0, 3.0]);
        let mut closed = Closed::default();
        closed.grow(3);
        closed.set(0, true);
        let request = Request::default().avoiding(&[1, 1, 0, 7]).without(&closed);
        assert_eq!(keys.least(&request, &mut rng), Some(2));
        assert_eq!(keys.least(&request.avoiding(&[1, 2]), &mut rng), None);
        assert_eq!(keys.least(&Request::default(), &mut rng), Some(0));
        keys.set(0, 1e300);
        assert_eq!(keys.least(&Request::default().avoiding(&[1, 2]), &mut rng), Some(0));
    }
}
