//! What is sent, arrival by arrival.

use std::sync::Arc;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::spec::LoadSpec;
use crate::Service;

/// Keeps the work of the requests apart from the gaps between them, which the same seed draws.
const WORK_STREAM: u64 = 0x776f_726b;

/// Gives the bytes of each request in the order of arrival.
pub(super) enum Requests {
    /// All alike.
    Same(Arc<[u8]>),
    /// Each asks for work of its own.
    Work(Service, Xoshiro256PlusPlus),
}

impl Requests {
    pub(super) fn new(spec: &LoadSpec) -> Self {
        match spec.work {
            None => Requests::Same(spec.request_bytes(None).into()),
            Some(service) => {
                let rng = Xoshiro256PlusPlus::seed_from_u64(spec.seed ^ WORK_STREAM);
                Requests::Work(service, rng)
            }
        }
    }

    pub(super) fn next(&mut self, spec: &LoadSpec) -> Arc<[u8]> {
        match self {
            Requests::Same(bytes) => Arc::clone(bytes),
            Requests::Work(service, rng) => {
                let work_us = (service.sample(rng) / 1e3).round() as u64;
                spec.request_bytes(Some(work_us)).into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::Target;

    #[test]
    fn the_same_seed_asks_for_the_same_work_and_another_for_other_work() {
        let drawn = |seed| {
            let target = Target::resolve("http://127.0.0.1:1/work").unwrap();
            let mut spec = LoadSpec::poisson(target, 10.0, Duration::from_secs(1));
            (spec.seed, spec.work) = (seed, Some(Service::exponential(Duration::from_millis(5))));
            let mut requests = Requests::new(&spec);
            (0..100).map(|_| requests.next(&spec).to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        assert_ne!(drawn(1)[0], drawn(1)[1]);
    }
}
