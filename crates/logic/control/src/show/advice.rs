//! Would the balancer's other kind of method be faster? Both are simulated on the same model of the pool with the same
//! random numbers, and only their ratio is used: a model's absolute numbers are not to be trusted.

use plimsoll_model::{MethodKind, Nanos};
use plimsoll_queueing::{Run, ServiceTime, SmoothRoundRobin, simulate_several};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use crate::backend::Backend;
use crate::propose::in_flight;
use crate::propose::search::{Found, Question, Search, requests_for};
use crate::propose::split;
use crate::show::view::Advice;
use crate::spec::ServiceSpec;
use crate::tuning::show::advice::{EVERY, WORTH_SAYING};

/// How much longer clients wait behind several balancers than behind one with the same weights, as parts of that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SeveralCost {
    /// Where each has all backends.
    pub whole: f64,
    /// Where each has a subset of them.
    pub subsets: f64,
}

/// Asks now and then whether the balancer's other kind of method would be faster.
#[derive(Clone, Debug)]
pub(crate) struct Advisor {
    seed: u64,
    due: Nanos,
    asked: Option<Question>,
    search: Option<Search>,
    advice: Option<Advice>,
    several_cost: Option<SeveralCost>,
}

/// The pool that the question is about.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub spec: &'a ServiceSpec,
    pub backends: &'a [Backend],
    pub kind: MethodKind,
    pub rate_rps: f64,
    /// How many balancers share the traffic.
    pub balancers: u32,
}

impl Advisor {
    /// `seed` seeds the model's random numbers.
    pub fn new(now: Nanos, seed: u64) -> Self {
        Advisor { seed, due: now, asked: None, search: None, advice: None, several_cost: None }
    }

    pub fn advice(&self) -> Option<&Advice> {
        self.advice.as_ref()
    }

    /// See [`crate::PlanView::several_cost`] and [`crate::PlanView::subsets_cost`].
    pub fn several_cost(&self) -> Option<SeveralCost> {
        self.several_cost
    }

    /// Discards what was found under another method of the balancer.
    pub fn forget(&mut self) {
        *self = Advisor::new(self.due, self.seed);
    }

    /// Runs one more slice of the comparison; begins one where none is under way and the pool is `settled`.
    pub fn advise(&mut self, now: Nanos, asked: Asked<'_>, settled: bool) {
        if !self.advance(now, asked) && settled {
            self.begin(now, asked);
        }
    }

    /// Runs one more slice of the comparison; returns whether one was under way.
    fn advance(&mut self, now: Nanos, asked: Asked<'_>) -> bool {
        let Some(search) = &mut self.search else { return false };
        if let Some(found) = search.advance() {
            self.search = None;
            self.conclude(now, asked, &found);
        }
        true
    }

    /// Begins a comparison, if one is due and its answer may be another one.
    fn begin(&mut self, now: Nanos, asked: Asked<'_>) {
        let Asked { backends, kind, rate_rps, balancers, .. } = asked;
        if now < self.due || rate_rps <= 0.0 || kind == MethodKind::NoLiveWeights {
            return;
        }
        let mut usable = backends.iter().filter(|b| b.is_usable());
        if !usable.all(|b| b.knowledge.service_us().is_some()) {
            return;
        }
        self.due = now + EVERY;
        let (_, mut members) = in_flight::members(now, backends);
        members.iter_mut().for_each(|m| m.weight_rps = m.capacity_rps);
        let question = Question::new(&members, rate_rps);
        if self.asked.as_ref().is_some_and(|asked| asked.is_like(&question)) {
            return;
        }
        self.asked = Some(question);
        let capacity: f64 = members.iter().map(|m| m.capacity_rps).sum();
        if rate_rps < plimsoll_learn::USABLE_CAPACITY * capacity {
            self.search = Some(Search::new(members, rate_rps, self.seed, None, balancers));
        }
    }

    fn conclude(&mut self, now: Nanos, asked: Asked<'_>, counted: &Found) {
        let Asked { spec, backends, kind, balancers, .. } = asked;
        let Ok(packed) = split::decide(now, spec, backends, counted.rate_rps, false) else {
            return;
        };
        let (_, members) = in_flight::members(now, backends);
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
        let balancers = balancers.max(1);
        let mut splitting: Vec<SmoothRoundRobin> =
            (0..balancers).map(|_| SmoothRoundRobin::new(&shares)).collect();
        let mut each: Vec<&mut SmoothRoundRobin> = splitting.iter_mut().collect();
        let split = simulate_several(&stations, &mut each, &run, &mut rng());
        let is_in_flight = kind == MethodKind::InFlight;
        self.several_cost = (balancers > 1 && is_in_flight).then(|| {
            let model = |n| Search::new(members.clone(), counted.rate_rps, self.seed, None, n);
            let weights = || counted.weights.clone();
            let one_us = model(1).try_out(weights()).mean_us;
            let subsets_us = model(balancers).try_subsets(weights()).mean_us;
            let cost = |mean_us: f64| (mean_us / one_us - 1.0).max(0.0);
            SeveralCost { whole: cost(counted.mean_us), subsets: cost(subsets_us) }
        });
        let (method, expected_us, present_us) = match kind {
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
    use crate::controller::Controller;
    use crate::spec::BackendSpec;

    fn spec() -> ServiceSpec {
        let backends = (0..3).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let mut spec = ServiceSpec::new("shop", backends.collect());
        spec.balancers = 2;
        spec
    }

    fn found(backends: usize) -> Found {
        let (weights, shares) = (vec![10; backends], vec![1.0 / backends as f64; backends]);
        Found { weights, shares, mean_us: 1.5e4, parked: 0, rate_rps: 100.0 }
    }

    #[test]
    fn what_was_found_for_another_pool_is_not_used() {
        let (spec, mut advisor) = (spec(), Advisor::new(Nanos::ZERO, 1));
        let new = |b| Backend::new(b, spec.slow_start);
        let mut backends: Vec<Backend> = spec.backends.iter().map(new).collect();
        backends.iter_mut().for_each(|b| b.knowledge = Knowledge::known(1e4));
        let (kind, rate_rps) = (MethodKind::InFlight, 100.0);
        let asked = Asked { spec: &spec, backends: &backends, kind, rate_rps, balancers: 2 };
        for backends in [2, 4] {
            advisor.conclude(Nanos::ZERO, asked, &found(backends));
            assert_eq!(advisor.several_cost(), None, "{backends}");
        }
        advisor.conclude(Nanos::ZERO, asked, &found(3));
        let cost = advisor.several_cost().expect("it is modelled");
        assert!(cost.whole.is_finite() && cost.subsets.is_finite());
    }

    #[test]
    fn advice_ends_with_the_method_that_it_was_for() {
        let mut controller = Controller::new(spec(), None, Nanos::ZERO, 1);
        controller.advisor.several_cost = Some(SeveralCost { whole: 0.1, subsets: 0.0 });
        controller.advisor.asked = Some(Question::new(&[], 100.0));
        let report = plimsoll_model::BalancerReport {
            at: Nanos::ZERO,
            method: Method { name: "roundrobin".to_owned(), kind: MethodKind::Split },
            generation: 1,
            traffic: plimsoll_model::Traffic::Counted,
            servers: Vec::new(),
        };
        controller.on_report(Nanos::ZERO, &report, &mut Vec::new());
        let Advisor { several_cost, asked, .. } = &controller.advisor;
        assert_eq!((several_cost, asked), (&None, &None), "asked again");
    }
}
