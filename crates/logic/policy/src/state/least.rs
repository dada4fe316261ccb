use rand::RngCore;

/// The least of the costs it is shown; ties are broken at random, each alike, in one pass.
pub(crate) struct Least {
    cost: f64,
    backend: Option<usize>,
    ties: u64,
}

impl Least {
    pub(crate) fn new() -> Self {
        Least { cost: f64::INFINITY, backend: None, ties: 0 }
    }

    pub(crate) fn offer(&mut self, backend: usize, cost: f64, rng: &mut dyn RngCore) {
        if cost < self.cost || self.backend.is_none() {
            *self = Least { cost, backend: Some(backend), ties: 1 };
        } else if cost == self.cost {
            self.ties += 1;
            // The k-th of equals replaces the one held with probability 1/k.
            if (u128::from(rng.next_u64()) * u128::from(self.ties)) >> 64 == 0 {
                self.backend = Some(backend);
            }
        }
    }

    pub(crate) fn backend(&self) -> Option<usize> {
        self.backend
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn ties_are_even() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut count = [0u32; 4];
        for _ in 0..100_000 {
            let mut least = Least::new();
            for (i, cost) in [2.0, 1.0, 1.0, 1.0].into_iter().enumerate() {
                least.offer(i, cost, &mut rng);
            }
            count[least.backend().unwrap()] += 1;
        }
        assert_eq!(count[0], 0);
        assert!(count[1..].iter().all(|&c| c.abs_diff(33_333) < 700), "{count:?}");
        assert_eq!(Least::new().backend(), None);
    }
}
