//! Which connections an update breaks. A connection is held by the server of its SYN, whatever
//! becomes of the pool. It breaks when its packets would reach another one: by server identity, and
//! once for all, for a server that gets a packet of an unknown connection resets it.
//!
//! **Daisy chaining** (Beamer, Faild): a packet carries the server that its entry had before, and a server that does
//! not know the connection passes it on there. So it breaks when its holder is neither the present nor
//! the previous one.

use std::time::Duration;

use plimsoll_model::Nanos;

use super::{Steering, Update, Watch};

/// How many connections were counted, and how many of them broke.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Broken {
    /// All that were counted.
    pub connections: u64,
    /// Those whose packets reached a server that does not hold them.
    pub plain: u64,
    /// Those that broke though that server knew the previous one of their entry.
    pub chained: u64,
}

impl Broken {
    /// Percent.
    pub fn plain_percent(&self) -> f64 {
        100.0 * self.plain as f64 / self.connections.max(1) as f64
    }

    /// Percent.
    pub fn chained_percent(&self) -> f64 {
        100.0 * self.chained as f64 / self.connections.max(1) as f64
    }
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    key: u64,
    holder: usize,
    /// Where its packets go; `None`: nowhere.
    present: Option<usize>,
    previous: Option<usize>,
    counted: bool,
    plain: bool,
    chained: bool,
}

/// Follows every connection through the updates of the pool.
pub struct Tracking<'a> {
    steering: Box<dyn Steering + 'a>,
    updates: &'a [(Nanos, Update)],
    weights: Vec<u32>,
    /// The weight of a server that takes connections.
    weight: u32,
    /// By slot; `None`: no connection.
    flows: Vec<Option<Flow>>,
    broken: Broken,
}

impl<'a> Tracking<'a> {
    /// The ticks of the run are these updates; `weights` are those at the start.
    pub fn new(
        steering: Box<dyn Steering + 'a>,
        updates: &'a [(Nanos, Update)],
        weights: &[u32],
    ) -> Self {
        let weight = weights.iter().copied().max().unwrap_or(1);
        let weights = weights.to_vec();
        Tracking {
            steering,
            updates,
            weights,
            weight,
            flows: Vec::new(),
            broken: Broken::default(),
        }
    }

    /// What broke.
    pub fn broken(&self) -> Broken {
        self.broken
    }
}

impl Watch for Tracking<'_> {
    fn start(&mut self, slot: usize, key: u64, counted: bool, now: Nanos) {
        if slot >= self.flows.len() {
            self.flows.resize(slot + 1, None);
        }
        self.broken.connections += u64::from(counted);
        let first = self.steering.first(slot, key, now);
        self.flows[slot] = first.map(|holder| Flow {
            key,
            holder,
            present: Some(holder),
            previous: None,
            counted,
            plain: false,
            chained: false,
        });
    }

    fn end(&mut self, slot: usize, lasted: Duration, now: Nanos) {
        if let Some(flow) = self.flows[slot].take() {
            self.steering.end(slot, flow.holder, lasted, now);
        }
    }

    fn tick(&mut self, index: usize, now: Nanos) {
        let (_, update) = self.updates[index];
        match update {
            Update::Leaves(server) => self.weights[server] = 0,
            Update::Joins(server) => self.weights[server] = self.weight,
        }
        self.steering.update(update, &self.weights);
        for (slot, flow) in self.flows.iter_mut().enumerate() {
            let Some(flow) = flow.as_mut().filter(|flow| !flow.chained) else { continue };
            let there = self.steering.later(slot, flow.key, now);
            if there == flow.present {
                continue;
            }
            flow.previous = std::mem::replace(&mut flow.present, there);
            let holder = Some(flow.holder);
            if flow.present != holder && !flow.plain {
                flow.plain = true;
                self.broken.plain += u64::from(flow.counted);
            }
            if flow.present != holder && flow.previous != holder {
                flow.chained = true;
                self.broken.chained += u64::from(flow.counted);
            }
        }
    }
}
