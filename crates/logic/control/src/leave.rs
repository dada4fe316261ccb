//! What the balancer is left with at a clean exit: every healthy backend holds a weight, for nobody will give a
//! parked one its weight back when the load rises, nor end a ramp.

use plimsoll_model::{Nanos, Plan, PlanEntry};

use crate::backend::Backend;
use crate::controller::{Controller, record};
use crate::event::{Action, RecordKind};
use crate::health::Cause;

impl Controller {
    /// Programs the last plan, if there is something to put right. A controller that has decided nothing leaves
    /// everything as it found it.
    pub(crate) fn leave(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if !self.may_steer() || !self.is_fresh(now) || self.decision.is_none() {
            return;
        }
        // A load that was given on purpose is none to be left with.
        for b in &mut self.backends {
            if b.pin.take().is_some() {
                b.programmed = None;
            }
        }
        // The balancer's own check keeps from traffic whom it holds down, and will give it back.
        let may_serve = |b: &Backend| b.is_usable() || b.health.cause() == Some(Cause::Balancer);
        let members = self.backends.iter().filter(|b| !b.is_reserved());
        let weights: Vec<_> = members
            .map(|b| (b.id, if may_serve(b) { self.weight_as_is(b, 1.0) } else { 0 }))
            .collect();
        let sum: f64 = weights.iter().map(|(_, weight)| f64::from(*weight)).sum();
        let held = |id| self.backends.iter().find(|b| b.id == id).and_then(|b| b.programmed);
        if sum == 0.0 || weights.iter().all(|(id, weight)| held(*id) == Some(*weight)) {
            return;
        }
        let entry =
            |&(backend, weight)| PlanEntry { backend, share: f64::from(weight) / sum, weight };
        let mut entries: Vec<PlanEntry> = weights.iter().map(entry).collect();
        entries.sort_by_key(|e| e.backend);
        self.epoch += 1;
        let reason = "leaving: every healthy backend gets a weight".to_owned();
        record(out, RecordKind::Plan, None, format!("plan {}: {reason}", self.epoch));
        out.push(Action::Program(Plan { epoch: self.epoch, at: now, reason, entries }));
    }
}
