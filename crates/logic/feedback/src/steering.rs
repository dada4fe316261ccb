//! One step: from packet counts to the weights of every service. Daemon and simulator call this and nothing else.
//!
//! Services share cores, so what one plans is load for the others: they are taken one after another, and each sees the
//! young load of those before it as planned, of those after it as it was. All at once they would all correct the
//! same imbalance in full.

use std::time::Duration;

use plimsoll_model::Nanos;

use crate::{Balancer, BalancerKind, CoreLoad, CpuModel, Place, Shape};

/// A busy fraction reported longer ago does not count.
const REPORT_AGE: Duration = Duration::from_secs(1);

/// By what the forwarder sorts packets, each from its flow's entry alone.
///
/// A flow is young until `aging`, then ages until `old`, twice as long; it is old from its `heavy`-th packet on, whatever
/// its age. So an elephant is known in less than a millisecond, and how much of the young load lasts is seen from
/// what ages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ages {
    /// Age at which a flow is no longer young.
    pub aging: Duration,
    /// Age at which it is old; twice `aging`.
    pub old: Duration,
    /// Packets after which it is old.
    pub heavy: u32,
}

impl Default for Ages {
    /// 10 ms, 20 ms, 32 packets.
    fn default() -> Self {
        let (aging, old) = (Duration::from_millis(10), Duration::from_millis(20));
        Ages { aging, old, heavy: 32 }
    }
}

/// Packets that the forwarder sent in an interval, for all places ([`Shape::place`]).
#[derive(Clone, Copy, Debug)]
pub struct Counts<'a> {
    /// The interval, seconds.
    pub seconds: f64,
    /// Packets of old flows.
    pub old: &'a [u64],
    /// Packets of flows that age; an empty slice where the forwarder does not tell them from young ones.
    pub aging: &'a [u64],
    /// Packets of young flows.
    pub new: &'a [u64],
}

/// Policies, weights and predicted loads of all services over all cores.
#[derive(Debug)]
pub struct Steering {
    shape: Shape,
    /// By place: whether new flows of the service may go there.
    serves: Vec<bool>,
    /// One policy per service, so that each has its state.
    policies: Vec<Box<dyn Balancer>>,
    /// By service, then core.
    weights: Vec<f64>,
    /// By place: predicted load of flows that age and of young ones.
    aging: Vec<f64>,
    new: Vec<f64>,
    tells_aging: bool,
    /// By core: predicted load, and the same as planned.
    predicted: Vec<f64>,
    planned: Vec<f64>,
    cores: Vec<CoreLoad>,
}

impl Steering {
    /// All services under this policy; no server is in use yet.
    pub fn new(shape: Shape, kind: BalancerKind) -> Self {
        Steering::with(shape, || kind.build())
    }

    /// The same under policies of the caller's making, one per service.
    pub fn with(shape: Shape, make: impl Fn() -> Box<dyn Balancer>) -> Self {
        Steering {
            shape,
            serves: vec![false; shape.places()],
            policies: (0..shape.services).map(|_| make()).collect(),
            weights: vec![0.0; shape.places()],
            aging: vec![0.0; shape.places()],
            tells_aging: false,
            new: vec![0.0; shape.places()],
            predicted: vec![0.0; shape.all_cores()],
            planned: vec![0.0; shape.all_cores()],
            cores: vec![CoreLoad::default(); shape.all_cores()],
        }
    }

    /// Says whether new flows of a service may go to a place. Effective from the next step, except that a place that no longer
    /// serves loses its weight at once.
    pub fn set_serves(&mut self, place: Place, serves: bool) {
        self.serves[self.shape.place(place)] = serves;
        if !serves {
            let index =
                place.service * self.shape.all_cores() + self.shape.core(place.server, place.core);
            self.weights[index] = 0.0;
        }
    }

    /// Predicts loads from an interval's packets and corrects all weights.
    pub fn step(&mut self, now: Nanos, counts: &Counts, model: &CpuModel) {
        self.predict(counts, model);
        self.planned.copy_from_slice(&self.predicted);
        for service in 0..self.shape.services {
            self.look(now, service, model);
            let all = self.shape.all_cores();
            let weights = &mut self.weights[service * all..(service + 1) * all];
            self.policies[service].update(counts.seconds, &self.cores, weights);
            self.plan(service);
        }
    }

    fn predict(&mut self, counts: &Counts, model: &CpuModel) {
        let Shape { servers, cores, services } = self.shape;
        let seconds = counts.seconds.max(1e-9);
        self.tells_aging = !counts.aging.is_empty();
        for server in 0..servers {
            for core in 0..cores {
                let mut load = 0.0;
                for service in 0..services {
                    let place = Place { server, core, service };
                    let (index, cost) = (self.shape.place(place), model.cost(place) / seconds);
                    let aging = counts.aging.get(index).copied().unwrap_or(0);
                    self.aging[index] = aging as f64 * cost;
                    self.new[index] = counts.new[index] as f64 * cost;
                    load += counts.old[index] as f64 * cost + self.aging[index] + self.new[index];
                }
                self.predicted[self.shape.core(server, core)] = load;
            }
        }
    }

    /// All cores as this service sees them.
    fn look(&mut self, now: Nanos, service: usize, model: &CpuModel) {
        for server in 0..self.shape.servers {
            for core in 0..self.shape.cores {
                let place = Place { server, core, service };
                let (index, at) = (self.shape.place(place), self.shape.core(server, core));
                self.cores[at] = CoreLoad {
                    serves: self.serves[index],
                    old: (self.planned[at] - self.new[index] - self.aging[index]).max(0.0),
                    new: self.new[index],
                    aging: self.tells_aging.then_some(self.aging[index]),
                    predicted: self.predicted[at],
                    reported: model.reported(server, core, now, REPORT_AGE),
                    cost: model.cost(place),
                };
            }
        }
    }

    /// Young load of this service where its weights will put it.
    fn plan(&mut self, service: usize) {
        let all = self.shape.all_cores();
        let movable = |core: &CoreLoad| core.new + core.aging.unwrap_or(0.0);
        let rate: f64 = self.cores.iter().map(|core| movable(core) / core.cost).sum();
        let weights = &self.weights[service * all..(service + 1) * all];
        for ((planned, core), weight) in self.planned.iter_mut().zip(&self.cores).zip(weights) {
            *planned += weight * rate * core.cost - movable(core);
        }
    }

    /// Shares of new flows of a service, by core of all servers ([`Shape::core`]); they sum to 1, or are all 0 where
    /// no server serves it.
    pub fn weights(&self, service: usize) -> &[f64] {
        let all = self.shape.all_cores();
        &self.weights[service * all..(service + 1) * all]
    }

    /// Predicted load of every core in the last interval.
    pub fn predicted(&self) -> &[f64] {
        &self.predicted
    }

    /// Predicted load of all cores together.
    pub fn total(&self) -> f64 {
        self.predicted.iter().sum()
    }
}
