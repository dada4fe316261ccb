//! Updates of the pool: servers that leave it and servers that join it, as a Poisson process.

use plimsoll_model::Nanos;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// One update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Takes no new connections from now on; it ends those that it has.
    Leaves(usize),
    /// Takes new connections.
    Joins(usize),
}

/// Which servers leave and join.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UpdateOrder {
    /// Leaving and joining are equally likely, and so are all servers that can; as many as this are out
    /// at the start, and at most twice as many.
    AtRandom {
        /// How many are out.
        out: usize,
    },
    /// A rolling upgrade: a server that leaves is back after this time, so that leaving is half of the updates.
    Rolling {
        /// For how long a server is out, seconds.
        out_s: f64,
    },
}

/// A process of updates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Updates {
    /// Leaving and joining together.
    pub per_minute: f64,
    /// Which servers.
    pub order: UpdateOrder,
    /// All servers, those that are out at the start included: the last ones.
    pub servers: usize,
    /// Of instants and servers.
    pub seed: u64,
}

impl Updates {
    /// Whether a server takes connections at the start: 1 or 0.
    pub fn weights(&self) -> Vec<u32> {
        let out = match self.order {
            UpdateOrder::AtRandom { out } => out,
            UpdateOrder::Rolling { .. } => 0,
        };
        (0..self.servers).map(|server| u32::from(server + out < self.servers)).collect()
    }

    /// All updates until then, in order.
    pub fn until(&self, end: Nanos) -> Vec<(Nanos, Update)> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let weights = self.weights();
        let (mut inside, mut outside): (Vec<usize>, Vec<usize>) =
            (0..self.servers).partition(|&server| weights[server] > 0);
        let mut updates = Vec::new();
        match self.order {
            UpdateOrder::AtRandom { out } => {
                for at in instants(self.per_minute, end, &mut rng) {
                    let leave = match outside.len() {
                        0 => true,
                        n if n >= 2 * out || inside.len() == 1 => false,
                        _ => rng.random(),
                    };
                    let (from, to) = match leave {
                        true => (&mut inside, &mut outside),
                        false => (&mut outside, &mut inside),
                    };
                    let server = from.swap_remove(rng.random_range(0..from.len()));
                    to.push(server);
                    let update = if leave { Update::Leaves(server) } else { Update::Joins(server) };
                    updates.push((at, update));
                }
            }
            UpdateOrder::Rolling { out_s } => {
                let mut back = vec![Nanos::ZERO; self.servers];
                for at in instants(self.per_minute / 2.0, end, &mut rng) {
                    let there: Vec<usize> =
                        (0..self.servers).filter(|&server| back[server] <= at).collect();
                    if there.len() < 2 {
                        continue;
                    }
                    let server = there[rng.random_range(0..there.len())];
                    back[server] = Nanos(at.0 + (out_s * 1e9) as u64);
                    updates.push((at, Update::Leaves(server)));
                    updates.push((back[server], Update::Joins(server)));
                }
                updates.sort_by_key(|(at, _)| *at);
                updates.retain(|(at, _)| *at < end);
            }
        }
        updates
    }
}

/// A Poisson process.
fn instants(per_minute: f64, end: Nanos, rng: &mut Xoshiro256PlusPlus) -> Vec<Nanos> {
    let mut all = Vec::new();
    let mut at_ns = 0.0;
    loop {
        at_ns += -(1.0 - rng.random::<f64>()).ln() * 60e9 / per_minute;
        if at_ns >= end.0 as f64 {
            return all;
        }
        all.push(Nanos(at_ns as u64));
    }
}
