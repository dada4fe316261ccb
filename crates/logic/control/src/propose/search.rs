//! Weights for an in-flight method, found by simulating them on a model of the balancer.
//!
//! Weights in proportion to capacity are near the best under leastconn, except that it gives an idle server the next
//! request whatever its weight: at low load the slowest servers then get requests that a faster one could have served.
//! Parking the slowest (weight 0) prevents that, as far as the reserve allows. How many to park depends on the load, so
//! it is searched, by simulating the pool with HAProxy's real key and the same random numbers for every candidate. One
//! candidate is tried per call of [`Search::advance`], so that the controller is never blocked for long: about 10 ms
//! for 30 backends.
//!
//! Several balancers before one pool are simulated as what they are: each gets its part of the requests and counts only
//! those. A server is then idle for each of them far more often than it is, and all idle servers come first: traffic
//! tends towards equal parts, whatever the weights. That overloads the servers of the least capacity, so these are
//! parked first, and not the slowest.

use plimsoll_queueing::{HaproxyLeastconn, Run, ServiceTime, Station, simulate_several};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use crate::propose::reserve::in_flight_survives;
use crate::tuning::propose::search::{
    LEASTCONN_SCALE, MIN_CHANGE_GAIN, MIN_GAIN, PATIENCE, REQUESTS, REQUESTS_EACH, SAME,
};

/// A backend in the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Member {
    pub capacity_rps: f64,
    pub service_us: f64,
    /// Its weight is in proportion to this: its capacity, or more where that is being learned, or less in slow start.
    pub weight_rps: f64,
    /// It may be parked.
    pub may_park: bool,
}

impl Member {
    /// The backend as a queue with whole cores.
    pub fn station(&self) -> Station {
        let cores = (self.capacity_rps * self.service_us / 1e6).round().max(1.0);
        // The capacity must be right: cores are rounded, and the speed makes up for it.
        Station { cores: cores as u32, service_us: cores * 1e6 / self.capacity_rps }
    }
}

/// Requests to simulate for a pool of this size.
pub(crate) fn requests_for(backends: usize) -> u32 {
    (backends as u32 * REQUESTS_EACH).clamp(*REQUESTS.start(), *REQUESTS.end())
}

/// These positions in the order in which they are parked behind so many balancers.
pub(crate) fn parking_order(
    members: &[Member],
    mut positions: Vec<usize>,
    balancers: u32,
) -> Vec<usize> {
    positions.sort_by(|&a, &b| match balancers {
        0 | 1 => members[b].service_us.total_cmp(&members[a].service_us),
        _ => members[a].capacity_rps.total_cmp(&members[b].capacity_rps),
    });
    positions
}

/// Weights in proportion to capacity, 0 for `parked`.
pub(crate) fn proportional(members: &[Member], parked: &[usize]) -> Vec<u32> {
    let wanted: Vec<f64> = members
        .iter()
        .enumerate()
        .map(|(i, m)| if parked.contains(&i) { 0.0 } else { m.weight_rps })
        .collect();
    let top = wanted.iter().copied().fold(0.0, f64::max);
    wanted
        .iter()
        .map(|&w| if w > 0.0 { (w / top * LEASTCONN_SCALE).round().max(1.0) as u32 } else { 0 })
        .collect()
}

/// The input of a search.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    members: Vec<Member>,
    rate_rps: f64,
}

impl Question {
    pub fn new(members: &[Member], rate_rps: f64) -> Self {
        Question { members: members.to_vec(), rate_rps }
    }

    /// The traffic that the weights are for, requests per second.
    pub fn rate_rps(&self) -> f64 {
        self.rate_rps
    }

    /// Whether the answer to one question answers the other.
    pub fn is_like(&self, other: &Question) -> bool {
        let near = |a: f64, b: f64| (a / b - 1.0).abs() <= SAME;
        let alike = |(a, b): (&Member, &Member)| {
            near(a.capacity_rps, b.capacity_rps)
                && near(a.service_us, b.service_us)
                && near(a.weight_rps, b.weight_rps)
                && a.may_park == b.may_park
        };
        near(self.rate_rps, other.rate_rps)
            && self.members.len() == other.members.len()
            && self.members.iter().zip(&other.members).all(alike)
    }
}

/// The best weights found, with their expected response time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub weights: Vec<u32>,
    pub shares: Vec<f64>,
    pub mean_us: f64,
    pub parked: usize,
    pub rate_rps: f64,
}

/// A completed search.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Searched {
    pub question: Question,
    /// The weights in force at its start, simulated with the same random numbers.
    pub in_force: Option<Found>,
    pub found: Found,
}

/// A search in progress.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    members: Vec<Member>,
    /// The order in which servers are parked.
    order: Vec<usize>,
    rate_rps: f64,
    /// Balancers before the pool.
    balancers: u32,
    next: usize,
    worse: u32,
    seed: u64,
    /// The weights in force: others must be better by [`MIN_CHANGE_GAIN`] to replace them.
    present: Option<Vec<u32>>,
    in_force: Option<Found>,
    best: Option<Found>,
}

impl Search {
    /// The best weights behind so many balancers for this traffic, of all of them together.
    pub fn new(
        members: Vec<Member>,
        rate_rps: f64,
        seed: u64,
        present: Option<Vec<u32>>,
        balancers: u32,
    ) -> Self {
        let present = present.filter(|w| w.len() == members.len() && w.iter().any(|&w| w > 0));
        let all: Vec<usize> = (0..members.len()).filter(|&i| members[i].may_park).collect();
        let order = parking_order(&members, all, balancers);
        Search {
            members,
            order,
            rate_rps,
            balancers,
            next: 0,
            worse: 0,
            seed,
            present,
            in_force: None,
            best: None,
        }
    }

    pub fn question(&self) -> Question {
        Question::new(&self.members, self.rate_rps)
    }

    /// The weights in force at the start, once they were simulated.
    pub fn in_force(&self) -> Option<Found> {
        self.in_force.clone()
    }

    /// Tries one more candidate; returns the best once none is left.
    pub fn advance(&mut self) -> Option<Found> {
        if let Some(weights) = self.present.take() {
            self.in_force = Some(self.try_out(weights));
            return None;
        }
        if self.is_done() {
            return self.answer();
        }
        let weights = proportional(&self.members, &self.order[..self.next]);
        // The same random numbers give the same result: the weights in force were simulated already.
        let tried = match &self.in_force {
            Some(held) if held.weights == weights => held.clone(),
            _ => self.try_out(weights),
        };
        let gain = if self.next == 0 { 0.0 } else { MIN_GAIN };
        match &self.best {
            Some(best) if tried.mean_us >= best.mean_us * (1.0 - gain) => self.worse += 1,
            _ => {
                self.worse = 0;
                self.best = Some(tried);
            }
        }
        // The optimum is flat: steps grow with the number parked.
        self.next += 1 + self.next / 4;
        if self.is_done() { self.answer() } else { None }
    }

    /// The best found, unless the weights in force are as good and survive a loss, too.
    fn answer(&self) -> Option<Found> {
        let capacity = self.capacity_rps();
        let survives = |held: &&Found| in_flight_survives(&capacity, &held.weights, self.rate_rps);
        match (self.in_force.as_ref().filter(survives), &self.best) {
            (Some(held), Some(best)) if best.mean_us > held.mean_us * (1.0 - MIN_CHANGE_GAIN) => {
                Some(held.clone())
            }
            _ => self.best.clone(),
        }
    }

    #[cfg(test)]
    fn finish(mut self) -> Found {
        loop {
            if let Some(found) = self.advance() {
                return found;
            }
        }
    }

    fn is_done(&self) -> bool {
        let leaves_reserve = |parked: &[usize]| {
            let weights = proportional(&self.members, parked);
            in_flight_survives(&self.capacity_rps(), &weights, self.rate_rps)
        };
        self.best.is_some()
            && (self.worse >= PATIENCE
                || self.next > self.order.len()
                || !leaves_reserve(&self.order[..self.next]))
    }

    fn capacity_rps(&self) -> Vec<f64> {
        self.members.iter().map(|m| m.capacity_rps).collect()
    }

    /// What these weights would do in all balancers.
    pub fn try_out(&self, weights: Vec<u32>) -> Found {
        let rows = vec![weights.clone(); self.balancers.max(1) as usize];
        self.try_each(&rows, weights)
    }

    /// What these weights would do if each balancer had a subset of the backends.
    pub fn try_subsets(&self, weights: Vec<u32>) -> Found {
        let parts = vec![1.0; self.balancers.max(1) as usize];
        self.try_each(&plimsoll_pack::subsets(&weights, &parts), weights)
    }

    /// What the weights of each balancer would do.
    fn try_each(&self, rows: &[Vec<u32>], weights: Vec<u32>) -> Found {
        let parked = weights.iter().filter(|&&w| w == 0).count();
        let stations: Vec<Station> = self.members.iter().map(Member::station).collect();
        let requests = requests_for(stations.len());
        let run = Run {
            rate_rps: self.rate_rps,
            requests,
            warm_up: requests / 10,
            service: ServiceTime::Exponential,
        };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut balancers: Vec<HaproxyLeastconn> =
            rows.iter().map(|row| HaproxyLeastconn::new(row)).collect();
        let mut each: Vec<&mut HaproxyLeastconn> = balancers.iter_mut().collect();
        let seen = simulate_several(&stations, &mut each, &run, &mut rng);
        let total: u64 = seen.served.iter().sum();
        let shares = seen.served.iter().map(|&n| n as f64 / total.max(1) as f64).collect();
        Found { weights, shares, mean_us: seen.mean_us, parked, rate_rps: self.rate_rps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Vec<Member> {
        let speeds = [0.62, 0.7, 0.75, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.38];
        let mut members: Vec<Member> = (0..16)
            .map(|i| (1.0, speeds[i % 10]))
            .chain((0..8).map(|i| (2.0, speeds[(i * 3) % 10])))
            .chain((0..4).map(|i| (4.0, speeds[(i * 7) % 10])))
            .chain([(8.0, 1.1), (8.0, 1.4)])
            .map(|(cores, speed)| Member {
                capacity_rps: cores * speed / 0.03,
                service_us: 30_000.0 / speed,
                weight_rps: cores * speed / 0.03,
                may_park: true,
            })
            .collect();
        members.rotate_left(3);
        members
    }

    #[test]
    fn the_slowest_are_parked_at_low_load_only() {
        let total: f64 = pool().iter().map(|m| m.capacity_rps).sum();
        let low = Search::new(pool(), 0.5 * total, 1, None, 1).finish();
        let high = Search::new(pool(), 0.9 * total, 1, None, 1).finish();
        assert!(low.parked >= 5, "{}", low.parked);
        assert_eq!(high.parked, 0);
        let slowest = pool().iter().position(|m| m.service_us > 30_000.0 / 0.63).unwrap();
        assert_eq!(low.weights[slowest], 0);
        assert!((low.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn backend_with_unknown_capacity_is_not_parked() {
        let mut members = pool();
        members.iter_mut().for_each(|m| m.may_park = false);
        let total: f64 = members.iter().map(|m| m.capacity_rps).sum();
        assert_eq!(Search::new(members, 0.3 * total, 1, None, 1).finish().parked, 0);
    }

    #[test]
    fn weights_in_force_stay_while_they_are_as_good() {
        let total: f64 = pool().iter().map(|m| m.capacity_rps).sum();
        let fresh = Search::new(pool(), 0.6 * total, 1, None, 1).finish();
        let held = Search::new(pool(), 0.605 * total, 1, Some(fresh.weights.clone()), 1).finish();
        assert_eq!(held.weights, fresh.weights);
        let bad: Vec<u32> = pool().iter().map(|_| 1).collect();
        assert_ne!(Search::new(pool(), 0.6 * total, 1, Some(bad.clone()), 1).finish().weights, bad);
    }

    #[test]
    fn weights_for_several_balancers_are_better_behind_several() {
        let total: f64 = pool().iter().map(|m| m.capacity_rps).sum();
        for load in [0.5, 0.7] {
            let rate = load * total;
            let unaware = Search::new(pool(), rate, 1, None, 1).finish();
            for balancers in [2, 3] {
                let aware = Search::new(pool(), rate, 1, None, balancers).finish();
                let model = Search::new(pool(), rate, 1, None, balancers);
                let there = model.try_out(unaware.weights.clone()).mean_us;
                assert!(aware.mean_us < there, "{load}, {balancers}");
                assert!(aware.mean_us > unaware.mean_us, "it is no better than one");
            }
        }
    }

    #[test]
    fn subsets_serve_nearly_as_one_balancer_does() {
        let total: f64 = pool().iter().map(|m| m.capacity_rps).sum();
        let one = Search::new(pool(), 0.7 * total, 1, None, 1);
        let two = Search::new(pool(), 0.7 * total, 1, None, 2);
        let weights = proportional(&pool(), &[]);
        let mean_of_one = one.try_out(weights.clone()).mean_us;
        let cost = |found: Found| found.mean_us / mean_of_one - 1.0;
        assert!(cost(two.try_out(weights.clone())) > 0.2);
        assert!(cost(two.try_subsets(weights)) < 0.1);
    }

    #[test]
    fn one_backend_and_an_overloaded_pool_have_an_answer() {
        let one = vec![pool()[0]];
        let found = Search::new(one.clone(), 5.0, 1, None, 1).finish();
        assert_eq!(found.weights, [LEASTCONN_SCALE as u32]);
        assert_eq!(Search::new(one, 500.0, 1, None, 1).finish().parked, 0);
    }
}
