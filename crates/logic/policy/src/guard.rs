//! What any policy can be given: a limit of requests in flight per backend, ejection of outliers, slow
//! start. One decorator holds all three, for they meet: a backend that returns from an ejection starts slowly, and
//! one that is full or ejected is closed to the policy in the same way. A pick costs one test more when
//! no backend is closed and none is on a ramp.

mod ejection;
mod limit;
mod slow_start;

use std::time::Duration;

use plimsoll_model::Nanos;
use rand::RngCore;

pub use ejection::EjectionSettings;
pub use slow_start::SlowStartSettings;

use crate::state::Closed;
use crate::{Finish, Policy, Probing, Request, ServerLoad, Settings};
use ejection::Ejection;
use limit::Limit;
use slow_start::SlowStart;

/// A pick that falls on backends in slow start is made again so often at most; the last one stands.
const RAMP_TRIES: u32 = 8;

/// How a policy takes part weights.
pub enum Ramping {
    /// It is given the weight of the moment.
    ByWeight,
    /// Its tables stay; a part of its picks is turned away, and made again.
    ByRefusal,
    /// The same, but what a newcomer turned away is picked for again by this one, which is of the same kind and
    /// has weights for those alone that were not on a ramp when weights last changed.
    ByRefusalTo(Box<dyn Policy>),
}

/// A policy with a limit, ejection and slow start, each as set.
pub struct Guarded {
    inner: Box<dyn Policy>,
    ramping: Ramping,
    weights: Vec<u32>,
    /// The longest list of weights so far.
    known: usize,
    limit: Option<Limit>,
    ejection: Option<Ejection>,
    slow_start: Option<SlowStart>,
    /// Full or ejected.
    closed: Closed,
    /// Weights that differ by slow start: the policy's own, or those of [`Ramping::ByRefusalTo`].
    scaled: Vec<u32>,
    /// Picks of one that is ejected, for all were.
    ejected_picks: u64,
}

impl Guarded {
    /// Whether these settings ask for any of it.
    pub(crate) fn is_asked_for(settings: &Settings, limits: &[u32]) -> bool {
        settings.max_in_flight.is_some()
            || !limits.is_empty()
            || settings.ejection.is_some()
            || settings.slow_start.is_some()
    }

    /// Around this policy, which has these weights and, by backend, these limits; heeds `max_in_flight` for
    /// backends beyond these, `ejection` and `slow_start`.
    pub fn new(
        inner: Box<dyn Policy>,
        ramping: Ramping,
        weights: &[u32],
        settings: &Settings,
        limits: &[u32],
    ) -> Self {
        let is_limited = settings.max_in_flight.is_some() || !limits.is_empty();
        let others = settings.max_in_flight.unwrap_or(u32::MAX);
        let mut closed = Closed::default();
        closed.grow(weights.len());
        Guarded {
            inner,
            ramping,
            weights: weights.to_vec(),
            known: weights.len(),
            limit: is_limited.then(|| Limit::new(limits, others, weights.len())),
            ejection: settings.ejection.map(|e| Ejection::new(e, weights)),
            slow_start: settings.slow_start.map(|s| SlowStart::new(s, weights.len())),
            closed,
            scaled: Vec::new(),
            ejected_picks: 0,
        }
    }

    /// Brings up to date what time alone changes.
    fn tick(&mut self, now: Nanos) {
        let slow_start = &mut self.slow_start;
        let returned = |i| {
            if let Some(slow) = slow_start {
                slow.returned(i, now);
            }
        };
        if let Some(ejection) = &mut self.ejection
            && ejection.tick(now, returned)
        {
            (0..self.known).for_each(|i| self.close(i));
        }
        if let Some(slow) = &mut self.slow_start
            && slow.step(now)
            && matches!(self.ramping, Ramping::ByWeight)
        {
            slow.scale(&self.weights, now, &mut self.scaled);
            self.inner.set_weights(&self.scaled);
        }
    }

    fn close(&mut self, backend: usize) {
        let full = self.limit.as_ref().is_some_and(|l| l.full().contains(backend));
        let ejected = self.ejection.as_ref().is_some_and(|e| e.ejected().contains(backend));
        self.closed.set(backend, full || ejected);
    }

    fn pick_open(
        &mut self,
        request: &Request<'_>,
        now: Nanos,
        rng: &mut dyn RngCore,
    ) -> Option<usize> {
        if self.closed.is_empty() {
            return self.inner.pick(request, now, rng);
        }
        self.inner.pick(&request.without(&self.closed), now, rng)
    }

    /// When no backend is open: better one that is ejected than none; but a limit is a limit.
    fn pick_ejected(
        &mut self,
        request: &Request<'_>,
        now: Nanos,
        rng: &mut dyn RngCore,
    ) -> Option<usize> {
        if self.ejection.as_ref().is_none_or(|e| e.ejected().is_empty()) {
            return None;
        }
        match &self.limit {
            Some(limit) => self.inner.pick(&request.without(limit.full()), now, rng),
            None => self.inner.pick(request, now, rng),
        }
    }

    /// The same after a pick that this backend, which is now closed, turned away.
    fn pick_again(
        &mut self,
        turned_away: usize,
        request: &Request<'_>,
        now: Nanos,
        rng: &mut dyn RngCore,
    ) -> Option<usize> {
        let settled = match &mut self.ramping {
            Ramping::ByRefusalTo(settled) if self.scaled.get(turned_away) == Some(&0) => settled,
            _ => return self.pick_open(request, now, rng),
        };
        let picked = settled.pick(&request.without(&self.closed), now, rng);
        picked.or_else(|| self.pick_open(request, now, rng))
    }

    /// Picks again while the pick falls on a backend that is not yet due at its part of the ramp, over the part
    /// of the furthest: where all that are open are at the same, no other could take their load.
    fn pick_ramped(
        &mut self,
        request: &Request<'_>,
        now: Nanos,
        rng: &mut dyn RngCore,
    ) -> Option<usize> {
        let mut turned_away = [0; RAMP_TRIES as usize];
        let mut tries = 0;
        let mut greatest = None;
        let mut next = self.pick_open(request, now, rng);
        let picked = loop {
            let Some(i) = next else { break turned_away[..tries].last().copied() };
            let part = self.slow_start.as_ref().map_or(1.0, |slow| slow.part(i, now));
            let due = part >= 1.0 || {
                let greatest = *greatest.get_or_insert_with(|| self.greatest_part(request, now));
                part >= greatest || chance(request.key, i, rng) * greatest < part
            };
            if due || tries == turned_away.len() {
                break Some(i);
            }
            turned_away[tries] = i;
            tries += 1;
            self.closed.set(i, true);
            next = self.pick_again(i, request, now, rng);
        };
        turned_away[..tries].iter().for_each(|&i| self.close(i));
        picked
    }

    /// Of those that this request could be sent to.
    fn greatest_part(&self, request: &Request<'_>, now: Nanos) -> f64 {
        let open = |&i: &usize| self.weights[i] > 0 && request.without(&self.closed).allows(i);
        let open = (0..self.weights.len()).filter(open);
        self.slow_start.as_ref().map_or(1.0, |slow| slow.greatest_part(open, now))
    }
}

/// A number of 0…1 that is the same for the same key and backend; any without a key.
fn chance(key: Option<u64>, backend: usize, rng: &mut dyn RngCore) -> f64 {
    let bits = match key {
        // SplitMix64's mixing: the key's own order must not show.
        Some(key) => {
            let z = key.wrapping_add((backend as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }
        None => rng.next_u64(),
    };
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

impl Policy for Guarded {
    fn set_weights(&mut self, weights: &[u32]) {
        if let Some(slow) = &mut self.slow_start {
            slow.set_weights(&self.weights, weights);
            if let Ramping::ByRefusalTo(settled) = &mut self.ramping {
                slow.settled(weights, &mut self.scaled);
                settled.set_weights(&self.scaled);
            }
        }
        if let Some(limit) = &mut self.limit {
            limit.grow(weights.len());
        }
        if let Some(ejection) = &mut self.ejection {
            ejection.set_weights(weights);
        }
        self.closed.grow(weights.len());
        self.known = self.known.max(weights.len());
        self.weights.clear();
        self.weights.extend_from_slice(weights);
        // A ramp's first step, at the next pick, scales them.
        self.inner.set_weights(weights);
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        self.tick(now);
        let ramps = self.slow_start.as_ref().is_some_and(SlowStart::is_active);
        let picked = if ramps && !matches!(self.ramping, Ramping::ByWeight) {
            self.pick_ramped(request, now, rng)
        } else {
            self.pick_open(request, now, rng)
        };
        picked.or_else(|| {
            let ejected = self.pick_ejected(request, now, rng);
            self.ejected_picks += u64::from(ejected.is_some());
            ejected
        })
    }

    fn on_start(&mut self, backend: usize, now: Nanos) {
        if let Some(limit) = &mut self.limit {
            limit.start(backend);
            self.close(backend);
        }
        if let Ramping::ByRefusalTo(settled) = &mut self.ramping {
            settled.on_start(backend, now);
        }
        self.inner.on_start(backend, now);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        if let Some(limit) = &mut self.limit {
            limit.finish(backend);
        }
        if let Some(ejection) = &mut self.ejection {
            ejection.finish(backend, finish, now);
        }
        self.close(backend);
        if let Ramping::ByRefusalTo(settled) = &mut self.ramping {
            settled.on_finish(backend, finish, now);
        }
        self.inner.on_finish(backend, finish, now);
    }

    fn rather_waits(&mut self, backend: usize, here: Duration, now: Nanos) -> bool {
        self.inner.rather_waits(backend, here, now)
    }

    fn has_room(&self, backend: usize, now: Nanos) -> Option<bool> {
        self.inner.has_room(backend, now)
    }

    fn probing(&self) -> Probing {
        self.inner.probing()
    }

    fn probe_targets(
        &mut self,
        request: &Request<'_>,
        now: Nanos,
        rng: &mut dyn RngCore,
        targets: &mut Vec<usize>,
    ) {
        self.inner.probe_targets(&request.without(&self.closed), now, rng, targets);
    }

    fn on_probe(&mut self, backend: usize, load: ServerLoad, asked: Nanos) {
        self.inner.on_probe(backend, load, asked);
    }

    fn takes(&mut self, backend: usize, now: Nanos) -> bool {
        !self.is_closed(backend, now) && self.inner.takes(backend, now)
    }

    fn is_closed(&mut self, backend: usize, now: Nanos) -> bool {
        self.tick(now);
        self.closed.contains(backend)
    }

    fn ineligible_picks(&self) -> u64 {
        self.ejected_picks + self.inner.ineligible_picks()
    }
}
