//! The controller's process: its clock, its crashes, and periods without CPU time.

use plimsoll_control::{Action, Controller, Event, Memory};
use plimsoll_model::{BackendId, FailureKind, Nanos};

use super::happening::Happening;
use super::{Rig, TIMEOUT_NS};
use crate::pool_model::PoolModel;

/// One life of the controller.
pub struct Process {
    /// The controller under test.
    pub controller: Controller,
    /// Number of this life.
    pub life: u64,
    /// When it began: its clock starts at 0.
    origin: u64,
    /// Total time that its clock stood still.
    slept: u64,
    /// Total of the clock's steps forward.
    ahead: u64,
    /// Since when its clock stands still.
    asleep_since: Option<u64>,
    /// Until when it has no CPU time.
    away_until: u64,
    /// Events that wait for the process to have CPU time.
    backlog: Vec<Event>,
}

impl Process {
    /// The process's clock: it starts with the process, is monotonic and does not follow steps of the wall clock. It
    /// shows a machine that slept (the clock stood still), a process that was stopped (the clock continued), and a step
    /// forward.
    pub fn clock(&self, now: u64) -> Nanos {
        Nanos(self.asleep_since.unwrap_or(now) - self.origin - self.slept + self.ahead)
    }

    /// Whether it has no CPU time now.
    pub fn is_away(&self, now: u64) -> bool {
        now < self.away_until
    }
}

impl<P: PoolModel> Rig<P> {
    pub(super) fn start_controller(&mut self, memory: Option<Memory>) {
        self.lives += 1;
        self.tally.lives += 1;
        self.interceptor.controller_started();
        let recalled = memory.is_some().then(|| self.store.weights()).flatten();
        let memory = self.interceptor.memory(memory);
        let seed = self.scenario.seed;
        let controller =
            Controller::new(self.interceptor.spec(self.spec.clone()), memory, Nanos::ZERO, seed);
        self.invariants.controller_started(Nanos(self.now), &self.spec, recalled);
        self.process = Some(Process {
            controller,
            life: self.lives,
            origin: self.now,
            slept: 0,
            ahead: 0,
            asleep_since: None,
            away_until: 0,
            backlog: Vec::new(),
        });
        self.asking.stop();
    }

    pub(super) fn kill_controller(&mut self) {
        self.process = None;
        self.sink.forget();
    }

    /// The process has no CPU time for this long. Its clock stands still meanwhile, or continues.
    pub(super) fn stop_process(&mut self, for_ns: u64, clock_stops: bool) {
        let Some(process) = &mut self.process else { return };
        if process.is_away(self.now) {
            return;
        }
        process.away_until = self.now + for_ns;
        let (life, started) = (process.life, process.clock(self.now));
        if clock_stops {
            process.asleep_since = Some(self.now);
        }
        self.agenda.at(self.now + for_ns, Happening::Wake(life));
        // The last reading was taken and not yet processed.
        if !self.troubles.balancer_away && self.rng.chance(0.5) {
            let report = self.read_balancer(started);
            self.hold_back(Event::Balancer(report));
        }
        // Check rounds under way time out although the backends answered: the answers were not read in time.
        for i in 0..self.pool_model.len() {
            if self.roster[i] && for_ns > TIMEOUT_NS && self.rng.chance(0.5) {
                self.hold_back(Event::Liveness {
                    backend: BackendId(i as u32),
                    successes: 0,
                    failure: Some(FailureKind::Timeout),
                    started,
                });
            }
        }
    }

    /// Steps the clock forward without time passing.
    pub(super) fn step_clock(&mut self, by_ns: u64) {
        if let Some(process) = &mut self.process {
            process.ahead += by_ns;
        }
    }

    fn hold_back(&mut self, event: Event) {
        if let Some(process) = &mut self.process {
            process.backlog.push(event);
        }
    }

    pub(super) fn wake(&mut self, life: u64) {
        let Some(process) = self.process.as_mut().filter(|p| p.life == life) else { return };
        if let Some(since) = process.asleep_since.take() {
            process.slept += self.now - since;
        }
        for event in std::mem::take(&mut process.backlog) {
            self.tell_life(life, event);
        }
    }

    /// Delivers an event to the controller after this time.
    pub(super) fn tell_later(&mut self, late_ns: u64, event: Event) {
        let Some(life) = self.process.as_ref().map(|p| p.life) else { return };
        if late_ns == 0 {
            self.tell_life(life, event);
        } else {
            self.agenda.at(self.now + late_ns, Happening::Tell(life, Box::new(event)));
        }
    }

    /// Delivers an event to the controller now.
    pub(super) fn tell(&mut self, event: Event) {
        self.tell_later(0, event);
    }

    pub(super) fn tell_life(&mut self, life: u64, event: Event) {
        let Some(process) = self.process.as_mut().filter(|p| p.life == life) else { return };
        if process.is_away(self.now) {
            // Missed ticks are not repeated.
            if !matches!(event, Event::Tick) {
                process.backlog.push(event);
            }
            return;
        }
        let clock = process.clock(self.now);
        self.invariants.note_event(Nanos(self.now), clock, &event);
        self.trace(format_args!("event {event:?}"));
        let Some(process) = self.process.as_mut() else { return };
        let mut asked = Vec::new();
        for event in self.interceptor.events(clock, event) {
            self.tally.steps += 1;
            asked.extend(process.controller.step(clock, event));
        }
        let asked = self.interceptor.actions(clock, asked);
        self.interceptor.beliefs(&process.controller, &mut self.beliefs);
        for action in asked {
            self.trace(format_args!("action {action:?}"));
            self.tally.digest.note(self.now, &action);
            self.invariants.note_action(clock, &action);
            self.carry_out(life, action);
        }
        self.judge();
    }

    fn carry_out(&mut self, life: u64, action: Action) {
        match action {
            Action::Program(plan) => {
                self.tally.plans += 1;
                self.program(life, plan);
            }
            Action::Correct(plan) => self.program(life, plan),
            Action::ProbeRate { backend, interval, .. } => {
                self.asking.set_probes(backend, interval, self.now);
            }
            Action::CheckRate { backend, interval, at_once } => {
                self.asking.set_checks(backend, interval, at_once, self.now);
            }
            Action::Record(_) => {}
            Action::SaveMemory => {
                if let Some(process) = &self.process {
                    self.store.save(self.now, &process.controller);
                }
            }
        }
    }
}
