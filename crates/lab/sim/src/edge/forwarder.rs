//! The forwarder: counts packets of young and old flows per core, and gives each new flow a core.

use std::time::Duration;

use plimsoll_feedback::{
    Ages, Balancer, BalancerKind, Counts, CpuModel, Place, Shape, Slots, Steering, awrr,
};
use plimsoll_model::Nanos;

use super::per_flow::PerFlow;

/// Slots of the table, as in the product.
const SLOTS: usize = 256;

/// How new flows are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By weights of a policy of the product, corrected so often.
    Policy(BalancerKind, Duration),
    /// By turns that follow reported load: AWRR (Cheetah), every 30 ms.
    Awrr,
    /// To the less loaded of so many cores drawn at random.
    Choices(usize),
    /// To the least loaded.
    Least,
}

impl Way {
    /// A policy at its own interval.
    pub fn policy(kind: BalancerKind) -> Way {
        Way::Policy(kind, kind.interval())
    }

    /// Its name in tables.
    pub fn name(self) -> String {
        match self {
            Way::Policy(kind, _) => kind.name().to_owned(),
            Way::Awrr => "awrr".to_owned(),
            Way::Choices(2) => "two_choices".to_owned(),
            Way::Choices(n) => format!("{n}_choices"),
            Way::Least => "least_loaded".to_owned(),
        }
    }
}

/// AWRR as a policy: turns by what nodes report.
#[derive(Debug)]
struct AwrrTurns;

impl Balancer for AwrrTurns {
    fn update(
        &mut self,
        _interval: f64,
        cores: &[plimsoll_feedback::CoreLoad],
        weights: &mut [f64],
    ) {
        let loads: Vec<Option<f64>> = cores.iter().map(|core| core.reported).collect();
        let turns = awrr::weights(&loads);
        let serving = |core: usize| if cores[core].serves { f64::from(turns[core]) } else { 0.0 };
        let sum: f64 = (0..cores.len()).map(serving).sum();
        weights.iter_mut().enumerate().for_each(|(core, weight)| *weight = serving(core) / sum);
    }
}

/// The forwarder.
#[derive(Debug)]
pub(super) struct Forwarder {
    ages: Ages,
    /// Whether flows that age are counted apart from young ones.
    tells_aging: bool,
    pub model: CpuModel,
    pub steering: Steering,
    slots: Slots,
    cursor: usize,
    per_flow: Option<PerFlow>,
    /// Milliseconds between corrections.
    pub interval_ms: u64,
    old: Vec<u64>,
    aging: Vec<u64>,
    new: Vec<u64>,
    /// Packets sent since the last report, and in this millisecond.
    pub sent: Vec<u64>,
    pub sent_ms: Vec<u64>,
}

impl Forwarder {
    pub fn new(cores: usize, serving: usize, way: Way, ages: Ages, each: f64, seed: u64) -> Self {
        let shape = Shape { servers: cores, cores: 1, services: 1 };
        let (steering, interval, per_flow) = match way {
            Way::Policy(kind, interval) => (Steering::new(shape, kind), interval, None),
            Way::Awrr => {
                let make = || -> Box<dyn Balancer> { Box::new(AwrrTurns) };
                (Steering::with(shape, make), Duration::from_millis(30), None)
            }
            Way::Choices(_) | Way::Least => {
                let drawn = if let Way::Choices(drawn) = way { Some(drawn) } else { None };
                let kind = BalancerKind::WeightedRoundRobin;
                let per_flow = PerFlow::new(cores, drawn, each, seed);
                (Steering::new(shape, kind), kind.interval(), Some(per_flow))
            }
        };
        let zeros = vec![0; cores];
        let mut forwarder = Forwarder {
            ages,
            tells_aging: ages.aging < ages.old,
            aging: zeros.clone(),
            model: CpuModel::new(shape),
            steering,
            slots: Slots::new(SLOTS, cores),
            cursor: 0,
            per_flow,
            interval_ms: interval.as_millis().max(1) as u64,
            old: zeros.clone(),
            new: zeros.clone(),
            sent: zeros.clone(),
            sent_ms: zeros,
        };
        (0..serving).for_each(|server| forwarder.serve(server, true));
        forwarder
    }

    /// Whether a server gets new flows.
    pub fn serve(&mut self, server: usize, serves: bool) {
        self.steering.set_serves(Place { server, core: 0, service: 0 }, serves);
    }

    /// The core of a new flow.
    pub fn pick(&mut self) -> u16 {
        let core = match &mut self.per_flow {
            Some(per_flow) => per_flow.pick(),
            None => {
                self.cursor = (self.cursor + 1) % SLOTS;
                self.slots.table()[self.cursor] as usize
            }
        };
        core as u16
    }

    /// Packets of one flow, of this age and with so many before.
    pub fn count(&mut self, core: u16, packets: u32, age_ms: u32, before: u32) {
        let age = Duration::from_millis(u64::from(age_ms));
        let counter = if age >= self.ages.old || before >= self.ages.heavy {
            &mut self.old
        } else if age >= self.ages.aging {
            &mut self.aging
        } else {
            &mut self.new
        };
        counter[core as usize] += u64::from(packets);
        self.sent_ms[core as usize] += u64::from(packets);
    }

    /// After every millisecond, the number of it.
    pub fn millisecond(&mut self, ms: u64) {
        if let Some(per_flow) = &mut self.per_flow {
            per_flow.millisecond(&self.sent_ms);
        }
        for (sent, ms) in self.sent.iter_mut().zip(&mut self.sent_ms) {
            *sent += std::mem::take(ms);
        }
        if ms % self.interval_ms == self.interval_ms - 1 {
            self.correct(ms + 1);
        }
    }

    /// Corrects weights and fills the slots.
    pub fn correct(&mut self, ms: u64) {
        let seconds = self.interval_ms as f64 / 1e3;
        let aging = if self.tells_aging { self.aging.as_slice() } else { &[] };
        let counts = Counts { seconds, old: &self.old, aging, new: &self.new };
        self.steering.step(Nanos(ms * 1_000_000), &counts, &self.model);
        self.slots.fill(self.steering.weights(0));
        self.old.fill(0);
        self.aging.fill(0);
        self.new.fill(0);
    }
}
