//! Requests under way, in slots that are reused.

use plimsoll_model::Nanos;
use plimsoll_policy::{Ending, MAX_AVOID, ServerLoad};

/// A request that no user of a closed loop waits for.
pub(super) const NO_USER: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Phase {
    /// At the balancer, which waits for answers to probes.
    Choosing,
    /// At the balancer, which waits for room.
    Queued,
    Outbound,
    Waiting,
    Serving,
    /// The backend will fail it without using a core.
    Failing,
    Inbound,
}

#[derive(Clone, Copy)]
pub(super) struct Flight {
    /// When the client sent it.
    pub(super) came: u64,
    /// When this try left the balancer.
    pub(super) sent: u64,
    /// When this try reached the backend.
    pub(super) reached: u64,
    pub(super) work: f64,
    pub(super) backend: u32,
    pub(super) balancer: u32,
    pub(super) user: u32,
    /// The hash of the client's address.
    pub(super) key: Option<u64>,
    /// The number in flight that it met at the backend.
    pub(super) found: u32,
    pub(super) refusals: u32,
    pub(super) failures: u32,
    pub(super) phase: Phase,
    pub(super) ending: Ending,
    /// Admission of this try's backend has admitted it.
    pub(super) let_in: bool,
    /// It would be late at every other backend as well.
    pub(super) hopeless: bool,
    pub(super) chip: Option<bool>,
    pub(super) load: Option<ServerLoad>,
    pub(super) counted: bool,
    /// When it first waited for room; `None` before.
    pub(super) waits_since: Option<Nanos>,
    /// It is sent where room was just left: one try.
    pub(super) woken: bool,
    /// It has waited as long as it may: one last try.
    pub(super) last: bool,
    /// Where it goes no core is free, as far as its balancer knows.
    pub(super) is_to_wait: bool,
    /// None of the backends that answered first had room: others were asked.
    pub(super) asked_again: bool,
    /// Its client has given up.
    pub(super) gone: bool,
}

#[derive(Default)]
pub(super) struct Flights {
    slots: Vec<Flight>,
    generation: Vec<u32>,
    /// Backends that had the request in each slot and did not serve it.
    tried: Vec<[usize; MAX_AVOID]>,
    /// Those that have told their load for it since it last began to ask.
    answered: Vec<Vec<usize>>,
    free: Vec<u32>,
}

impl Flights {
    pub(super) fn add(&mut self, flight: Flight) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = flight;
            return slot;
        }
        self.slots.push(flight);
        self.generation.push(0);
        self.tried.push([0; MAX_AVOID]);
        self.answered.push(Vec::new());
        (self.slots.len() - 1) as u32
    }

    pub(super) fn release(&mut self, slot: u32) {
        self.generation[slot as usize] = self.generation[slot as usize].wrapping_add(1);
        self.free.push(slot);
    }

    pub(super) fn generation(&self, slot: u32) -> u32 {
        self.generation[slot as usize]
    }

    /// The request will be tried at another backend.
    pub(super) fn again(&mut self, slot: u32) {
        let flight = &mut self.slots[slot as usize];
        let tries = (flight.refusals + flight.failures) as usize;
        self.tried[slot as usize][tries] = flight.backend as usize;
        match flight.ending {
            Ending::Rejected | Ending::TooLate => flight.refusals += 1,
            _ => flight.failures += 1,
        }
    }

    /// Nobody has answered yet.
    pub(super) fn begins_to_ask(&mut self, slot: u32) {
        self.slots[slot as usize].asked_again = false;
        self.answered[slot as usize].clear();
    }

    /// A backend has told its load.
    pub(super) fn has_answered(&mut self, slot: u32, backend: u32) {
        self.answered[slot as usize].push(backend as usize);
    }

    pub(super) fn answered(&self, slot: u32) -> &[usize] {
        &self.answered[slot as usize]
    }

    pub(super) fn tried(&self, slot: u32) -> &[usize] {
        let flight = &self.slots[slot as usize];
        let tries = (flight.refusals + flight.failures) as usize;
        &self.tried[slot as usize][..tries]
    }
}

impl std::ops::Index<u32> for Flights {
    type Output = Flight;

    fn index(&self, slot: u32) -> &Flight {
        &self.slots[slot as usize]
    }
}

impl std::ops::IndexMut<u32> for Flights {
    fn index_mut(&mut self, slot: u32) -> &mut Flight {
        &mut self.slots[slot as usize]
    }
}
