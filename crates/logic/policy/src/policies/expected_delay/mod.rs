//! The least expected delay, from what the balancer learns of its own requests: no cores, no speeds are
//! told.
//!
//! Of each backend service time `s` and cores `c` are learned (`learner.rs`). With `n` requests in flight
//! the key is
//!
//! `s · (1 + W·max(0, (n + 1)/c − 1) + O·(n + 1)/c)`, `W =` [`WAIT`], `O =` [`OCCUPANCY`],
//!
//! and the least is picked. With `W = 1`, `O = 0` this is the shortest expected delay (Nguyen Tien Van;
//! Banawan and Zahorjan, INFOCOM 1989), which thinks of this request alone: it queues at a fast backend
//! while a slower one is idle, and who comes next pays. Waiting weighted by 3 is a core that is free
//! first, the fastest of them, and of queues the shortest in time. On 30 unequal backends, cores and
//! speeds told, mean over the central queue at 50/70/85/95 % load: 1.02/1.06/1.13/1.15 with `W = 1`,
//! 1.00/1.00/1.01/1.03 with 3, the same with 5.
//!
//! What `n` is, is a matter of [`Sight`]:
//! * **own**: what this balancer has in flight there, exact where it is alone. O(n) a pick, one pass over
//!   keys that are kept (`state/keys.rs`).
//! * **refusals**: many balancers cannot count, but a backend can, and says no when no core is free. The
//!   backend of a request is drawn by learned weights (`shares.rs`): a try that was refused lowers its
//!   backend's, one that was admitted raises it, by `g·(admitted − a_i)` in the logarithm, so that each
//!   admits the part `a_i = a·(s_i/s)^(2a²)` of its tries, `a` and `s` being the pool's means. At high
//!   load all refuse alike, which is a split by capacity in which larger backends are filled further; at
//!   low load, where a try costs nothing, fast ones are tried first. O(n/16) a pick.
//! * **probes**: some backends, drawn by learned capacity, are asked just before the pick, and `n` is what
//!   they answer.
//!
//! Weights say who takes part, no more: capacity is learned. A failure stays in flight for its penalty
//! (`state/failure.rs`); under refusals it counts as one. It fails where requests differ in a way that
//! backends specialise in, and under the sight `own` where others send to the same backends: it then
//! takes their queues for slow service.

mod learner;
mod levels;
mod settings;
mod shares;

use std::time::Duration;

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::state::{InFlight, Keys};
use crate::{Ending, Finish, Policy, Probing, Request, ServerLoad, Settings};
use learner::{Learner, Pool};
pub use settings::{ExpectedDelaySettings, Sight};
use shares::Shares;

/// How many times as dear as service time waiting is.
const WAIT: f32 = 3.0;
/// Between backends as fast as each other, the emptier.
const OCCUPANCY: f32 = 0.03;
/// Differences between service times count where they are so many times what noise makes of them.
const DOUBT: f32 = 2.0;
/// Finishes between two looks at the whole pool.
const REVIEW: u32 = 64;
/// Least gain `g` of the weights that refusals teach: a weight remembers about 30 tries.
const GAIN: f32 = 0.03;
/// Weights stay within this factor of 1, so that nobody is lost sight of.
const SPREAD: f32 = 30.0;

/// What refusals have taught of one backend.
#[derive(Clone, Copy, Debug)]
struct Admits {
    weight: f32,
    tries: f32,
}

/// What a backend told of its load.
#[derive(Clone, Copy, Debug)]
struct Told {
    in_flight: u32,
    at: Nanos,
}

/// The least expected delay.
pub struct ExpectedDelay {
    sight: Sight,
    probes: u32,
    load_age: Duration,
    weights: Vec<u32>,
    in_flight: InFlight,
    learners: Vec<Learner>,
    pool: Pool,
    keys: Keys,
    /// Those whose failures have faded, for a moment.
    faded: Vec<usize>,
    admits: Vec<Admits>,
    /// The pool's mean part of tries that are admitted.
    admitted: f32,
    shares: Shares,
    told: Vec<Option<Told>>,
    /// Who answered last, the newest last.
    answered: Vec<usize>,
    finishes: u32,
    /// The next backend to be looked at though nothing happens there.
    cursor: usize,
}

impl ExpectedDelay {
    /// Over backends of these weights; heeds `expected_delay` and, under probes, `load_age_ms`.
    pub fn new(weights: &[u32], settings: &Settings) -> Self {
        let ExpectedDelaySettings { sight, probes } = settings.expected_delay;
        let mut policy = ExpectedDelay {
            sight,
            probes,
            load_age: Duration::from_millis(settings.load_age_ms),
            weights: Vec::new(),
            in_flight: InFlight::new(weights.len()),
            learners: Vec::new(),
            pool: Pool { service_us: None, noise: 1.0, spread: 0.0, open_cores: 1.0 },
            keys: Keys::default(),
            faded: Vec::new(),
            admits: Vec::new(),
            admitted: 1.0,
            shares: Shares::default(),
            told: Vec::new(),
            answered: Vec::with_capacity(probes as usize),
            finishes: 0,
            cursor: 0,
        };
        policy.set_weights(weights);
        policy
    }

    /// How dear a backend is that has so many.
    fn key(&self, backend: usize, in_flight: u32, held: f64) -> f32 {
        key(&self.learners[backend], &self.pool, in_flight, held)
    }

    /// Something has changed at this backend: its key and its share follow.
    fn changed(&mut self, backend: usize, now: Nanos) {
        if self.weights.get(backend).is_none_or(|w| *w == 0) {
            return;
        }
        match self.sight {
            Sight::Own => {
                let count = self.in_flight.count(backend);
                let held = self.in_flight.load(backend, now) - f64::from(count);
                self.keys.set(backend, f64::from(self.key(backend, count, held)));
            }
            Sight::Refusals => self.shares.set(backend, self.admits[backend].weight),
            Sight::Probes => {
                let learner = &self.learners[backend];
                let capacity = learner.cores() / learner.shrunk_us(&self.pool);
                self.shares.set(backend, capacity);
            }
        }
    }

    /// Learns from a try that was admitted, or was not.
    fn admit(&mut self, backend: usize, admitted: bool) {
        let x = if admitted { 1.0 } else { 0.0 };
        let relative = match self.pool.service_us {
            Some(pool_us) => self.learners[backend].shrunk_us(&self.pool) / pool_us,
            None => 1.0,
        };
        let a = self.admitted;
        let target = (a * relative.powf(2.0 * a * a)).clamp(0.02, 0.98);
        let Admits { weight, tries } = &mut self.admits[backend];
        *tries += 1.0;
        let gain = GAIN.max(1.0 / (*tries + 4.0));
        *weight = (*weight * (gain * (x - target)).exp()).clamp(1.0 / SPREAD, SPREAD);
        self.admitted += (x - self.admitted) * GAIN / self.learners.len().max(1) as f32;
    }

    /// What the pool has in common.
    fn review(&mut self) {
        let known = || self.learners.iter().filter_map(|l| Some((l, l.service_us()?)));
        let (mut requests, mut sum_us, mut noise) = (0.0, 0.0, 0.0);
        for (learner, us) in known() {
            requests += learner.requests();
            sum_us += learner.requests() * us;
            noise += learner.requests() * learner.noise();
        }
        if requests < 1.0 {
            return;
        }
        // Until something is known, service times are taken for exponential.
        self.pool.noise = ((noise + 100.0) / (requests + 100.0)).max(0.05);
        let mean_us = sum_us / requests;
        // How much service times differ beyond noise (DerSimonian and Laird, 1986).
        let (mut misfit, mut backends, mut squares) = (0.0, 0.0, 0.0);
        let error = mean_us * mean_us * self.pool.noise;
        for (learner, us) in known() {
            misfit += learner.requests() * (us - mean_us) * (us - mean_us) / error;
            squares += learner.requests() * learner.requests();
            backends += 1.0;
        }
        let weight = (requests - squares / requests) / error;
        let beyond = (misfit - DOUBT * (backends - 1.0)).max(0.0);
        self.pool.spread = if weight > 0.0 { beyond / weight } else { 0.0 };
        self.pool.service_us = Some(mean_us);
        let open = self.learners.iter().filter(|l| l.is_open());
        self.pool.open_cores = open.map(Learner::cores).fold(1.0, f32::max);
    }

    /// One backend after another is looked at though nothing happens there.
    fn next_round(&mut self, now: Nanos) {
        self.cursor = if self.cursor + 1 < self.learners.len() { self.cursor + 1 } else { 0 };
        self.learners[self.cursor].round(&self.pool);
        self.changed(self.cursor, now);
        self.finishes += 1;
        if self.finishes >= REVIEW {
            self.finishes = 0;
            self.review();
        }
    }

    /// Of those who answered last, the least key. Failures not yet forgiven count as they do for own counts:
    /// who fails at once has nothing in flight to tell of.
    fn least_told(&mut self, request: &Request<'_>, now: Nanos) -> Option<usize> {
        let mut best = (f32::INFINITY, None);
        for place in 0..self.answered.len() {
            let i = self.answered[place];
            let open = self.weights.get(i).is_some_and(|w| *w > 0) && request.allows(i);
            let told = self.told[i].filter(|t| now.since(t.at) <= self.load_age);
            if let Some(told) = told.filter(|_| open) {
                let held = self.in_flight.held(i, now);
                let key = self.key(i, told.in_flight, held);
                if key < best.0 {
                    best = (key, Some(i));
                }
            }
        }
        best.1
    }

    /// What a request finds at this backend, as far as is known.
    fn found(&self, backend: usize) -> u32 {
        let own = self.in_flight.count(backend);
        match self.sight {
            Sight::Own => own,
            Sight::Refusals => 0,
            Sight::Probes => self.told[backend].map_or(own, |t| t.in_flight),
        }
    }
}

/// `held` are failures not yet forgiven: they count as waiting even where cores are free.
fn key(learner: &Learner, pool: &Pool, in_flight: u32, held: f64) -> f32 {
    let (n, held, c) = (in_flight as f32 + 1.0, held as f32, learner.cores());
    let wait = (n / c - 1.0).max(0.0) + held / c;
    let room = if learner.is_open() { c.max(pool.open_cores) } else { c };
    learner.shrunk_us(pool) * (1.0 + WAIT * wait + OCCUPANCY * n / room)
}

impl Policy for ExpectedDelay {
    fn set_weights(&mut self, weights: &[u32]) {
        self.weights.clear();
        self.weights.extend_from_slice(weights);
        let backends = weights.len().max(self.learners.len());
        self.in_flight.grow(backends);
        self.learners.resize_with(backends, Learner::new);
        self.admits.resize(backends, Admits { weight: 1.0, tries: 0.0 });
        self.told.resize(backends, None);
        self.faded.reserve(backends);
        self.keys.reset(backends);
        self.shares.reset(backends);
        (0..weights.len()).for_each(|i| self.changed(i, Nanos::ZERO));
        self.in_flight.fade_next();
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        match self.sight {
            Sight::Own => {
                let mut faded = std::mem::take(&mut self.faded);
                self.in_flight.faded(now, |i, _| faded.push(i));
                faded.drain(..).for_each(|i| self.changed(i, now));
                self.faded = faded;
                self.keys.least(request, rng)
            }
            Sight::Refusals => self.shares.draw(request, rng),
            Sight::Probes => {
                self.least_told(request, now).or_else(|| self.shares.draw(request, rng))
            }
        }
    }

    fn on_start(&mut self, backend: usize, now: Nanos) {
        let found = self.found(backend);
        self.learners[backend].start(found, now);
        self.in_flight.start(backend);
        if let Some(told) = &mut self.told[backend] {
            told.in_flight += 1;
        }
        self.changed(backend, now);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.in_flight.finish(backend, finish, now);
        let took_ns = u64::try_from(finish.latency.as_nanos()).unwrap_or(u64::MAX);
        let found = self.learners[backend].found(took_ns, now);
        if let (Ending::Success, Some(found)) = (finish.ending, found) {
            self.learners[backend].success(found, finish.latency_us() as f32, &self.pool);
        }
        if self.sight == Sight::Refusals && finish.ending != Ending::Abandoned {
            self.admit(backend, finish.ending == Ending::Success);
        }
        self.changed(backend, now);
        self.next_round(now);
    }

    fn probing(&self) -> Probing {
        if self.sight == Sight::Probes { Probing::Before } else { Probing::Never }
    }

    fn probe_targets(
        &mut self,
        request: &Request<'_>,
        _now: Nanos,
        rng: &mut dyn RngCore,
        targets: &mut Vec<usize>,
    ) {
        self.shares.draw_some(self.probes, request, rng, targets);
    }

    fn on_probe(&mut self, backend: usize, load: ServerLoad, now: Nanos) {
        let Some(told) = self.told.get_mut(backend) else { return };
        *told = Some(Told { in_flight: load.in_flight, at: now });
        self.answered.retain(|&i| i != backend);
        if self.answered.len() == self.probes as usize {
            self.answered.remove(0);
        }
        self.answered.push(backend);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn policy(sight: Sight, backends: usize) -> ExpectedDelay {
        let expected_delay = ExpectedDelaySettings { sight, probes: 3 };
        ExpectedDelay::new(&vec![1; backends], &Settings { expected_delay, ..Settings::default() })
    }

    /// Each backend serves requests one by one, then two at a time, so that one core is known.
    fn serve_alone(policy: &mut ExpectedDelay, ms: &[u64]) -> Nanos {
        let mut now = Nanos::ZERO;
        for _ in 0..400 {
            for (i, &ms) in ms.iter().enumerate() {
                let (one, two) = (Duration::from_millis(ms), Duration::from_millis(2 * ms));
                policy.on_start(i, now);
                policy.on_start(i, now);
                policy.on_finish(i, &Finish::success(one), now + one);
                policy.on_finish(i, &Finish::success(two), now + two);
                now = now + two;
            }
        }
        now
    }

    #[test]
    fn a_free_core_comes_before_a_faster_one_that_is_busy_and_queues_go_by_time() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut policy = policy(Sight::Own, 3);
        let now = serve_alone(&mut policy, &[10, 30, 65]);
        let mut order = Vec::new();
        for _ in 0..8 {
            let i = policy.pick(&Request::default(), now, &mut rng).unwrap();
            policy.on_start(i, now);
            order.push(i);
        }
        // The fast one's keys are 10, 40, 70, 100, 130; the next one's 30 and 120; the slow one's 65.
        assert_eq!(order, [0, 1, 0, 2, 0, 0, 1, 0]);
    }

    #[test]
    fn who_refuses_more_than_the_others_is_asked_less_and_found_again() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut policy = policy(Sight::Refusals, 4);
        let mut now = Nanos::ZERO;
        // A request a millisecond; each backend serves one at a time, in 4 ms, backend 0 in so many.
        let mut share = |first_ms: u64| {
            let (mut asked, mut free_at) = (0, [Nanos::ZERO; 4]);
            for k in 0..16_000 {
                now = now + Duration::from_millis(1);
                let i = policy.pick(&Request::default(), now, &mut rng).unwrap();
                policy.on_start(i, now);
                asked += u32::from(i == 0 && k >= 12_000);
                let finish = if free_at[i] <= now {
                    let ms = if i == 0 { first_ms } else { 4 };
                    free_at[i] = now + Duration::from_millis(ms);
                    Finish::success(Duration::ZERO)
                } else {
                    Finish::rejected(Duration::ZERO)
                };
                policy.on_finish(i, &finish, now);
            }
            f64::from(asked) / 4_000.0
        };
        let even = share(4);
        assert!((even - 0.25).abs() < 0.05, "{even}");
        let slow = share(40);
        assert!((0.01..0.08).contains(&slow), "{slow}");
        let fast = share(1);
        assert!(fast > 0.45, "{fast}");
    }

    #[test]
    fn the_emptiest_of_those_who_answered_gets_it_and_then_has_one_more() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut policy = policy(Sight::Probes, 6);
        assert_eq!(policy.probing(), Probing::Before);
        let now = Nanos::from_secs_f64(1.0);
        let mut targets = Vec::new();
        policy.probe_targets(&Request::default(), now, &mut rng, &mut targets);
        targets.sort();
        targets.dedup();
        assert_eq!(targets.len(), 3, "three different ones");
        let tell = |policy: &mut ExpectedDelay, backend, in_flight| {
            let load = ServerLoad { in_flight, ..ServerLoad::default() };
            policy.on_probe(backend, load, now);
        };
        for (backend, in_flight) in [(5, 0), (2, 9), (4, 3), (1, 4)] {
            tell(&mut policy, backend, in_flight);
        }
        let mut pick = |policy: &mut ExpectedDelay, request: Request<'_>, now| {
            policy.pick(&request, now, &mut rng).unwrap()
        };
        assert_eq!(pick(&mut policy, Request::default(), now), 4, "5 is none of the last three");
        assert_eq!(pick(&mut policy, Request::default().avoiding(&[4]), now), 1);
        (0..2).for_each(|_| policy.on_start(4, now));
        assert_eq!(pick(&mut policy, Request::default(), now), 1, "4 has five by now");
        let all = Request::default().avoiding(&[0, 1, 2, 4, 5]);
        assert_eq!(pick(&mut policy, all, now), 3, "drawn where nobody who answered is left");
        let later = now + Duration::from_secs(2);
        let drawn: Vec<usize> =
            (0..99).map(|_| pick(&mut policy, Request::default(), later)).collect();
        assert!((0..6).all(|i| drawn.contains(&i)), "old answers are none: {drawn:?}");
    }

    #[test]
    fn under_probes_who_fails_at_once_is_not_taken_for_idle() {
        let settings = Settings {
            expected_delay: ExpectedDelaySettings {
                sight: Sight::Probes,
                ..ExpectedDelaySettings::default()
            },
            ..Settings::default()
        };
        let mut policy = ExpectedDelay::new(&[1, 1], &settings);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let (mut now, mut to_the_failing) = (Nanos::ZERO, 0);
        for round in 0..4_000 {
            now = now + Duration::from_millis(10);
            // Neither has anything in flight; from half way on the second fails within a millisecond.
            for backend in 0..2 {
                policy.on_probe(backend, ServerLoad::default(), now);
            }
            let Some(i) = policy.pick(&Request::default(), now, &mut rng) else { continue };
            policy.on_start(i, now);
            let fails = i == 1 && round >= 2_000;
            let finish = match fails {
                false => Finish::success(Duration::from_millis(8)),
                true => Finish::failure(Duration::from_millis(1)),
            };
            to_the_failing += u32::from(fails);
            policy.on_finish(i, &finish, now + finish.latency);
        }
        assert!(to_the_failing < 400, "{to_the_failing} of 2,000");
    }
}
