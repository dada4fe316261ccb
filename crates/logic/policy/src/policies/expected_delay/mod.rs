//! The least expected delay, from what the balancer learns of its own requests: no cores, no speeds are
//! told, but for cores that an ingress has learned.
//!
//! Of each backend service time `s` and cores `c` are learned (`learner.rs`). With `n` requests in flight
//! the key is
//!
//! `s · (1 + W·max(0, (n + 1)/c − 1) + O·(n + 1)/c)`, `W =` [`Sight::wait`], `O =` [`OCCUPANCY`],
//!
//! and the least is picked. With `W = 1`, `O = 0` this is the shortest expected delay (Nguyen Tien Van;
//! Banawan and Zahorjan, INFOCOM 1989), which thinks of this request alone: it queues at a fast backend
//! while a slower one is idle, and the next request pays. Where waiting weighs more, a core that is free comes
//! first, the fastest of them, and of queues the shortest in time. On 30 unequal backends, cores and
//! speeds given, mean over the central queue at 50/70/85/95 % load: 1.02/1.06/1.13/1.15 with `W = 1`,
//! 1.00/1.00/1.01/1.03 with 3, the same with 5.
//!
//! What `n` is, is a matter of [`Sight`]:
//! * **own**: what this balancer has in flight there, exact where it is alone. O(n) a pick, one pass over
//!   keys that are kept (`state/keys.rs`).
//! * **refusals**: many balancers cannot count, but a backend can, and says no when no core is free. The
//!   backend of a request is drawn (`shares.rs`) by weights that refusals teach (`refusals.rs`). O(n/16) a
//!   pick.
//! * **probes**: some backends, drawn by learned capacity, are asked just before the pick, and others where none of these
//!   has room. `n` is what they answer, and `c` the cores that they tell, if they do; where none answered, the draw is all.
//!   A balancer that can hold requests does so where the key of the backend picked is above `S + W·h`, `S` being the pool's
//!   mean service time and `h` how long it takes until as many of the balancer's requests end as wait: late binding, which
//!   needs no constant of its own.
//! * **auto**: one of these, by what backends show (`choice.rs`).
//!
//! Weights say which backends take part, no more: capacity is learned. One without a success yet is an average
//! backend, from the pool's first success on; before that, all are alike. A failure stays in flight for its
//! penalty (`state/failure.rs`); under refusals it counts as one. It fails where requests differ in a way
//! that backends specialise in, and under the sight `own` where others send to the same backends: it then
//! takes their queues for slow service.

mod choice;
mod heard;
mod learner;
mod levels;
mod refusals;
mod settings;
mod shares;
#[cfg(test)]
mod tests;

use std::time::Duration;

use plimsoll_model::Nanos;
use rand::RngCore;

use crate::state::{InFlight, Keys, below};
use crate::{Ending, Finish, MAX_CHOICES, Policy, Probing, Request, ServerLoad, Settings};
use choice::Choice;
use heard::Heard;
use learner::{Learner, Pool};
use levels::LEVELS;
use refusals::Refusals;
pub use settings::{ExpectedDelaySettings, Sight};
use shares::Shares;

impl Sight {
    /// How many times as dear as service time waiting is. Of a few that were asked, a queue at a fast backend is oftener
    /// the best than of all. Mean of six pools under five laws over the central queue (`matrix`): by own counts 1.064
    /// with 3, 1.042 with 4, 1.039 with 5, 1.05 with 6; by probes 1.270, 1.251, 1.226, 1.231 with 1.5, 2, 3, 4.
    fn wait(self) -> f32 {
        match self {
            Sight::Auto | Sight::Own | Sight::Refusals => 5.0,
            Sight::Probes => 3.0,
        }
    }
}

/// Between backends as fast as each other, the emptier.
const OCCUPANCY: f32 = 0.03;
/// Differences between service times count where they are so many times what noise makes of them.
const DOUBT: f32 = 2.0;
/// Most that is added to the deviance of a number of cores for being unusual: more, and what few have is never believed.
const UNUSUAL: f32 = 3.0;
/// A number of cores that no backend is known to have counts as if so many had it.
const UNSEEN: f32 = 1.0;
/// Fewer that are known say nothing of what is usual.
const SOME: f32 = 8.0;
/// Most finishes between two looks at the whole pool; the first come sooner.
const REVIEW: u32 = 64;

/// What a backend reported of its load.
#[derive(Clone, Copy, Debug)]
struct Told {
    in_flight: u32,
    /// When it was asked, or told it with a response.
    at: Nanos,
}

/// The least expected delay.
pub struct ExpectedDelay {
    /// The sight now, never `Auto`.
    sight: Sight,
    /// Where the sight is `Auto`.
    choice: Option<Choice>,
    probes: u32,
    load_age: Duration,
    weights: Vec<u32>,
    in_flight: InFlight,
    learners: Vec<Learner>,
    pool: Pool,
    keys: Keys,
    /// Those whose failures have faded, for a moment.
    faded: Vec<usize>,
    refusals: Refusals,
    shares: Shares,
    told: Vec<Option<Told>>,
    /// The backends that had room when last heard of.
    heard: Heard,
    finishes: u32,
    review_after: u32,
    /// The next backend to be looked at though nothing happens there.
    cursor: usize,
}

impl ExpectedDelay {
    /// Over backends of these weights; heeds `expected_delay` and `load_age_ms`, under probes.
    pub fn new(weights: &[u32], settings: &Settings) -> Self {
        let ExpectedDelaySettings { sight, probes } = settings.expected_delay;
        let is_auto = sight == Sight::Auto;
        let mut policy = ExpectedDelay {
            sight: if is_auto { Sight::Own } else { sight },
            choice: is_auto.then(Choice::default),
            probes,
            load_age: Duration::from_millis(settings.load_age_ms),
            weights: Vec::new(),
            in_flight: InFlight::new(weights.len()),
            learners: Vec::new(),
            pool: Pool::unknown(),
            keys: Keys::default(),
            faded: Vec::new(),
            refusals: Refusals::default(),
            shares: Shares::default(),
            told: Vec::new(),
            heard: Heard::default(),
            finishes: 0,
            review_after: 1,
            cursor: 0,
        };
        policy.set_weights(weights);
        policy
    }

    /// How dear a backend is that has so many.
    fn key(&self, backend: usize, in_flight: u32, held: f64) -> f32 {
        key(&self.learners[backend], &self.pool, self.sight.wait(), in_flight, held)
    }

    /// Sees otherwise from now on. What was learned of backends is forgotten: others' queues were taken for slow service.
    fn look_by(&mut self, sight: Option<Sight>) {
        let Some(sight) = sight.filter(|sight| *sight != self.sight) else { return };
        self.sight = sight;
        self.learners.iter_mut().for_each(Learner::forget);
        (self.pool, self.review_after) = (Pool::unknown(), 1);
        self.value_all();
    }

    /// Keys and shares of all anew.
    fn value_all(&mut self) {
        let backends = self.learners.len();
        self.keys.reset(backends);
        self.shares.reset(backends);
        (0..self.weights.len()).for_each(|i| self.changed(i, Nanos::ZERO));
        self.in_flight.fade_next();
    }

    /// Something has changed at this backend: its key and its share follow.
    fn changed(&mut self, backend: usize, now: Nanos) {
        if self.weights.get(backend).is_none_or(|w| *w == 0) {
            return;
        }
        match self.sight {
            Sight::Auto | Sight::Own => {
                let count = self.in_flight.count(backend);
                let held = self.in_flight.load(backend, now) - f64::from(count);
                self.keys.set(backend, f64::from(self.key(backend, count, held)));
            }
            Sight::Refusals => self.shares.set(backend, self.refusals.weight(backend)),
            Sight::Probes => {
                let held = self.in_flight.held(backend, now) as f32;
                let learner = &self.learners[backend];
                let capacity = learner.cores() / learner.shrunk_us(&self.pool);
                self.shares
                    .set(backend, capacity / (1.0 + self.sight.wait() * held / learner.cores()));
            }
        }
    }

    /// Service time over the pool's.
    fn relative(&self, backend: usize) -> f32 {
        let relative = |pool_us| self.learners[backend].shrunk_us(&self.pool) / pool_us;
        self.pool.service_us.map_or(1.0, relative)
    }

    /// What the pool has in common.
    fn review(&mut self) {
        self.refusals.review();
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
        if self.sight == Sight::Probes {
            self.pool.hoped_cores = self.pool.open_cores;
        }
        self.review_cores();
    }

    /// Numbers of cores that others have are likelier (empirical Bayes): under a law where few requests take most of the
    /// time, a backend alone needs thousands of requests to tell one core from two.
    fn review_cores(&mut self) {
        let mut having = [0.0f32; LEVELS];
        // Where no bend was seen there may be any number.
        let mut unseen = UNSEEN;
        for learner in &self.learners {
            match learner.bend() {
                Some(bend) => having[bend] += 1.0,
                None => unseen += 1.0,
            }
        }
        if having.iter().sum::<f32>() < SOME {
            self.pool.unusual = [0.0; LEVELS];
            return;
        }
        let most = having.iter().copied().fold(0.0, f32::max) + unseen;
        for (unusual, having) in self.pool.unusual.iter_mut().zip(having) {
            *unusual = (2.0 * (most / (having + unseen)).ln()).min(UNUSUAL);
        }
    }

    /// One backend after another is looked at though nothing happens there.
    fn next_round(&mut self, now: Nanos) {
        self.cursor = if self.cursor + 1 < self.learners.len() { self.cursor + 1 } else { 0 };
        self.learners[self.cursor].round(&self.pool);
        self.refusals.round(self.cursor);
        self.changed(self.cursor, now);
        self.finishes += 1;
        if self.finishes >= self.review_after {
            self.finishes = 0;
            self.review_after = (2 * self.review_after).min(REVIEW);
            self.review();
        }
    }

    /// Of the backends that answered for this request, the one with the least key. Failures not yet forgiven count as they do for
    /// own counts: a backend that fails at once has nothing in flight to report. Backends that may have become as good
    /// since they were asked take turns by chance, or all balancers would send to the one that was the emptiest
    /// (Mitzenmacher, 2000, How useful is old information?).
    fn least_answered(
        &mut self,
        request: &Request<'_>,
        now: Nanos,
        rng: &mut dyn RngCore,
    ) -> Option<usize> {
        let mut keys = [f32::INFINITY; MAX_CHOICES as usize];
        for (key, &i) in keys.iter_mut().zip(request.answered()) {
            let open = self.weights.get(i).is_some_and(|w| *w > 0) && request.allows(i);
            if let Some(told) = self.news(i, now).filter(|_| open) {
                let held = self.in_flight.held(i, now);
                *key = self.key(i, told.in_flight, held);
            }
        }
        let answered = &request.answered()[..request.answered().len().min(keys.len())];
        let best_us = keys[..answered.len()].iter().copied().fold(f32::INFINITY, f32::min);
        // A bit for each answer.
        let mut as_good = 0u32;
        for (k, (&key, &i)) in keys.iter().zip(answered).enumerate() {
            let is = key.is_finite() && (key <= best_us || self.may_be_as_good(i, best_us, now));
            as_good |= u32::from(is) << k;
        }
        let count = u64::from(as_good.count_ones());
        let place = if count > 1 { below(count, rng) } else { 0 };
        (0..place).for_each(|_| as_good &= as_good - 1);
        answered.get(as_good.trailing_zeros() as usize).copied()
    }

    /// Whether a backend may have become as good as this key since it was asked. By so much the difference between two
    /// backends like it changes in that time: while all their cores are busy, as many requests come and go at each as it
    /// serves, and the standard deviation of the difference is twice the root of that.
    fn may_be_as_good(&mut self, backend: usize, key_us: f32, now: Nanos) -> bool {
        let Some(told) = self.told[backend].filter(|told| told.in_flight > 0) else { return false };
        let learner = &self.learners[backend];
        let served = learner.hoped_cores(&self.pool) * now.since(told.at).as_secs_f32() * 1e6
            / learner.shrunk_us(&self.pool);
        let fewer = (2.0 * served.sqrt()) as u32;
        if fewer == 0 || self.pool.service_us.is_none() {
            return false;
        }
        let held = self.in_flight.held(backend, now);
        self.key(backend, told.in_flight.saturating_sub(fewer), held) <= key_us
    }

    /// What a backend told, while it is news.
    fn news(&self, backend: usize, now: Nanos) -> Option<Told> {
        let told = *self.told.get(backend)?;
        told.filter(|told| now.since(told.at) <= self.load_age)
    }

    /// One of this balancer's requests has ended, and has left a core free: a backend to ask before the next pick.
    fn ended(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        let Some(told) = &mut self.told[backend] else { return };
        match finish.load {
            Some(load) => *told = Told { in_flight: load.in_flight, at: now },
            None => told.in_flight = told.in_flight.saturating_sub(1),
        }
        if finish.ending == Ending::Success {
            self.heard.has_room(backend);
        }
    }

    /// What a request finds at this backend, as far as is known.
    fn found(&self, backend: usize) -> u32 {
        let own = self.in_flight.count(backend);
        match self.sight {
            Sight::Auto | Sight::Own => own,
            Sight::Refusals => 0,
            Sight::Probes => self.told[backend].map_or(own, |t| t.in_flight),
        }
    }
}

/// `held` are failures not yet forgiven: they count as waiting even where cores are free.
fn key(learner: &Learner, pool: &Pool, dear: f32, in_flight: u32, held: f64) -> f32 {
    let (n, held, c) = (in_flight as f32 + 1.0, held as f32, learner.hoped_cores(pool));
    let room = if learner.is_open() { c.max(pool.open_cores) } else { c };
    let wait = (n / c - 1.0).max(0.0) + held / c;
    learner.shrunk_us(pool) * (1.0 + dear * wait + OCCUPANCY * n / room)
}

impl Policy for ExpectedDelay {
    fn set_weights(&mut self, weights: &[u32]) {
        self.weights.clear();
        self.weights.extend_from_slice(weights);
        let backends = weights.len().max(self.learners.len());
        self.in_flight.grow(backends);
        self.learners.resize_with(backends, Learner::new);
        self.refusals.grow(backends);
        self.told.resize(backends, None);
        self.faded.reserve(backends);
        self.value_all();
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        match self.sight {
            Sight::Auto | Sight::Own => {
                let mut faded = std::mem::take(&mut self.faded);
                self.in_flight.faded(now, |i, _| faded.push(i));
                faded.drain(..).for_each(|i| self.changed(i, now));
                self.faded = faded;
                self.keys.least(request, rng)
            }
            Sight::Refusals => self.shares.draw(request, rng),
            Sight::Probes => {
                self.least_answered(request, now, rng).or_else(|| self.shares.draw(request, rng))
            }
        }
    }

    fn rather_waits(&mut self, backend: usize, here: Duration, now: Nanos) -> bool {
        let news = self.news(backend, now).filter(|_| self.has_room(backend, now) == Some(false));
        let (Some(told), Some(pool_us)) = (news, self.pool.service_us) else { return false };
        let held = self.in_flight.held(backend, now);
        let there_us = self.key(backend, told.in_flight, held);
        there_us > pool_us + self.sight.wait() * here.as_secs_f32() * 1e6
    }

    fn has_room(&self, backend: usize, now: Nanos) -> Option<bool> {
        let told = self.news(backend, now).filter(|_| self.sight == Sight::Probes)?;
        Some((told.in_flight as f32) < self.learners[backend].hoped_cores(&self.pool))
    }

    fn on_start(&mut self, backend: usize, now: Nanos) {
        let found = self.found(backend);
        self.learners[backend].start(found, now);
        self.in_flight.start(backend);
        if let Some(told) = &mut self.told[backend] {
            told.in_flight = told.in_flight.saturating_add(1);
        }
        self.heard.forget(backend);
        self.changed(backend, now);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.in_flight.finish(backend, finish, now);
        let took_ns = u64::try_from(finish.latency.as_nanos()).unwrap_or(u64::MAX);
        let found = self.learners[backend].found(took_ns, now);
        if let (Ending::Success, Some(found)) = (finish.ending, found) {
            self.learners[backend].success(found, finish.latency_us() as f32, &self.pool);
            if self.pool.service_us.is_none() {
                // Until now no backend's time was known: all keys were of no unit.
                self.review();
                (0..self.weights.len()).for_each(|i| self.changed(i, now));
            }
        }
        let failed = self.in_flight.successes().failed_part(finish);
        if let (Sight::Refusals, Some(failed)) = (self.sight, failed) {
            let relative = self.relative(backend);
            match finish.ending {
                Ending::Abandoned => self.refusals.given_up(backend, failed as f32, relative),
                // A client without time is no sign of a full backend.
                Ending::TooLate => {}
                ending => self.refusals.tried(backend, ending == Ending::Success, relative),
            }
        }
        if self.sight == Sight::Probes {
            self.ended(backend, finish, now);
        }
        let refused = finish.ending == Ending::Rejected;
        if let (Some(choice), true) = (&mut self.choice, refused || finish.chip.is_some()) {
            choice.saw_ingress(backend, refused);
        }
        self.changed(backend, now);
        self.next_round(now);
    }

    fn probing(&self) -> Probing {
        match self.sight {
            Sight::Probes => Probing::Before,
            _ if self.choice.is_some() => Probing::Beside,
            _ => Probing::Never,
        }
    }

    fn probe_targets(
        &mut self,
        request: &Request<'_>,
        _now: Nanos,
        rng: &mut dyn RngCore,
        targets: &mut Vec<usize>,
    ) {
        if self.sight != Sight::Probes {
            let Some(choice) = &mut self.choice else { return };
            let open = |target: &usize| self.weights.get(*target).is_some_and(|w| *w > 0);
            if let Some(target) = choice.target().filter(open) {
                targets.push(target);
                let sight = choice.asked();
                self.look_by(sight);
            }
            return;
        }
        let before = targets.len();
        // Those that answered have no room: many others are asked, for one that has is rare.
        let count =
            if before == 0 { self.probes } else { MAX_CHOICES.saturating_sub(before as u32) };
        let (weights, learners, pool, told) =
            (&self.weights, &self.learners, &self.pool, &self.told);
        let dear = self.sight.wait();
        for _ in 0..count / 2 {
            let heard = self.heard.take(|i| {
                let open = weights.get(i).is_some_and(|w| *w > 0) && request.allows(i);
                let open = open && !targets[..before].contains(&i);
                let found = told[i].map_or(0, |t| t.in_flight);
                open.then(|| key(&learners[i], pool, dear, found, 0.0))
            });
            targets.extend(heard);
        }
        let heard = targets.len() - before;
        self.shares.draw_some(count - heard as u32, request, rng, targets);
        // Of equal ones the first to be asked is picked: in any order, or those heard of would keep to themselves.
        for last in (before + 1..targets.len()).rev() {
            let place = rng.next_u64() as usize % (last - before + 1);
            targets.swap(last, before + place);
        }
    }

    fn on_probe(&mut self, backend: usize, load: ServerLoad, asked: Nanos) {
        let own = self.in_flight.count(backend);
        if let Some(choice) = &mut self.choice {
            let sight = choice.answered(own, load.in_flight);
            self.look_by(sight);
        }
        let Some(told) = self.told.get_mut(backend) else { return };
        *told = Some(Told { in_flight: load.in_flight, at: asked });
        if self.sight == Sight::Probes {
            self.learners[backend].tell(load.cores);
        }
        if f64::from(load.in_flight) < f64::from(self.learners[backend].cores()) {
            self.heard.has_room(backend);
        } else {
            self.heard.forget(backend);
        }
    }
}
