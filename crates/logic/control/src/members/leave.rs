//! The weights that the balancer keeps after a clean exit: every healthy backend holds one, because a parked backend
//! would not get its weight back when the load rises, and slow start would not end.

use plimsoll_model::{Nanos, Plan, PlanEntry, PlanKind};

use crate::backend::Backend;
use crate::controller::{Controller, record};
use crate::event::{Action, RecordKind};
use crate::members::health::Cause;
use crate::tuning::propose::search::LEASTCONN_SCALE;

impl Controller {
    /// Programs a last plan, if the weights need correcting. A controller that has decided nothing leaves the weights
    /// as it found them.
    pub(crate) fn leave(&mut self, now: Nanos, out: &mut Vec<Action>) {
        if !self.may_steer() || !self.balancer.is_fresh(now) || self.commitment.decision().is_none()
        {
            return;
        }
        // Pins end with the controller.
        for b in &mut self.backends {
            if b.pin.take().is_some() {
                b.programmed = None;
            }
        }
        // What the balancer's own check holds down, or finds up, is left to that check.
        let may_serve = |b: &Backend| {
            b.is_usable() || b.checked_by_balancer || b.health.cause() == Some(Cause::Balancer)
        };
        let members = || self.backends.iter().filter(|b| !b.is_reserved());
        let mut weights: Vec<_> = members()
            .map(|b| (b.id, if may_serve(b) { self.weight_as_is(b, 1.0) } else { 0 }))
            .collect();
        // Weights for little traffic may overload a backend when the traffic is back and a server is lost.
        let healthy: Vec<u32> = members()
            .zip(&weights)
            .filter(|(b, _)| b.is_usable())
            .map(|(_, (_, weight))| *weight)
            .collect();
        if !self.reserve().survives(&healthy, self.traffic.rate().max(self.traffic.peak_rps())) {
            let capacity = |b: &Backend| b.knowledge.capacity_rps().unwrap_or(0.0);
            let most = members().map(capacity).fold(0.0, f64::max).max(1e-9);
            for ((_, weight), b) in weights.iter_mut().zip(members()).filter(|((_, w), _)| *w > 0) {
                *weight = ((LEASTCONN_SCALE * capacity(b) / most).round() as u32).max(1);
            }
        }
        let sum: f64 = weights.iter().map(|(_, weight)| f64::from(*weight)).sum();
        let held = |id| self.backends.iter().find(|b| b.id == id).and_then(|b| b.programmed);
        let unchanged =
            !self.spec.subsets && weights.iter().all(|(id, weight)| held(*id) == Some(*weight));
        // A plan under way may lead to other weights than the present ones.
        if sum == 0.0 || (unchanged && !self.commitment.is_pending()) {
            return;
        }
        let entry =
            |&(backend, weight)| PlanEntry { backend, share: f64::from(weight) / sum, weight };
        let mut entries: Vec<PlanEntry> = weights.iter().map(entry).collect();
        entries.sort_by_key(|e| e.backend);
        let epoch = self.commitment.next_epoch();
        let reason = "Plimsoll stops: every healthy backend gets a weight".to_owned();
        record(out, RecordKind::Plan, None, format!("plan {epoch}: {reason}"));
        let kind = PlanKind::Leaving;
        out.push(Action::Program(Plan { epoch, at: now, kind, reason, entries }));
    }
}
