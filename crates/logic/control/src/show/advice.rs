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
    /// Discards what was found under another method of the balancer.
    pub(crate) fn forget_advice(&mut self) {
        self.advice = None;
        self.several_cost = None;
        self.advised = None;
        self.advice_search = None;
    }

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
                Some(Search::new(members, rate, self.seed, None, self.spec.sink.balancers));
        }
    }

    fn conclude(&mut self, now: Nanos, counted: &Found) {
        let Ok(packed) = split::decide(now, &self.spec, &self.backends, counted.rate_rps, false)
        else {
            return;
        };
        let (_, members) = in_flight::members(now, &self.backends);
        // A backend may have failed, returned, joined or left during the search.
        if [packed.wishes.len(), counted.weights.len()].iter().any(|n| *n != members.len()) {
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
        let balancers = self.spec.sink.balancers.max(1);
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

#[cfg(test)]
mod tests {
    use plimsoll_model::{BackendId, Method};

    use super::*;
    use crate::belief::knowledge::Knowledge;
    use crate::spec::{BackendSpec, ServiceSpec};

    /// Three known backends behind two balancers with this method.
    fn controller(method: Method) -> Controller {
        let backends = (0..3).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let mut spec = ServiceSpec::new("shop", backends.collect());
        spec.sink.balancers = 2;
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        controller.method = Some(method);
        controller.backends.iter_mut().for_each(|b| b.knowledge = Knowledge::known(1e4));
        controller
    }

    fn found(backends: usize) -> Found {
        let (weights, shares) = (vec![10; backends], vec![1.0 / backends as f64; backends]);
        Found { weights, shares, mean_us: 1.5e4, parked: 0, rate_rps: 100.0 }
    }

    fn leastconn() -> Method {
        Method { name: "leastconn".to_owned(), kind: MethodKind::InFlight }
    }

    #[test]
    fn what_was_found_for_another_pool_is_not_used() {
        let mut controller = controller(leastconn());
        for backends in [2, 4] {
            controller.conclude(Nanos::ZERO, &found(backends));
            assert_eq!(controller.several_cost, None, "{backends}");
        }
        controller.conclude(Nanos::ZERO, &found(3));
        assert!(controller.several_cost.is_some());
    }

    #[test]
    fn advice_ends_with_the_method_that_it_was_for() {
        let mut controller = controller(leastconn());
        controller.conclude(Nanos::ZERO, &found(3));
        controller.advised = Some(Question::new(&[], 100.0));
        let report = plimsoll_model::BalancerReport {
            at: Nanos::ZERO,
            method: Method { name: "roundrobin".to_owned(), kind: MethodKind::Split },
            generation: 1,
            traffic: plimsoll_model::Traffic::Counted,
            servers: Vec::new(),
        };
        controller.on_report(Nanos::ZERO, &report, &mut Vec::new());
        assert_eq!((controller.several_cost, &controller.advised), (None, &None), "asked again");
    }
}
