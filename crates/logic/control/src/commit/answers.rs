//! The sink's answers to plans, and changes of the configuration.

use plimsoll_model::{Applied, Nanos, Traffic};

use crate::backend::Backend;
use crate::commit::commitment::{Pending, Sent};
use crate::controller::{Controller, record};
use crate::event::{Action, RecordKind};
use crate::experiments::drain::DrainTimes;
use crate::gate::pace::Urgent;
use crate::gate::trial::Trial;
use crate::show::view::Phase;
use crate::spec::ServiceSpec;

impl Controller {
    pub(crate) fn on_applied(&mut self, now: Nanos, applied: &Applied, out: &mut Vec<Action>) {
        for &(id, weight) in &applied.weights {
            if let Some(b) = self.get(id) {
                b.programmed = Some(weight);
            }
        }
        let has_changed = applied.commands > 0;
        let pending = self.commitment.applied(now, applied.epoch, has_changed);
        let Some(pending) = pending.filter(|p| p.kind != Sent::Correction) else { return };
        DrainTimes::note_zeroed(now, &mut self.backends, &pending.before);
        let missed = pending.decision.wishes.iter().find_map(|w| {
            let held = applied.weights.iter().find(|(id, _)| *id == w.id).map(|(_, held)| *held);
            (held != Some(w.weight)).then_some(w.id)
        });
        for b in self.backends.iter_mut().filter(|b| !b.aside) {
            match pending.decision.wishes.iter().find(|w| w.id == b.id) {
                Some(w) if !applied.weights.contains(&(w.id, w.weight)) => {}
                wish => b.granted_share = wish.map_or(0.0, |w| w.share),
            }
        }
        if let Some(name) = missed.and_then(|id| self.get(id).map(|b| b.name.clone())) {
            let line = "the balancer holds a different weight than the one programmed".to_owned();
            record(out, RecordKind::Warning, Some(&name), line);
        }
        if has_changed {
            // Means of some time before and after would be a mixture of both.
            let is_counted = self.balancer.traffic() == Traffic::Counted;
            let is_judged = pending.kind == Sent::OnTrial && is_counted;
            self.gate.begin_trial(is_judged.then(|| {
                let calm_since = self.traffic.calm_since();
                let Pending { before, decision, .. } = pending;
                Trial::new(now, self.traffic.history(), calm_since, before, &decision)
            }));
            // No window may span the change of weights: it would show a mixture.
            self.reset_meters();
            self.traffic.note_change(now);
            out.push(Action::SaveMemory);
        }
    }

    pub(crate) fn on_apply_failed(
        &mut self,
        now: Nanos,
        epoch: u64,
        reason: String,
        retryable: bool,
        out: &mut Vec<Action>,
    ) {
        if !self.commitment.refused(now, epoch) {
            return;
        }
        let line = format!("plan {epoch} was not programmed: {reason}");
        record(out, RecordKind::Warning, None, line);
        if !retryable {
            self.balancer.lose(reason, true);
        }
    }

    pub(crate) fn on_reconfigured(&mut self, now: Nanos, spec: ServiceSpec, out: &mut Vec<Action>) {
        for b in &self.backends {
            if !spec.backends.iter().any(|s| s.id == b.id) {
                record(
                    out,
                    RecordKind::Left,
                    Some(&b.name),
                    "removed from the configuration".to_owned(),
                );
            }
        }
        let mut kept: Vec<Backend> = std::mem::take(&mut self.backends);
        let mut all = Vec::with_capacity(spec.backends.len());
        for s in &spec.backends {
            match kept.iter().position(|b| b.id == s.id) {
                Some(i) => {
                    let mut b = kept.swap_remove(i);
                    b.name.clone_from(&s.name);
                    b.slow_start = spec.slow_start;
                    b.pin = None;
                    all.push(b);
                }
                None => {
                    let mut b = Backend::new(s, spec.slow_start);
                    b.ramping_since = Some(now);
                    record(
                        out,
                        RecordKind::Joined,
                        Some(&s.name),
                        "added to the configuration".to_owned(),
                    );
                    all.push(b);
                }
            }
        }
        self.backends = all;
        if spec.observe {
            self.phase.set(Phase::Observing, "observe mode is configured", out);
        } else {
            self.phase.set(Phase::Exploring, "the configuration changed", out);
        }
        self.phase.restart(now);
        self.drop_trial_and_search();
        self.experiments.clear();
        self.commitment.abandon();
        self.spec = spec;
        self.gate.raise(Urgent::Pool("the configuration changed".to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_model::{
        BackendId, BalancerReport, FailureKind, Method, MethodKind, ServerReport, ServerStatus,
    };

    use super::*;
    use crate::event::Event;
    use crate::spec::BackendSpec;

    /// A balancer that takes ten seconds between changes refuses the first attempt to remove a dead server.
    #[test]
    fn a_refused_plan_is_no_change_that_the_next_one_must_keep_its_distance_from() {
        let backends = (0..3).map(|i| BackendSpec { id: BackendId(i), name: format!("s{i}") });
        let mut spec = ServiceSpec::new("shop", backends.collect());
        spec.sink.min_interval = Duration::from_secs(10);
        let mut controller = Controller::new(spec, None, Nanos::ZERO, 1);
        let (mut weights, mut attempts) = ([10; 3], Vec::new());
        controller.commitment.applied(Nanos::ZERO, 0, true);
        for tenths in 1..200 {
            let now = Nanos(tenths * 100_000_000);
            let server = |(i, &weight): (u32, &u32)| {
                ServerReport::new(BackendId(i), weight, ServerStatus::Up)
            };
            let report = BalancerReport {
                at: now,
                method: Method { name: "roundrobin".to_owned(), kind: MethodKind::Split },
                generation: 1,
                traffic: Traffic::Counted,
                servers: (0..).zip(&weights).map(server).collect(),
            };
            let mut actions = controller.step(now, Event::Balancer(report));
            if tenths == 1 || tenths > 95 {
                let (successes, failure) = match tenths {
                    1 => (1, None),
                    _ => (0, Some(FailureKind::Refused)),
                };
                let backend = BackendId(1);
                let checked = Event::Liveness { backend, successes, failure, started: now };
                actions.extend(controller.step(now, checked));
            }
            for action in actions {
                let Action::Program(plan) = action else { continue };
                attempts.push(tenths);
                let answer = if attempts.len() == 1 {
                    let reason = "too soon after the last reload".to_owned();
                    Event::ApplyFailed { epoch: plan.epoch, reason, retryable: true }
                } else {
                    plan.entries.iter().for_each(|e| weights[e.backend.0 as usize] = e.weight);
                    let weights = plan.entries.iter().map(|e| (e.backend, e.weight)).collect();
                    Event::Applied(Applied { epoch: plan.epoch, weights, commands: 1 })
                };
                controller.step(now, answer);
            }
        }
        assert_eq!(weights[1], 0, "{attempts:?}");
        assert!(attempts[0] > 95 && attempts[1] < 105, "{attempts:?}");
    }
}
