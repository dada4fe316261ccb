//! The event queue of the simulation.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plimsoll_control::Event;
use plimsoll_model::Plan;

use super::troubles::Trouble;

/// A scheduled event. `u64` is the life of the controller that it is for: it is dropped if that controller has died.
pub enum Happening {
    /// The controller's clock ticks.
    Tick,
    /// The balancer is read.
    Poll,
    /// Every backend's liveness is checked.
    Round,
    /// The traffic follows its profile.
    Traffic,
    /// An event is delivered to the controller.
    Tell(u64, Box<Event>),
    /// A process without CPU time gets some again.
    Wake(u64),
    /// The balancer gets a plan's commands.
    Carry(u64, Plan),
    /// A half-applied plan is undone, and its failure is reported.
    Undo(u64, Vec<(usize, u32)>, Box<Event>),
    /// A fault begins, by its position in the scenario.
    Begin(usize),
    /// It ends.
    End(usize, Trouble),
    /// A fault's action is repeated, with a count.
    Again(usize, Trouble, u32),
}

/// The queue of scheduled events.
#[derive(Default)]
pub struct Agenda {
    heap: BinaryHeap<Reverse<Entry>>,
    added: u64,
}

struct Entry {
    at: u64,
    order: u64,
    what: Happening,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl Agenda {
    /// Schedules an event.
    pub fn at(&mut self, at: u64, what: Happening) {
        self.added += 1;
        self.heap.push(Reverse(Entry { at, order: self.added, what }));
    }

    /// The next event not after `end`.
    pub fn next(&mut self, end: u64) -> Option<(u64, Happening)> {
        if self.heap.peek()?.0.at > end {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }
}
