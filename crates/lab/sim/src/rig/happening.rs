//! What happens when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plimsoll_control::Event;
use plimsoll_model::Plan;

use super::troubles::Trouble;

/// Something that happens at a time. `u64` is the life of the controller that it is meant for: what was
/// on its way to one that died reaches nobody.
pub enum Happening {
    /// The controller's clock ticks.
    Tick,
    /// The balancer is read.
    Poll,
    /// Every backend's liveness is checked.
    Round,
    /// The traffic follows its profile.
    Traffic,
    /// An event reaches the controller.
    Tell(u64, Box<Event>),
    /// A process that got no time gets some again.
    Wake(u64),
    /// The balancer gets a plan's commands.
    Carry(u64, Plan),
    /// Half a plan is put back, and its failure is told.
    Undo(u64, Vec<(usize, u32)>, Box<Event>),
    /// A fault begins, by its place among the scenario's.
    Begin(usize),
    /// It ends.
    End(usize, Trouble),
    /// It happens once more; how often yet.
    Again(usize, Trouble, u32),
}

/// What is to come.
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
    /// Schedules.
    pub fn at(&mut self, at: u64, what: Happening) {
        self.added += 1;
        self.heap.push(Reverse(Entry { at, order: self.added, what }));
    }

    /// What comes next and not after `end`.
    pub fn next(&mut self, end: u64) -> Option<(u64, Happening)> {
        if self.heap.peek()?.0.at > end {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }
}
