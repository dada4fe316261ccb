//! Checks of learning: which curves may be rescaled when, and which backends may be given a load to be measured.

use std::time::Duration;

use plimsoll_control::{Record, RecordKind};
use plimsoll_model::{BackendId, MethodKind};

use super::limits::PUT_BACK_WITHIN;
use super::{Invariants, Rule, Snapshot};

/// A change is inferred from readings no older than this, and no further apart.
const STALE: Duration = Duration::from_secs(2);
/// The part of all capacity that is measured at a time; one backend is always allowed.
const AT_A_TIME: f64 = 0.05;
/// Longest measurement: 30 s. Windows come once a second.
const REFRESH_S: f64 = 35.0;
/// A factor this close to 1 is no rescaling.
const NONE_AT_ALL: f64 = 1e-6;

/// The controller's last event.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum LastEvent {
    /// A reading of this age, this long after the one before.
    Reading { age: Duration, gap: Option<Duration> },
    /// A probe of this backend.
    Probe(BackendId),
    /// Anything else.
    #[default]
    Other,
}

impl Invariants {
    /// Accounts for a record about a change, and checks whether it is allowed.
    pub(super) fn note_change_record(&mut self, record: &Record, place: Option<usize>) {
        if matches!(
            record.kind,
            RecordKind::Drift
                | RecordKind::Doubted
                | RecordKind::Relearned
                | RecordKind::Underestimated
                | RecordKind::Refresh
        ) {
            self.named.extend(place);
        }
        if record.kind != RecordKind::Drift {
            return;
        }
        let fresh = match self.last_event {
            LastEvent::Reading { age, gap } => age < STALE && gap.is_some_and(|gap| gap <= STALE),
            LastEvent::Probe(id) => place == Some(id.0 as usize),
            LastEvent::Other => false,
        };
        if !fresh {
            let what = format!("after {:?}: {}", self.last_event, record.reason);
            self.violate(Rule::DriftIsFresh, place, what);
        }
        // A failed backend that keeps its weight serves: no other one does.
        let has_failed = |a: &super::Account| a.out && a.believed == Some(0);
        let is_out = |a: &super::Account| a.reserved || has_failed(a);
        let out = |i: &usize| self.accounts.get(*i).is_some_and(is_out);
        if place.filter(out).is_some() {
            self.violate(Rule::DriftOfTheServing, place, record.reason.clone());
        }
    }

    /// Every rescaled curve is named in a record, and no other one is rescaled.
    pub(super) fn check_rescaled(&mut self, snapshot: &Snapshot<'_>) {
        for b in snapshot.seen.beliefs {
            let i = b.backend.0 as usize;
            let Some(held) = self.changed.get_mut(i) else { continue };
            let news = *held != b.changed;
            *held = b.changed;
            let Some((_, ratio)) = b.changed.filter(|_| news) else { continue };
            if (ratio - 1.0).abs() > NONE_AT_ALL && !self.named.contains(&i) {
                let what = format!(
                    "its curve is rescaled by {ratio:.3}, of those named: {:?}",
                    self.named
                );
                self.violate(Rule::DriftIsLocal, Some(i), what);
            }
        }
        self.named.clear();
    }

    /// Loads given to measure: whether they are configured, how many at a time, and for how long.
    pub(super) fn check_measured(&mut self, snapshot: &Snapshot<'_>, able_s: f64) {
        let beliefs = snapshot.seen.beliefs;
        let count = beliefs.iter().filter(|b| b.is_measured).count();
        if count == 0 && self.measured == 0 {
            return self.check_put_back(snapshot, able_s);
        }
        let Some(spec) = &self.spec else { return };
        if count > 0 && !spec.refresh {
            self.violate(Rule::RefreshIsAsked, None, format!("{count} are measured on purpose"));
        }
        if count > self.measured && count > 1 {
            let capacity = |b: &&plimsoll_control::Belief| {
                let a = &self.accounts[b.backend.0 as usize];
                if a.is_usable() { b.capacity_rps.unwrap_or(0.0) } else { 0.0 }
            };
            let all: f64 = beliefs.iter().map(|b| capacity(&b)).sum();
            let part = beliefs.iter().filter(|b| b.is_measured).map(|b| capacity(&b)).sum::<f64>();
            if part > AT_A_TIME * all + 1e-9 {
                let what = format!("{count} are measured, {:.0} % of all", part / all * 100.0);
                self.violate(Rule::RefreshIsSmall, None, what);
            }
        }
        // Under an in-flight method the controller may find that the weights are already as wanted, and decide nothing.
        if count < self.measured && self.kind == MethodKind::Split {
            self.put_back_by = Some((snapshot.seen.clock, 0.0));
        }
        self.measured = count;
        self.measured_at = Some(self.world);
        let mut endless = None;
        for b in beliefs {
            let a = &mut self.accounts[b.backend.0 as usize];
            a.measured_s = if b.is_measured { a.measured_s + able_s } else { 0.0 };
            if a.measured_s > REFRESH_S {
                endless = Some(b.backend.0 as usize);
            }
        }
        if endless.is_some() {
            let what = format!("measured on purpose for more than {REFRESH_S} s");
            self.violate(Rule::RefreshEnds, endless, what);
        }
    }

    /// After a measurement there must be a new decision.
    fn check_put_back(&mut self, snapshot: &Snapshot<'_>, able_s: f64) {
        let Some((ended, waited_s)) = &mut self.put_back_by else { return };
        // Without traffic there is nothing to decide, and without a usable backend nothing can be decided.
        let may = snapshot.seen.pool_model.rate_rps() > 1.0
            && self.accounts.iter().any(|a| a.is_usable());
        *waited_s += if may { able_s } else { 0.0 };
        if snapshot.seen.controller.decided_at().is_some_and(|at| at >= *ended) {
            self.put_back_by = None;
        } else if *waited_s > PUT_BACK_WITHIN.as_secs_f64() {
            let what = "loads given on purpose were not taken back".to_owned();
            self.violate(Rule::RefreshEnds, None, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_control::{BackendSpec, Belief, Controller, ServiceSpec};
    use plimsoll_model::Nanos;

    use super::*;
    use crate::invariants::Seen;
    use crate::pool::{BackendModel, Method};
    use crate::sample::SampledPool;

    /// The violation when these are measured at once, of a pool with capacities of 970, 20 and 10 req/s.
    fn violated(measured: &[u32]) -> Option<Rule> {
        let capacity = [970.0, 20.0, 10.0];
        let backend = |i: u32| BackendSpec { id: BackendId(i), name: format!("s{i}") };
        let spec = ServiceSpec::new("sim", (0..3).map(backend).collect());
        let mut invariants = Invariants::new(3);
        invariants.controller_started(Nanos::ZERO, &spec, None);
        let belief = |(i, rps): (u32, f64)| Belief {
            backend: BackendId(i),
            programmed: Some(1),
            wanted: 1,
            capacity_rps: Some(rps),
            capacity_error: 0.1,
            curve_rps: Some(rps),
            is_lower_bound: false,
            service_us: Some(1e3),
            changed: None,
            is_measured: measured.contains(&i),
        };
        let beliefs: Vec<Belief> = (0..3).zip(capacity).map(belief).collect();
        let pool = [BackendModel { cores: 1, speed: 1.0 }; 3];
        let pool_model = SampledPool::new(&pool, 10_000.0, Method::RoundRobin, 1);
        let controller = Controller::new(spec.clone(), None, Nanos::ZERO, 1);
        let (clock, view) = (Nanos::ZERO, || controller.view(Nanos::ZERO));
        let seen =
            Seen { clock, pool_model: &pool_model, controller: &controller, beliefs: &beliefs };
        let snapshot = Snapshot { now: clock, able: true, seen, view: &view };
        invariants.check_measured(&snapshot, 0.0);
        invariants.take_violation().map(|violation| violation.rule)
    }

    #[test]
    fn several_backends_are_measured_at_once_only_with_a_small_part_of_the_capacity() {
        assert_eq!(violated(&[1, 2]), None, "3 %");
        assert_eq!(violated(&[0]), None, "one always may be");
        assert_eq!(violated(&[0, 2]), Some(Rule::RefreshIsSmall));
    }
}
