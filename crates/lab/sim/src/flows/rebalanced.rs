//! An indirection table with daisy chaining that is made to balance load: a server whose connections exceed the mean by
//! more than a threshold leaves the table, and rejoins when it has fewer than the mean.
//!
//! Source: the Cheetah paper, §2.1, Fig. 2c. A connection breaks when neither the present server of its
//! entry nor the previous one holds it. It stays with its holder, which does not notice, until its time is
//! over. Cost of a change of the table: O(connections of the entries that move).

use std::time::Duration;

use plimsoll_model::Nanos;

use super::indirection::Moved;
use super::spreading::imbalance;
use super::{Broken, IndirectionTable, Watch};

#[derive(Clone, Copy, Debug)]
struct Flow {
    holder: u32,
    entry: u32,
    /// Its index among those of its entry.
    place: u32,
    counted: bool,
    plain: bool,
    chained: bool,
}

/// The table, and the connections of its servers.
pub struct Rebalanced {
    table: IndirectionTable,
    /// By entry: slots.
    on_entry: Vec<Vec<u32>>,
    flows: Vec<Flow>,
    open: Vec<u32>,
    active: u32,
    /// 0.1: ten percent above the mean.
    threshold: f64,
    broken: Broken,
    changes: u64,
    acts_from: Nanos,
    counted_from: Nanos,
    imbalance: f64,
    ticks: u32,
}

impl Rebalanced {
    /// With all servers in a table that is changed from `acts_from` on. The imbalance is read at ticks, from
    /// `counted_from` on.
    pub fn new(
        table: IndirectionTable,
        threshold: f64,
        acts_from: Nanos,
        counted_from: Nanos,
    ) -> Self {
        let (servers, entries) = (table.servers(), table.entries());
        Rebalanced {
            table,
            on_entry: vec![Vec::new(); entries],
            flows: Vec::new(),
            open: vec![0; servers],
            active: 0,
            threshold,
            broken: Broken::default(),
            changes: 0,
            acts_from,
            counted_from,
            imbalance: 0.0,
            ticks: 0,
        }
    }

    /// The broken connections.
    pub fn broken(&self) -> Broken {
        self.broken
    }

    /// Changes of the table while connections were counted.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// As [`super::Spreading::imbalance_percent`].
    pub fn imbalance_percent(&self) -> f64 {
        100.0 * self.imbalance / f64::from(self.ticks.max(1))
    }

    fn mean(&self) -> f64 {
        f64::from(self.active) / self.open.len() as f64
    }

    /// Handles entries with new servers.
    fn moved(&mut self, moved: &[Moved], now: Nanos) {
        self.changes += u64::from(!moved.is_empty() && now >= self.counted_from);
        for &Moved { entry, from } in moved {
            let present = self.table.server_at(entry as usize) as u32;
            for &slot in &self.on_entry[entry as usize] {
                let flow = &mut self.flows[slot as usize];
                if flow.holder != present && !flow.plain {
                    flow.plain = true;
                    self.broken.plain += u64::from(flow.counted);
                }
                if flow.holder != present && flow.holder != from && !flow.chained {
                    flow.chained = true;
                    self.broken.chained += u64::from(flow.counted);
                }
            }
        }
    }
}

impl Watch for Rebalanced {
    fn start(&mut self, slot: usize, key: u64, counted: bool, now: Nanos) {
        let entry = self.table.entry_of(key);
        let holder = self.table.server_at(entry);
        let place = self.on_entry[entry].len() as u32;
        self.on_entry[entry].push(slot as u32);
        let (plain, chained) = (false, false);
        let (server, entry) = (holder as u32, entry as u32);
        let flow = Flow { holder: server, entry, place, counted, plain, chained };
        match self.flows.get_mut(slot) {
            Some(there) => *there = flow,
            None => self.flows.push(flow),
        }
        self.broken.connections += u64::from(counted);
        self.open[holder] += 1;
        self.active += 1;
        let most = (1.0 + self.threshold) * self.mean();
        if f64::from(self.open[holder]) > most && now >= self.acts_from {
            let moved = self.table.leave(holder);
            self.moved(&moved, now);
        }
    }

    fn end(&mut self, slot: usize, _lasted: Duration, now: Nanos) {
        let Flow { holder, entry, place, .. } = self.flows[slot];
        let on_entry = &mut self.on_entry[entry as usize];
        on_entry.swap_remove(place as usize);
        if let Some(&last) = on_entry.get(place as usize) {
            self.flows[last as usize].place = place;
        }
        let holder = holder as usize;
        self.open[holder] -= 1;
        self.active -= 1;
        if !self.table.holds(holder) && f64::from(self.open[holder]) < self.mean() {
            let moved = self.table.join(holder);
            self.moved(&moved, now);
        }
    }

    fn tick(&mut self, _index: usize, now: Nanos) {
        if now >= self.counted_from {
            self.imbalance += imbalance(&self.open);
            self.ticks += 1;
        }
    }
}
