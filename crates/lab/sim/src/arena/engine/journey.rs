//! The course of a request: pick, admission, queue, core, and back; or on to another backend after a refusal.

use std::cmp::Reverse;
use std::time::Duration;

use plimsoll_admission::{Reason, Retry};
use plimsoll_model::Nanos;
use plimsoll_policy::{Ending, Finish, Probing, Request, ServerLoad};

use super::super::report::Lost;
use super::super::{Offer, Patience, Refusal};
use super::flight::Phase;
use super::server::State;
use super::{Engine, NOTHING, Parcel, asks, nanos};

impl Engine<'_> {
    fn post(&mut self, parcel: Parcel, now: u64) {
        if self.network_ns == 0 {
            self.reached(parcel, now);
        } else {
            self.outbound.push_back((now + self.network_ns, parcel));
        }
    }

    fn reply(&mut self, parcel: Parcel, now: u64) {
        if self.network_ns == 0 {
            self.returned(parcel, now);
        } else {
            self.inbound.push_back((now + self.network_ns, parcel));
        }
    }

    /// A parcel arrives at its backend.
    pub(super) fn reached(&mut self, parcel: Parcel, now: u64) {
        match parcel {
            Parcel::Request(slot) => self.enter(slot, now),
            Parcel::Probe { asked, balancer, backend, slot, last, .. } => {
                let server = &self.servers[backend as usize];
                // A dead backend fails everything at once, and loses a parcel without delay.
                let dead = server.state == State::Failing { after_ns: 0 };
                let ingress = self.around.ingress.get(backend as usize);
                let cores = ingress.and_then(|ingress| ingress.cores());
                let load = (!dead).then(|| ServerLoad { cores, ..server.load(0) });
                self.reply(Parcel::Probe { asked, balancer, backend, slot, last, load }, now);
            }
        }
    }

    /// A parcel returns to its balancer.
    pub(super) fn returned(&mut self, parcel: Parcel, now: u64) {
        match parcel {
            Parcel::Request(slot) => self.finish(slot, now),
            Parcel::Probe { asked, balancer, backend, slot, last, load } => {
                if let Some(load) = load {
                    let policy = &mut self.balancers[balancer as usize];
                    policy.on_probe(backend as usize, load, asked);
                    if slot != NOTHING {
                        self.flights.has_answered(slot, backend);
                    }
                }
                match slot {
                    NOTHING => {}
                    _ if !last => {}
                    _ if self.flights[slot].gone => self.flights.release(slot),
                    _ if self.asks_again(slot, now) => self.ask(slot, now),
                    _ => self.send(slot, now),
                }
            }
        }
    }

    /// Sends the policy's probes, and then the request, at once or after their answers.
    pub(super) fn choose(&mut self, slot: u32, now: u64) {
        let balancer = self.flights[slot].balancer;
        self.flights.begins_to_ask(slot);
        match asks(self.balancers[balancer as usize].probing()) {
            true => self.ask(slot, now),
            false => self.send(slot, now),
        }
    }

    /// None of the backends that have answered has room, and others were not asked yet.
    fn asks_again(&mut self, slot: u32, now: u64) -> bool {
        let flight = &mut self.flights[slot];
        let policy = &self.balancers[flight.balancer as usize];
        if std::mem::replace(&mut flight.asked_again, true) {
            return false;
        }
        let request = Request::default().answered_by(self.flights.answered(slot));
        request.finds_no_room(&**policy, Nanos(now))
    }

    fn ask(&mut self, slot: u32, now: u64) {
        let balancer = self.flights[slot].balancer;
        let policy = &mut self.balancers[balancer as usize];
        let is_before = policy.probing() == Probing::Before;
        let mut targets = std::mem::take(&mut self.targets);
        targets.clear();
        targets.extend_from_slice(self.flights.answered(slot));
        let before = targets.len();
        let request = Request::keyed(self.flights[slot].key);
        policy.probe_targets(&request, Nanos(now), &mut self.choice, &mut targets);
        let waits = is_before && targets.len() > before;
        self.collector.probed(targets.len() - before, self.flights[slot].counted);
        let slot_or_none = if waits { slot } else { NOTHING };
        for (k, &target) in targets.iter().enumerate().skip(before) {
            let (backend, last) = (target as u32, k + 1 == targets.len());
            let asked = Nanos(now);
            let probe =
                Parcel::Probe { asked, balancer, backend, slot: slot_or_none, last, load: None };
            self.post(probe, now);
        }
        self.targets = targets;
        if !waits {
            self.send(slot, now);
        }
    }

    /// Picks a backend and sends the request there.
    fn send(&mut self, slot: u32, now: u64) {
        let balancer = self.flights[slot].balancer as usize;
        let policy = &mut self.balancers[balancer];
        let request = Request::keyed(self.flights[slot].key);
        let request = request.avoiding(self.flights.tried(slot));
        let request = request.answered_by(self.flights.answered(slot));
        let picked = policy.pick(&request, Nanos(now), &mut self.choice);
        let is_to_wait =
            picked.is_some_and(|i| request.is_to_wait(i, &*self.balancers[balancer], Nanos(now)));
        let Some(i) = picked else {
            let refused = self.flights[slot].refusals > 0;
            self.lose(slot, if refused { Lost::Dropped } else { Lost::Unserved }, now);
            return;
        };
        if self.rather_waits(slot, i, now) && self.wait(slot, now) {
            return;
        }
        self.flights[slot].is_to_wait = is_to_wait;
        self.dispatch(slot, i, now);
    }

    /// Sends the request to this backend.
    pub(super) fn dispatch(&mut self, slot: u32, i: usize, now: u64) {
        let balancer = self.flights[slot].balancer as usize;
        self.balancers[balancer].on_start(i, Nanos(now));
        let flight = &mut self.flights[slot];
        self.collector.tried(now, flight.counted);
        flight.backend = i as u32;
        flight.sent = now;
        flight.phase = Phase::Outbound;
        flight.let_in = false;
        flight.hopeless = false;
        flight.chip = None;
        flight.load = None;
        self.post(Parcel::Request(slot), now);
    }

    /// A request arrives at its backend, which may refuse it.
    fn enter(&mut self, slot: u32, now: u64) {
        let flight = self.flights[slot];
        let cancelled = flight.gone && self.arena.patience.is_some_and(|p| p.cancels);
        if cancelled {
            self.flights.release(slot);
            return;
        }
        let backend = flight.backend as usize;
        if let State::Failing { after_ns } = self.servers[backend].state {
            // A dead backend has no admission; otherwise admission comes before the failure.
            if after_ns == 0 {
                self.flights[slot].ending = Ending::Failure;
                self.departures.push(Reverse((now, slot)));
                return;
            }
        }
        if let Err(refusal) = self.admits(slot, now) {
            let load = self.arena.tells_load.then(|| self.servers[backend].load(0));
            let flight = &mut self.flights[slot];
            flight.ending = match refusal.reason {
                Reason::Full | Reason::Queue => Ending::Rejected,
                Reason::Deadline { .. } => Ending::TooLate,
            };
            flight.hopeless = !refusal.reason.is_worth_a_retry();
            flight.chip = refusal.chip;
            flight.load = load;
            self.answer(slot, now);
            return;
        }
        let server = &mut self.servers[backend];
        let flight = &mut self.flights[slot];
        flight.found = server.in_flight;
        flight.reached = now;
        flight.let_in = true;
        server.in_flight += 1;
        if let State::Failing { after_ns } = server.state {
            (flight.ending, flight.phase) = (Ending::Failure, Phase::Failing);
            self.departures.push(Reverse((now + after_ns, slot)));
            return;
        }
        flight.ending = Ending::Success;
        if server.busy < server.cores {
            server.settle(now);
            server.busy += 1;
            flight.phase = Phase::Serving;
            let done = now + (flight.work * server.ns_per_work) as u64;
            self.departures.push(Reverse((done, slot)));
        } else {
            flight.phase = Phase::Waiting;
            server.waiting.push_back(slot);
        }
    }

    fn admits(&mut self, slot: u32, now: u64) -> Result<(), Refusal> {
        let flight = self.flights[slot];
        let tries_left = self.tries_left(&flight);
        let Some(ingress) = self.around.ingress.get_mut(flight.backend as usize) else {
            return Ok(());
        };
        let left = |p: Patience| p.after.saturating_sub(Duration::from_nanos(now - flight.came));
        let offer = Offer {
            now: Nanos(now),
            in_flight: self.servers[flight.backend as usize].in_flight,
            refusals: flight.refusals,
            tries_left,
            left: self.arena.patience.map(left),
        };
        ingress.admits(&offer, &mut self.choice)
    }

    /// A backend has answered; its core takes the next request.
    pub(super) fn depart(&mut self, now: u64) {
        let Some(Reverse((_, slot))) = self.departures.pop() else { return };
        let flight = self.flights[slot];
        let ok = flight.ending == Ending::Success;
        let backend = flight.backend as usize;
        if matches!(flight.phase, Phase::Serving | Phase::Failing) {
            if let Some(ingress) = self.around.ingress.get_mut(backend) {
                let took = Duration::from_nanos(now - flight.reached);
                let in_flight = self.servers[backend].in_flight;
                let chip = ingress.leaves(Nanos(now), in_flight, took, ok, &mut self.choice);
                self.flights[slot].chip = chip;
            }
            if flight.phase == Phase::Serving {
                self.take_next(backend, now);
            }
            self.servers[backend].in_flight -= 1;
        }
        if ok && self.loads {
            let server = &mut self.servers[backend];
            server.note(flight.found, now - flight.reached);
            self.flights[slot].load = self.arena.tells_load.then(|| server.load(0));
        }
        self.answer(slot, now);
    }

    /// A core is free for the next waiting request; those whose clients have gone are skipped.
    fn take_next(&mut self, backend: usize, now: u64) {
        let server = &mut self.servers[backend];
        let cancels = self.arena.patience.is_some_and(|p| p.cancels);
        while let Some(next) = server.waiting.pop_front() {
            let flight = &mut self.flights[next];
            if flight.gone && cancels {
                self.flights.release(next);
                continue;
            }
            flight.phase = Phase::Serving;
            let done = now + (flight.work * server.ns_per_work) as u64;
            self.departures.push(Reverse((done, next)));
            return;
        }
        server.settle(now);
        server.busy -= 1;
    }

    pub(super) fn answer(&mut self, slot: u32, now: u64) {
        if self.flights[slot].gone {
            self.flights.release(slot);
            return;
        }
        self.flights[slot].phase = Phase::Inbound;
        self.reply(Parcel::Request(slot), now);
    }

    /// The balancer gets the answer.
    fn finish(&mut self, slot: u32, now: u64) {
        let flight = self.flights[slot];
        if flight.gone {
            self.flights.release(slot);
            return;
        }
        self.tell(slot, flight.ending, now);
        let retries = &mut self.retries[flight.balancer as usize];
        let verdict = match flight.ending {
            // It is not tried again, and leaves the budget to others.
            Ending::TooLate if flight.hopeless => Some(Retry::Limit),
            Ending::Rejected | Ending::TooLate if flight.woken => Some(Retry::Limit),
            Ending::Rejected | Ending::TooLate => Some(retries.refused(flight.refusals + 1)),
            Ending::Failure => Some(retries.failed(flight.failures + 1)),
            Ending::Success | Ending::Abandoned => None,
        };
        let rejected = matches!(flight.ending, Ending::Rejected | Ending::TooLate);
        // A dead backend admits no request.
        if flight.let_in {
            retries.admitted();
        }
        if let Some(verdict) = verdict {
            self.collector.retried(rejected, verdict, flight.counted);
        }
        if verdict == Some(Retry::Again) {
            self.flights.again(slot);
            self.send(slot, now);
        } else if rejected {
            if flight.hopeless || !self.wait(slot, now) {
                self.lose(slot, Lost::Dropped, now);
            }
        } else {
            let ok = flight.ending == Ending::Success;
            let backend = flight.backend as usize;
            self.collector.finish(backend, now, now - flight.came, ok, flight.counted);
            self.end(slot, now);
            self.flights.release(slot);
            if flight.let_in {
                self.left_room(&flight, now);
            }
        }
    }

    /// Reports the end of a try to the policy.
    fn tell(&mut self, slot: u32, ending: Ending, now: u64) {
        let flight = self.flights[slot];
        let (balancer, backend) = (flight.balancer as usize, flight.backend as usize);
        let mut finish = Finish::new(Duration::from_nanos(now - flight.sent), ending);
        if ending != Ending::Abandoned {
            finish.chip = flight.chip;
            finish.load = flight.load;
        }
        self.balancers[balancer].on_finish(backend, &finish, Nanos(now));
    }

    /// The request ends unserved, unless its client sends it again.
    fn lose(&mut self, slot: u32, why: Lost, now: u64) {
        if let (Lost::Dropped, Some(after)) = (why, self.arena.comes_again) {
            self.flights[slot].phase = Phase::Choosing;
            let after_ns = nanos(after);
            return self.away.push_back((now + after_ns, slot));
        }
        self.collector.lost(why, now, self.flights[slot].counted);
        self.end(slot, now);
        self.flights.release(slot);
    }

    /// A client sends a refused request again; for its balancer it is a new one.
    pub(super) fn come_again(&mut self, slot: u32, now: u64) {
        let flight = &mut self.flights[slot];
        if flight.gone {
            return self.flights.release(slot);
        }
        self.collector.came_again(flight.counted);
        let retries = &mut self.retries[flight.balancer as usize];
        retries.end(flight.failures > 0);
        retries.begin();
        (flight.refusals, flight.failures) = (0, 0);
        (flight.waits_since, flight.woken, flight.last) = (None, false, false);
        self.choose(slot, now);
    }

    /// The user of this request may send the next one.
    fn end(&mut self, slot: u32, now: u64) {
        let flight = self.flights[slot];
        self.retries[flight.balancer as usize].end(flight.failures > 0);
        self.think(flight.user, now);
    }

    /// A client gives up. The slot stays in use until nothing of the request is left.
    pub(super) fn give_up(&mut self, slot: u32, now: u64) {
        let flight = self.flights[slot];
        if flight.gone {
            return;
        }
        self.collector.lost(Lost::Abandoned, now, flight.counted);
        if !matches!(flight.phase, Phase::Choosing | Phase::Queued) {
            self.tell(slot, Ending::Abandoned, now);
        }
        self.end(slot, now);
        if flight.phase == Phase::Queued {
            let since = flight.waits_since.unwrap_or_default();
            self.queues[flight.balancer as usize].waiting.remove(since, slot);
            return self.flights.release(slot);
        }
        self.flights[slot].gone = true;
        if flight.phase == Phase::Waiting && self.arena.patience.is_some_and(|p| p.cancels) {
            self.leave(slot, now);
        }
    }

    /// An admitted request leaves without an answer.
    pub(super) fn leave(&mut self, slot: u32, now: u64) {
        let flight = self.flights[slot];
        let server = &mut self.servers[flight.backend as usize];
        server.in_flight -= 1;
        if let Some(ingress) = self.around.ingress.get_mut(flight.backend as usize) {
            let waited = Duration::from_nanos(now - flight.reached);
            ingress.gone(Nanos(now), server.in_flight, waited);
        }
    }
}
