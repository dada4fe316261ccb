//! Accounts for the events that the controller gets.

use std::time::Duration;

use plimsoll_control::Event;
use plimsoll_model::{
    Applied, BackendId, BalancerReport, FailureKind, Nanos, Outcome, ServerStatus,
};

use super::learning::LastEvent;
use super::{Account, Invariants};

/// Without an event for this long the process had no CPU time, and earlier time-outs prove nothing.
const STALL: Duration = Duration::from_millis(500);
/// Least distance of the readings kept, and for how long they are kept.
const READINGS_APART: Duration = Duration::from_millis(900);
const READINGS_KEPT: Duration = Duration::from_millis(4_500);

impl Account {
    fn note_reading(&mut self, at: Nanos, started: u64, restarted: bool) {
        if restarted {
            self.readings.clear();
        }
        if self.readings.back().is_none_or(|(last, _)| at.since(*last) >= READINGS_APART) {
            self.readings.push_back((at, started));
        }
        while self.readings.front().is_some_and(|(first, _)| at.since(*first) > READINGS_KEPT) {
            self.readings.pop_front();
        }
    }
}

impl Invariants {
    /// Accounts for an event before the controller processes it.
    pub fn note_event(&mut self, world: Nanos, clock: Nanos, event: &Event) {
        self.world = world;
        if clock.since(self.last_clock) > STALL {
            self.stalled_at = clock;
        }
        self.last_clock = clock;
        self.last_event = match event {
            Event::Balancer(report) => {
                let gap = self.newest_at.map(|at| report.at.since(at));
                LastEvent::Reading { age: clock.since(report.at), gap }
            }
            Event::Probe { backend, .. } => LastEvent::Probe(*backend),
            _ => LastEvent::Other,
        };
        match event {
            Event::Tick
            | Event::Stopping
            | Event::BalancersDegraded(_)
            | Event::BalancersSharing(_) => {}
            Event::Balancer(report) => self.note_report(clock, report),
            Event::BalancerLost { conflict, .. } => {
                self.conflict = *conflict;
                self.outstanding = None;
                self.note_reason_to_reassert();
            }
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
            Event::ApplyFailed { epoch, retryable, .. } => {
                if self.outstanding.take_if(|o| o.epoch == *epoch).is_some() {
                    // The balancer holds the weights it held before: that was no change to keep a distance from.
                    self.refused_at = Some(clock);
                    self.note_reason_to_reassert();
                    self.conflict |= !retryable;
                }
            }
            Event::Reconfigured(spec) => {
                self.configure(spec);
                self.outstanding = None;
                self.note_pool_change();
                self.recalled = None;
            }
        }
    }

    fn note_report(&mut self, clock: Nanos, report: &BalancerReport) {
        let first = self.newest_at.is_none();
        self.newest_at = self.newest_at.max(Some(report.at));
        self.conflict = false;
        self.method_changed |= self.kind != report.method.kind;
        self.kind = report.method.kind;
        let restarted = self.generation.is_some_and(|g| g != report.generation);
        self.generation = Some(report.generation);
        if restarted {
            self.outstanding = None;
            self.note_reason_to_reassert();
        }
        let expects = self.outstanding.is_none() && !restarted;
        let (mut foreign, mut refilled, mut pool_changed) = (false, false, false);
        for server in &report.servers {
            let Some(a) = self.accounts.get_mut(server.backend.0 as usize) else { continue };
            let by_others = expects && a.believed.is_some_and(|w| w != server.weight);
            foreign |= by_others;
            // Regardless of who set it: a failed backend must have weight 0.
            refilled |= by_others && server.weight > 0 && a.is_to_get_nothing();
            a.believed = Some(server.weight);
            let reserved = matches!(server.status, ServerStatus::Drain | ServerStatus::Maintenance);
            let down = server.status == ServerStatus::Down;
            if reserved != a.reserved || down != a.balancer_down {
                pool_changed = true;
            }
            if down {
                a.bad_news_at = Some(clock);
            }
            let before = std::mem::replace(&mut a.answered_total, server.answered_total);
            if !restarted && before.is_some_and(|before| server.answered_total > Some(before)) {
                a.answered_at = Some(report.at.min(clock));
            }
            (a.errors_total, a.in_flight) = (server.errors_total, server.in_flight);
            a.note_reading(report.at, server.started_total, restarted);
            (a.reserved, a.balancer_down) = (reserved, down);
        }
        self.note_granted();
        if refilled {
            self.note_reason_to_reassert();
        }
        if foreign {
            (self.foreign, self.excused_s) = (true, 0.0);
        }
        if pool_changed {
            self.note_pool_change();
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

    /// Whether the first plan must be the weights in the memory.
    fn note_what_to_resume(&mut self, report: &BalancerReport) {
        let Some(recalled) = &self.recalled else { return };
        let weight = |id: BackendId| recalled.iter().find(|(b, _)| *b == id).map(|(_, w)| *w);
        let all_known = report.servers.iter().all(|s| weight(s.backend).is_some());
        // A backend that may not serve gets weight 0 whatever the memory says: that alone is no reason for a plan.
        let serves =
            |id: BackendId| self.accounts.get(id.0 as usize).is_some_and(|a| a.is_usable());
        // Where the memory leaves all traffic to one backend, the others get some.
        let holds = |(id, weight): &&(BackendId, u32)| *weight > 0 && serves(*id);
        let alone = recalled.iter().filter(holds).count() < 2;
        let differs = report.servers.iter().any(|s| {
            let remembered = weight(s.backend).filter(|w| *w > 0 || !alone);
            serves(s.backend) && remembered.is_some_and(|remembered| remembered != s.weight)
        });
        // The memory must give weight to a backend that is still there.
        let any_serves = report
            .servers
            .iter()
            .any(|s| serves(s.backend) && weight(s.backend).is_some_and(|w| w > 0));
        self.must_resume = all_known && differs && any_serves;
    }

    fn note_applied(&mut self, clock: Nanos, applied: &Applied) {
        for &(id, weight) in &applied.weights {
            if let Some(a) = self.accounts.get_mut(id.0 as usize) {
                a.believed = Some(weight);
            }
        }
        self.note_granted();
        let answered = self.outstanding.take_if(|o| o.epoch == applied.epoch).is_some();
        if answered {
            self.refused_at = None;
            // A plan that changed no weight does not delay the next one; another such plan would.
            if applied.commands == 0 {
                self.last_plan_at = std::mem::replace(&mut self.idle_plan_at, self.last_plan_at);
            }
        }
        if answered && applied.commands > 0 {
            self.last_program = Some(clock);
        }
    }

    /// Accounts for the shares of the last plan that are in force.
    fn note_granted(&mut self) {
        let (Some(weights), Some(shares)) = (&self.last_plan, &self.last_shares) else { return };
        for ((id, weight), (_, share)) in weights.iter().zip(shares) {
            let held = self.accounts.get_mut(id.0 as usize);
            // A backend that is set aside gets its former share back.
            if let Some(a) = held.filter(|a| a.believed == Some(*weight) && !a.aside) {
                a.granted_share = *share;
            }
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
