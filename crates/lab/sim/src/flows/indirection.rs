//! The indirection table of Beamer and Faild: a connection's key modulo a table of fixed size, in which each entry is a
//! server. When a server leaves, only its entries move, spread over all others; when one joins, it takes an even share,
//! from all others, or its former entries.
//!
//! Source: Olteanu and others, "Stateless Datacenter Load-balancing with Beamer" (NSDI 2018), §4; Araujo
//! and others, "Balancing on the Edge" (NSDI 2018); as the Cheetah paper, §2.1, describes them.
//! Cost of an update: O(entries that move).

use plimsoll_model::Nanos;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Steering, Update};

/// The entries of a server that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comeback {
    /// An even share, drawn from all others.
    Share,
    /// Those that were its own at the start.
    Home,
}

/// An entry with a new server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The entry.
    pub entry: u32,
    /// The server that had it.
    pub from: u32,
}

const NOWHERE: u32 = u32::MAX;

/// The table.
#[derive(Clone, Debug)]
pub struct IndirectionTable {
    entries: Vec<u32>,
    home: Vec<u32>,
    /// Each entry's index in the list of its server.
    place: Vec<u32>,
    /// By server.
    owned: Vec<Vec<u32>>,
    /// Servers in the table, and the index of each.
    inside: Vec<u32>,
    inside_place: Vec<u32>,
    comeback: Comeback,
    rng: Xoshiro256PlusPlus,
}

impl IndirectionTable {
    /// A table over the servers that have a weight.
    pub fn new(entries: usize, weights: &[u32], comeback: Comeback, seed: u64) -> Self {
        let mut table = IndirectionTable {
            entries: vec![NOWHERE; entries],
            home: vec![NOWHERE; entries],
            place: vec![0; entries],
            owned: vec![Vec::new(); weights.len()],
            inside: Vec::new(),
            inside_place: vec![NOWHERE; weights.len()],
            comeback,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        };
        for (server, _) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0) {
            table.enter(server);
        }
        let turns: Vec<u32> = table.inside.iter().copied().cycle().take(entries).collect();
        for (entry, &server) in turns.iter().enumerate() {
            table.give(entry, server);
            table.home[entry] = server;
        }
        table
    }

    /// The entry of a key.
    pub fn entry_of(&self, key: u64) -> usize {
        (key % self.entries.len() as u64) as usize
    }

    /// The server of an entry.
    pub fn server_at(&self, entry: usize) -> usize {
        self.entries[entry] as usize
    }

    /// Whether a server has entries in the table.
    pub fn holds(&self, server: usize) -> bool {
        self.inside_place[server] != NOWHERE
    }

    /// The number of servers in the table.
    pub fn servers(&self) -> usize {
        self.inside.len()
    }

    /// The number of entries.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Takes a server out; returns the entries that moved, with their former servers. The last one stays.
    pub fn leave(&mut self, server: usize) -> Vec<Moved> {
        if !self.holds(server) || self.inside.len() == 1 {
            return Vec::new();
        }
        let at = self.inside_place[server] as usize;
        self.inside.swap_remove(at);
        if let Some(&moved) = self.inside.get(at) {
            self.inside_place[moved as usize] = at as u32;
        }
        self.inside_place[server] = NOWHERE;
        let moved = std::mem::take(&mut self.owned[server]);
        // One after the other from a random one on: no server gets two more than another.
        let mut turn = self.rng.random_range(0..self.inside.len());
        for &entry in &moved {
            self.entries[entry as usize] = NOWHERE;
            let to = self.inside[turn];
            turn = (turn + 1) % self.inside.len();
            self.give(entry as usize, to);
        }
        moved.into_iter().map(|entry| Moved { entry, from: server as u32 }).collect()
    }

    /// Takes a server in; returns the entries that moved, with their former servers.
    pub fn join(&mut self, server: usize) -> Vec<Moved> {
        if self.holds(server) {
            return Vec::new();
        }
        let moved = match self.comeback {
            Comeback::Home => {
                let own = |&entry: &u32| self.home[entry as usize] as usize == server;
                let moved = |entry: u32| Moved { entry, from: self.entries[entry as usize] };
                (0..self.entries.len() as u32).filter(own).map(moved).collect()
            }
            Comeback::Share => self.share(),
        };
        self.enter(server);
        moved.iter().for_each(|moved| self.give(moved.entry as usize, server as u32));
        moved
    }

    /// Distinct entries for one more server, taken from the others in turn.
    fn share(&mut self) -> Vec<Moved> {
        let wanted = self.entries.len() / (self.inside.len() + 1);
        let mut turn = self.rng.random_range(0..self.inside.len());
        let mut moved = Vec::with_capacity(wanted);
        let mut idle = 0;
        while moved.len() < wanted && idle <= self.inside.len() {
            let from = self.inside[turn] as usize;
            turn = (turn + 1) % self.inside.len();
            let owned = self.owned[from].len();
            if owned < 2 {
                idle += 1;
                continue;
            }
            idle = 0;
            let entry = self.owned[from][self.rng.random_range(0..owned)];
            self.take(entry as usize);
            moved.push(Moved { entry, from: from as u32 });
        }
        moved
    }

    fn enter(&mut self, server: usize) {
        self.inside_place[server] = self.inside.len() as u32;
        self.inside.push(server as u32);
    }

    fn give(&mut self, entry: usize, server: u32) {
        self.take(entry);
        self.entries[entry] = server;
        let owned = &mut self.owned[server as usize];
        self.place[entry] = owned.len() as u32;
        owned.push(entry as u32);
    }

    fn take(&mut self, entry: usize) {
        let server = std::mem::replace(&mut self.entries[entry], NOWHERE);
        if server == NOWHERE {
            return;
        }
        let owned = &mut self.owned[server as usize];
        let at = self.place[entry] as usize;
        owned.swap_remove(at);
        if let Some(&last) = owned.get(at) {
            self.place[last as usize] = at as u32;
        }
    }
}

impl Steering for IndirectionTable {
    fn first(&mut self, _slot: usize, key: u64, _now: Nanos) -> Option<usize> {
        Some(self.server_at(self.entry_of(key)))
    }

    fn later(&mut self, _slot: usize, key: u64, _now: Nanos) -> Option<usize> {
        Some(self.server_at(self.entry_of(key)))
    }

    fn update(&mut self, update: Update, _weights: &[u32]) {
        match update {
            Update::Leaves(server) => self.leave(server),
            Update::Joins(server) => self.join(server),
        };
    }
}
