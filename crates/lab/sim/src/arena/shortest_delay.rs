//! A baseline that is no policy of the product, because it is given every backend's true cores and speed.

use std::collections::VecDeque;

use plimsoll_model::Nanos;
use plimsoll_policy::{Finish, Policy, Probing, Request, ServerLoad};
use rand::RngCore;

use crate::BackendModel;

/// How [`ShortestDelay`] knows the number of requests in flight at a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlightBy {
    /// By this balancer's own count.
    Own,
    /// From the backend's last response to this balancer, plus the requests sent there since.
    Piggybacked,
    /// This many backends, drawn by capacity, are probed before each pick, which is among the last that answered.
    Probes(u32),
}

/// The shortest expected delay: `s · max(1, (n + 1)/c)` for service time `s`, cores `c` and `n` in flight. Ties
/// are broken at random, or balancers that do not know of each other would all choose the same.
pub struct ShortestDelay {
    pool: Vec<BackendModel>,
    counts: InFlightBy,
    in_flight: Vec<u32>,
    /// The last that answered, the latest at the end.
    answered: VecDeque<usize>,
}

impl ShortestDelay {
    /// Over this pool.
    pub fn new(pool: &[BackendModel], counts: InFlightBy) -> Self {
        let in_flight = vec![0; pool.len()];
        ShortestDelay { pool: pool.to_vec(), counts, in_flight, answered: VecDeque::new() }
    }

    fn delay(&self, backend: usize) -> f64 {
        let BackendModel { cores, speed } = self.pool[backend];
        let turns = f64::from(self.in_flight[backend] + 1) / f64::from(cores);
        turns.max(1.0) / speed
    }

    fn best(
        &self,
        backends: impl Iterator<Item = usize>,
        request: &Request<'_>,
        rng: &mut dyn RngCore,
    ) -> Option<usize> {
        let (mut best, mut least, mut equals) = (None, f64::INFINITY, 0);
        for backend in backends.filter(|backend| !request.avoided().contains(backend)) {
            let delay = self.delay(backend);
            equals = if delay < least { 1 } else { equals + u64::from(delay == least) };
            if delay < least || delay == least && rng.next_u64().is_multiple_of(equals) {
                (best, least) = (Some(backend), delay);
            }
        }
        best
    }

    fn draw_by_capacity(&self, rng: &mut dyn RngCore) -> usize {
        let capacity = |b: &BackendModel| f64::from(b.cores) * b.speed;
        let all: f64 = self.pool.iter().map(capacity).sum();
        let mut left = all * (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let reaches = |b: &BackendModel| {
            left -= capacity(b);
            left < 0.0
        };
        self.pool.iter().position(reaches).unwrap_or(0)
    }
}

impl Policy for ShortestDelay {
    fn set_weights(&mut self, _: &[u32]) {}

    fn pick(&mut self, request: &Request<'_>, _: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        let of_answers = self.best(self.answered.iter().copied(), request, rng);
        of_answers.or_else(|| self.best(0..self.pool.len(), request, rng))
    }

    fn on_start(&mut self, backend: usize, _: Nanos) {
        self.in_flight[backend] += 1;
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, _: Nanos) {
        let counted = &mut self.in_flight[backend];
        match (self.counts, finish.load) {
            (InFlightBy::Piggybacked, Some(load)) => *counted = load.in_flight,
            _ => *counted = counted.saturating_sub(1),
        }
    }

    fn probing(&self) -> Probing {
        if matches!(self.counts, InFlightBy::Probes(_)) { Probing::Before } else { Probing::Never }
    }

    fn probe_targets(
        &mut self,
        _: &Request<'_>,
        _: Nanos,
        rng: &mut dyn RngCore,
        targets: &mut Vec<usize>,
    ) {
        let InFlightBy::Probes(count) = self.counts else { return };
        let count = self.pool.len().min(count as usize);
        while targets.len() < count {
            let drawn = self.draw_by_capacity(rng);
            if !targets.contains(&drawn) {
                targets.push(drawn);
            }
        }
    }

    fn on_probe(&mut self, backend: usize, load: ServerLoad, _: Nanos) {
        let InFlightBy::Probes(count) = self.counts else { return };
        self.in_flight[backend] = load.in_flight;
        self.answered.push_back(backend);
        if self.answered.len() > count as usize {
            self.answered.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use std::time::Duration;

    #[test]
    fn the_fastest_backend_comes_first_until_its_cores_are_busy_by_every_count() {
        let pool = [(1, 1.0), (2, 1.25)].map(|(cores, speed)| BackendModel { cores, speed });
        // One of two in flight has ended by the balancer's own count; the backend reports five.
        for (counts, then) in [(InFlightBy::Own, 1), (InFlightBy::Piggybacked, 0)] {
            let mut policy = ShortestDelay::new(&pool, counts);
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
            let mut next = |policy: &mut ShortestDelay, avoid: &[usize]| {
                let request = Request::default().avoiding(avoid);
                policy.pick(&request, Nanos::ZERO, &mut rng)
            };
            assert_eq!((next(&mut policy, &[]), next(&mut policy, &[1])), (Some(1), Some(0)));
            (0..2).for_each(|_| policy.on_start(1, Nanos::ZERO));
            assert_eq!(next(&mut policy, &[]), Some(0));
            let load = Some(ServerLoad { in_flight: 5, ..ServerLoad::default() });
            policy.on_finish(1, &Finish { load, ..Finish::success(Duration::ZERO) }, Nanos::ZERO);
            assert_eq!(next(&mut policy, &[]), Some(then), "{counts:?}");
        }
    }

    #[test]
    fn picks_are_among_the_last_answers_and_larger_backends_are_probed_more() {
        let pool = [(1, 1.0), (1, 1.0), (4, 2.0), (2, 1.0)];
        let pool = pool.map(|(cores, speed)| BackendModel { cores, speed });
        let mut policy = ShortestDelay::new(&pool, InFlightBy::Probes(2));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut asked = [0_i32; 4];
        for _ in 0..12_000 {
            let mut targets = Vec::new();
            policy.probe_targets(&Request::default(), Nanos::ZERO, &mut rng, &mut targets);
            assert!(targets.len() == 2 && targets[0] != targets[1]);
            asked[targets[0]] += 1;
        }
        for (backend, due) in [1_000, 1_000, 8_000, 2_000].into_iter().enumerate() {
            assert!((asked[backend] - due).abs() < 200, "{asked:?}");
        }
        for (backend, in_flight) in [(2, 0), (0, 3), (1, 2)] {
            let load = ServerLoad { in_flight, ..ServerLoad::default() };
            policy.on_probe(backend, load, Nanos::ZERO);
        }
        let mut pick = |avoid: &[usize]| {
            policy.pick(&Request::default().avoiding(avoid), Nanos::ZERO, &mut rng)
        };
        assert_eq!(pick(&[]), Some(1), "2, which is idle, is none of the last two");
        assert_eq!((pick(&[1]), pick(&[0, 1])), (Some(0), Some(2)));
    }
}
