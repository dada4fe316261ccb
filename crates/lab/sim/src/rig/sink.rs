//! Readings and plans on their way between controller and balancer, as in the daemon's sink task: one operation at a
//! time, only the last of several waiting plans, no reading while a plan is under way.

use plimsoll_control::Event;
use plimsoll_model::{Applied, BackendId, BalancerReport, Nanos, Plan};

use super::happening::Happening;
use super::{RETRY_NS, Rig, nanos};
use crate::pool_model::PoolModel;
use crate::random::RandomStream;

/// Duration of a batch of commands with its answer, and of undoing one.
const EXCHANGE_NS: u64 = 3_000_000;

/// How the balancer handles plans.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Mood {
    /// Normally.
    #[default]
    Well,
    /// It refuses a weight in the middle of a plan; the rest can be undone or not.
    Rejects { undone: bool },
    /// The connection is cut after the batch.
    Interrupts,
    /// Plans are never answered.
    Silent,
    /// Plans take this many seconds in the mean.
    Slow(f64),
    /// It refuses every plan until an administrator acts.
    Forbids,
}

/// The simulated sink.
pub struct Sink {
    /// How the balancer handles plans.
    pub mood: Mood,
    busy: bool,
    waiting: Option<Plan>,
    /// It has refused a plan for good: readings report that.
    refused: bool,
    rng: RandomStream,
}

impl Sink {
    pub fn new(seed: u64) -> Self {
        let rng = RandomStream::new(seed, 4);
        Sink { mood: Mood::Well, busy: false, waiting: None, refused: false, rng }
    }

    /// Whether no plan is under way and the balancer works normally.
    pub fn is_idle(&self) -> bool {
        !self.busy && !self.refused && self.mood == Mood::Well
    }

    /// The controller's process has died.
    pub fn forget(&mut self) {
        self.busy = false;
        self.waiting = None;
        self.refused = false;
    }

    /// An administrator has repaired it.
    pub fn mend(&mut self) {
        self.mood = Mood::Well;
        self.refused = false;
    }

    /// The set of servers has changed: a waiting plan no longer fits.
    pub fn drop_waiting(&mut self) {
        self.waiting = None;
    }
}

impl<P: PoolModel> Rig<P> {
    /// A reading of the configured servers, at the controller's time.
    pub(super) fn read_balancer(&self, clock: Nanos) -> BalancerReport {
        let mut report = self.pool_model.report();
        report.at = clock;
        report.servers.retain(|s| self.roster[s.backend.0 as usize]);
        report
    }

    pub(super) fn poll(&mut self) {
        let lost = self.troubles.balancer_away || self.sink.refused;
        let by_daemon = self.troubles.method.kind().poll_interval();
        let next = if lost { RETRY_NS } else { nanos(by_daemon.max(self.scenario.cadence.poll)) };
        self.agenda.at(self.now + next, Happening::Poll);
        let Some(process) = &self.process else { return };
        if process.is_away(self.now) || self.sink.busy {
            return;
        }
        let event = if self.troubles.balancer_away {
            let reason = "/run/haproxy.sock: connection refused".to_owned();
            Event::BalancerLost { reason, conflict: false }
        } else if self.sink.refused {
            let reason = "the socket's level may not set weights".to_owned();
            Event::BalancerLost { reason, conflict: true }
        } else {
            Event::Balancer(self.read_balancer(process.clock(self.now)))
        };
        self.tell(event);
    }

    pub(super) fn program(&mut self, life: u64, plan: Plan) {
        if self.sink.busy {
            self.sink.waiting = Some(plan);
            return;
        }
        self.sink.busy = true;
        let takes = match self.sink.mood {
            Mood::Slow(seconds) => (self.sink.rng.exponential(seconds) * 1e9) as u64,
            _ => 0,
        };
        self.agenda.at(self.now + EXCHANGE_NS + takes, Happening::Carry(life, plan));
    }

    /// Applies a plan at the balancer.
    pub(super) fn carry(&mut self, life: u64, plan: &Plan) {
        let is_mine = self.process.as_ref().is_some_and(|p| p.life == life);
        // A process that died meanwhile may have sent the commands or not.
        if !is_mine {
            if self.sink.rng.chance(0.5) && !self.troubles.balancer_away {
                self.set(&self.changes(plan));
            }
            return;
        }
        let answer = self.apply(life, plan);
        if let Some(answer) = answer {
            self.answered(life, answer);
        }
    }

    /// The sink is free again, and the controller gets the answer.
    fn answered(&mut self, life: u64, answer: Option<Event>) {
        self.sink.busy = false;
        if let Some(plan) = self.sink.waiting.take() {
            self.program(life, plan);
        }
        if let Some(answer) = answer {
            self.tell_life(life, answer);
        }
    }

    /// Applies a plan, or simulates its failure. `None`: the answer comes later. `Some(None)`: never.
    fn apply(&mut self, life: u64, plan: &Plan) -> Option<Option<Event>> {
        let failed = |reason: &str, retryable| Event::ApplyFailed {
            epoch: plan.epoch,
            reason: reason.to_owned(),
            retryable,
        };
        if self.troubles.balancer_away {
            return Some(Some(failed("connection refused", true)));
        }
        if plan.entries.iter().any(|e| !self.roster[e.backend.0 as usize]) {
            return Some(Some(failed("a server is not among those that are steered", false)));
        }
        let changes = self.changes(plan);
        if !changes.is_empty() && self.leaves_no_weight(&changes) {
            return Some(Some(failed("it would leave every server at weight 0", false)));
        }
        let half = &changes[..changes.len().div_ceil(2).min(changes.len().saturating_sub(1))];
        match self.sink.mood {
            Mood::Well | Mood::Slow(_) => {}
            Mood::Forbids => {
                self.sink.refused = true;
                return Some(Some(failed("the socket's level may not set weights", false)));
            }
            _ if changes.is_empty() => {}
            Mood::Rejects { undone: false } => {
                self.set(half);
                return Some(Some(failed("refused; could not be put back", true)));
            }
            Mood::Rejects { undone: true } => {
                let before: Vec<(usize, u32)> =
                    half.iter().map(|&(i, _)| (i, self.pool_model.weight(i))).collect();
                self.set(half);
                let answer = Box::new(failed("refused; put back", true));
                self.agenda.at(self.now + EXCHANGE_NS, Happening::Undo(life, before, answer));
                return None;
            }
            Mood::Interrupts => {
                self.set(&changes);
                return Some(Some(failed("batch interrupted; could not be put back", true)));
            }
            Mood::Silent => {
                if self.sink.rng.chance(0.5) {
                    self.set(&changes);
                }
                return Some(None);
            }
        }
        self.set(&changes);
        let held = (0..self.pool_model.len())
            .filter(|&i| self.roster[i])
            .map(|i| (BackendId(i as u32), self.pool_model.weight(i)));
        let commands = changes.len() as u32;
        Some(Some(Event::Applied(Applied { epoch: plan.epoch, weights: held.collect(), commands })))
    }

    pub(super) fn undo(&mut self, life: u64, weights: &[(usize, u32)], answer: Event) {
        self.set(weights);
        if self.process.as_ref().is_some_and(|p| p.life == life) {
            self.answered(life, Some(answer));
        }
    }

    /// Differences from the balancer's weights, growing ones first.
    fn changes(&self, plan: &Plan) -> Vec<(usize, u32)> {
        let mut changes: Vec<(usize, u32)> = plan
            .entries
            .iter()
            .map(|e| (e.backend.0 as usize, e.weight))
            .filter(|&(i, weight)| self.pool_model.weight(i) != weight)
            .collect();
        changes.sort_by_key(|&(i, weight)| weight < self.pool_model.weight(i));
        changes
    }

    fn leaves_no_weight(&self, changes: &[(usize, u32)]) -> bool {
        (0..self.pool_model.len()).all(|i| {
            let change = changes.iter().find(|(j, _)| *j == i);
            change.map_or(self.pool_model.weight(i), |(_, weight)| *weight) == 0
        })
    }

    fn set(&mut self, weights: &[(usize, u32)]) {
        self.pool_model.set_weights(weights);
        self.invariants.weights_changed();
    }
}
