//! Would the balancer's other kind of method be faster? Both are simulated on the same model of the pool with the same
//! random numbers, and only their ratio is used: a model's absolute numbers are not to be trusted.

use std::time::Duration;

use plimsoll_model::{MethodKind, Nanos};
use plimsoll_queueing::{Run, ServiceTime, SmoothRoundRobin, simulate_several};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use crate::controller::Controller;
use crate::propose::in_flight;
use crate::propose::search::{Found, Question, Search, requests_for};
use crate::propose::split;
use crate::show::view::{Advice, Phase};

/// Interval of the question; it is answered only if it has changed.
const EVERY: Duration = Duration::from_secs(5 * 60);
/// A smaller gain is not reported.
const WORTH_SAYING: f64 = 0.03;

impl Controller {
    /// Runs one more slice of the comparison, when it is due.
    pub(crate) fn continue_advice(&mut self, now: Nanos) {
        if let Some(search) = &mut self.advice_search {
            if let Some(found) = search.advance() {
                self.advice_search = None;
                self.conclude(now, &found);
            }
            return;
        }
        let rate = self.history.rate_rps().unwrap_or(0.0);
        let settled = matches!(self.phase, Phase::Steady | Phase::Observing);
        if !settled || now < self.advise_at || rate <= 0.0 || self.search.is_some() {
            return;
        }
        if self.kind() == MethodKind::NoLiveWeights {
            return;
        }
        let all_known = self
            .backends
            .iter()
            .filter(|b| b.is_usable())
            .all(|b| b.knowledge.service_us().is_some());
        if !all_known {
            return;
        }
        self.advise_at = now + EVERY;
        let (_, mut members) = in_flight::members(now, &self.backends);
        members.iter_mut().for_each(|m| m.weight_rps = m.capacity_rps);
        let asked = Question::new(&members, rate);
        if self.advised.as_ref().is_some_and(|question| question.is_like(&asked)) {
            return;
        }
        self.advised = Some(asked);
        let capacity: f64 = members.iter().map(|m| m.capacity_rps).sum();
        if rate < plimsoll_learn::USABLE_CAPACITY * capacity {
            self.advice_search =
                Some(Search::new(members, rate, self.seed, None, self.spec.balancers));
        }
    }

    fn conclude(&mut self, now: Nanos, counted: &Found) {
        let Ok(packed) = split::decide(now, &self.spec, &self.backends, counted.rate_rps, false)
        else {
            return;
        };
        let (_, members) = in_flight::members(now, &self.backends);
        if members.len() != packed.wishes.len() {
            return;
        }
        let stations: Vec<_> = members.iter().map(|m| m.station()).collect();
        let shares: Vec<f64> = packed.wishes.iter().map(|w| w.share).collect();
        let requests = requests_for(stations.len());
        let run = Run {
            rate_rps: counted.rate_rps,
            requests,
            warm_up: requests / 10,
            service: ServiceTime::Exponential,
        };
        let rng = || Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let balancers = self.spec.balancers.max(1);
        let mut splitting: Vec<SmoothRoundRobin> =
            (0..balancers).map(|_| SmoothRoundRobin::new(&shares)).collect();
        let mut each: Vec<&mut SmoothRoundRobin> = splitting.iter_mut().collect();
        let split = simulate_several(&stations, &mut each, &run, &mut rng());
        let is_in_flight = self.kind() == MethodKind::InFlight;
        self.several_cost = (balancers > 1 && is_in_flight).then(|| {
            let one = Search::new(members, counted.rate_rps, self.seed, None, 1);
            (counted.mean_us / one.try_out(counted.weights.clone()).mean_us - 1.0).max(0.0)
        });
        let (method, expected_us, present_us) = match self.kind() {
            MethodKind::Split => ("leastconn", counted.mean_us, split.mean_us),
            _ => ("roundrobin", split.mean_us, counted.mean_us),
        };
        let gain = 1.0 - expected_us / present_us;
        self.advice = (gain > WORTH_SAYING).then(|| Advice {
            method: method.to_owned(),
            expected_ms: expected_us / 1e3,
            present_ms: present_us / 1e3,
            gain,
        });
    }
}
