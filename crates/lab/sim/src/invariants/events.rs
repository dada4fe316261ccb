//! Accounts for the events that the controller gets.

use std::time::Duration;

use plimsoll_control::Event;
use plimsoll_model::{
    Applied, BackendId, BalancerReport, FailureKind, Nanos, Outcome, ServerStatus,
};

use super::Invariants;

/// Without an event for this long the process had no CPU time, and earlier time-outs prove nothing.
const STALL: Duration = Duration::from_millis(500);

impl Invariants {
    /// Accounts for an event before the controller processes it.
    pub fn note_event(&mut self, world: Nanos, clock: Nanos, event: &Event) {
        self.world = world;
        if clock.since(self.last_clock) > STALL {
            self.stalled_at = clock;
        }
        self.last_clock = clock;
        match event {
            Event::Tick
            | Event::Stopping
            | Event::BalancersDegraded(_)
            | Event::BalancersSharing(_) => {}
            Event::Balancer(report) => self.note_report(clock, report),
            Event::BalancerLost { .. } => self.outstanding = None,
            Event::Probe { backend, outcome, .. } => {
                if *outcome != Outcome::Success {
                    self.note_bad_news(clock, *backend);
                }
            }
            Event::Liveness { backend, successes, failure, started } => {
                let timed_out = *successes == 0 && *failure == Some(FailureKind::Timeout);
                if *successes == 0 && !(timed_out && *started < self.stalled_at) {
                    self.note_bad_news(clock, *backend);
                }
            }
            Event::Applied(applied) => self.note_applied(clock, applied),
            Event::ApplyFailed { epoch, .. } => {
                self.outstanding.take_if(|o| o.epoch == *epoch);
            }
            Event::Reconfigured(spec) => {
                self.configure(spec);
                self.outstanding = None;
                self.recalled = None;
            }
        }
    }

    fn note_report(&mut self, clock: Nanos, report: &BalancerReport) {
        let first = self.newest_at.is_none();
        self.newest_at = self.newest_at.max(Some(report.at));
        self.kind = Some(report.method.kind);
        if self.generation.replace(report.generation).is_some_and(|g| g != report.generation) {
            self.outstanding = None;
        }
        for server in &report.servers {
            let Some(a) = self.accounts.get_mut(server.backend.0 as usize) else { continue };
            a.reserved = matches!(server.status, ServerStatus::Drain | ServerStatus::Maintenance);
            a.balancer_down = server.status == ServerStatus::Down;
            if a.balancer_down {
                a.bad_news_at = Some(clock);
            }
        }
        if first {
            self.note_what_to_resume(report);
        }
    }

    fn note_bad_news(&mut self, clock: Nanos, id: BackendId) {
        if let Some(a) = self.accounts.get_mut(id.0 as usize).filter(|a| a.steered) {
            a.bad_news_at = Some(clock);
        }
    }

    /// The first plan must be the weights in the memory, where a backend that may serve had one and holds another. (A
    /// backend that may not serve gets weight 0 whatever the memory says.)
    fn note_what_to_resume(&mut self, report: &BalancerReport) {
        let Some(recalled) = &self.recalled else { return };
        let weight = |id: BackendId| recalled.iter().find(|(b, _)| *b == id).map(|(_, w)| *w);
        let serves =
            |id: BackendId| self.accounts.get(id.0 as usize).is_some_and(|a| a.is_usable());
        let differs = report.servers.iter().any(|s| {
            let remembered = weight(s.backend).filter(|w| *w > 0 && serves(s.backend));
            remembered.is_some_and(|remembered| remembered != s.weight)
        });
        self.must_resume = differs && report.servers.iter().all(|s| weight(s.backend).is_some());
    }

    fn note_applied(&mut self, clock: Nanos, applied: &Applied) {
        self.outstanding.take_if(|o| o.epoch == applied.epoch);
        if applied.commands > 0 {
            self.changed_at = Some(clock);
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_control::{BackendSpec, ServiceSpec};
    use plimsoll_model::{Method, MethodKind, ServerReport};

    use super::*;

    /// Whether the first plan must restore a memory of this weight each, while these weights are in force. (A backend
    /// that is no longer configured had another.)
    fn must_resume(remembered: u32, servers: &[(u32, ServerStatus)]) -> bool {
        let ids = || (0..servers.len() as u32).map(BackendId);
        let backends = ids().map(|id| BackendSpec { id, name: format!("s{}", id.0) }).collect();
        let mut invariants = Invariants::new(servers.len());
        let gone = (BackendId(servers.len() as u32), 7);
        let recalled = ids().map(|id| (id, remembered)).chain([gone]).collect();
        invariants.controller_started(
            Nanos::ZERO,
            &ServiceSpec::new("sim", backends),
            Some(recalled),
        );
        let report = BalancerReport {
            at: Nanos::ZERO,
            method: Method { name: "roundrobin".to_owned(), kind: MethodKind::Split },
            generation: 1,
            traffic: plimsoll_model::Traffic::Counted,
            servers: ids()
                .zip(servers)
                .map(|(backend, &(weight, status))| ServerReport::new(backend, weight, status))
                .collect(),
        };
        invariants.note_event(Nanos::ZERO, Nanos::ZERO, &Event::Balancer(report));
        invariants.must_resume
    }

    #[test]
    fn weights_to_resume_are_those_of_backends_that_may_serve() {
        let (up, down) = (ServerStatus::Up, ServerStatus::Down);
        assert!(must_resume(1, &[(0, up), (1, up)]));
        assert!(must_resume(1, &[(0, down), (5, up)]));
        assert!(!must_resume(1, &[(0, down), (1, up)]), "there is nothing to put right");
        assert!(!must_resume(1, &[(1, up), (1, up)]));
        assert!(
            !must_resume(0, &[(1, up), (1, up)]),
            "none of the remaining backends had a weight"
        );
    }
}
