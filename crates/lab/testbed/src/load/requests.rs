//! What is sent, arrival by arrival.

use std::sync::Arc;

use rand::{Rng, SeedableRng};
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
    /// Each is one of these.
    Mix(Vec<Arc<[u8]>>, Xoshiro256PlusPlus),
}

impl Requests {
    pub(super) fn new(spec: &LoadSpec) -> Self {
        let rng = || Xoshiro256PlusPlus::seed_from_u64(spec.seed ^ WORK_STREAM);
        match spec.work {
            _ if !spec.mix.is_empty() => Requests::Mix(
                spec.mix.iter().map(|asked| spec.bytes_of(asked).into()).collect(),
                rng(),
            ),
            None => Requests::Same(spec.request_bytes(None).into()),
            Some(service) => Requests::Work(service, rng()),
        }
    }

    pub(super) fn next(&mut self, spec: &LoadSpec) -> Arc<[u8]> {
        match self {
            Requests::Same(bytes) => Arc::clone(bytes),
            Requests::Mix(all, rng) => Arc::clone(&all[rng.random_range(0..all.len())]),
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
    use crate::load::{Asked, Target};

    #[test]
    fn a_mix_has_every_kind_alike_each_with_its_own_body() {
        let target = Target::resolve("http://127.0.0.1:1/none").unwrap();
        let mut spec = LoadSpec::poisson(target, 10.0, Duration::from_secs(1));
        let asked = |path: &str, body: &str| Asked { path: path.into(), body: body.into() };
        spec.method = "POST".into();
        spec.mix = vec![asked("/a?x=1", "one"), asked("/b", "")];
        assert_eq!(spec.problems(), [""; 0]);
        let mut requests = Requests::new(&spec);
        let all: Vec<String> =
            (0..1_000).map(|_| String::from_utf8(requests.next(&spec).to_vec()).unwrap()).collect();
        let first = "POST /a?x=1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Length: 3\r\n\r\none";
        let ones = all.iter().filter(|bytes| *bytes == first).count();
        assert!((440..560).contains(&ones), "{ones}");
        assert!(all.iter().all(|bytes| bytes == first || bytes.starts_with("POST /b HTTP")));
        spec.mix.push(asked("b c", ""));
        spec.work = Some(Service::deterministic(Duration::from_millis(1)));
        assert_eq!(spec.problems().len(), 2);
    }

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
