//! What was seen of one run in which something happened.

use std::ops::Range;

use plimsoll_control::RecordKind;
use plimsoll_sim::Method;

use super::{Disturbance, GROUPS, Steering};
use crate::Provenance;

/// One run.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Where its numbers come from.
    pub provenance: Provenance,
    /// What happened.
    pub what: Disturbance,
    /// How the balancer picks.
    pub method: Method,
    /// What set the weights.
    pub steering: Steering,
    /// Its seed.
    pub seed: u64,
    /// The weights that the balancer held when it happened.
    pub held: Vec<u32>,
    /// Each backend's part of the traffic before; under round robin, its weight.
    pub before: Vec<f64>,
    /// The same once all has settled.
    pub after: Vec<f64>,
    /// When what was noticed and done about it.
    pub reaction: Reaction,
    /// Clients' mean before, milliseconds.
    pub before_ms: f64,
    /// In the first ten seconds, milliseconds.
    pub first_ms: f64,
    /// Once all has settled, milliseconds.
    pub later_ms: f64,
    /// Requests lost from the change to the end.
    pub lost: u64,
    /// The greatest part of its capacity that a backend is asked for once all has settled.
    pub busiest: f64,
    /// Clients' mean by second, the change at zero: (seconds, milliseconds).
    pub series: Vec<(f64, f64)>,
}

/// When a controller noticed what happened. Seconds after it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reaction {
    /// The first of the backends concerned was noticed.
    pub first_s: Option<f64>,
    /// The last of them was, if all were.
    pub all_s: Option<f64>,
    /// Which of them were, and when.
    pub each_s: Vec<(usize, f64)>,
    /// The first plan after the first was noticed; after the change, where no backend is concerned.
    pub planned_s: Option<f64>,
    /// Changes reported of backends or traffic that had not changed, before as well as after.
    pub false_alarms: usize,
    /// Requests a concerned backend answered between change and notice, on average.
    pub requests: Option<f64>,
}

/// A record of a controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noted {
    /// Seconds after the change.
    pub at_s: f64,
    /// What it says.
    pub kind: RecordKind,
    /// The place of its backend, if it is about one.
    pub place: Option<usize>,
    /// The traffic that it was made for, where it is a plan and that is known, requests per second.
    pub planned_rps: Option<f64>,
}

impl Reaction {
    /// From a controller's records since it was steady, where so many requests per second came before.
    pub fn of(what: Disturbance, before_rps: f64, noted: &[Noted]) -> Self {
        let sign = match what {
            Disturbance::Failure => RecordKind::Failed,
            _ => RecordKind::Drift,
        };
        let concerned = what.concerned();
        let mut each_s: Vec<(usize, f64)> = Vec::new();
        let (mut shared_s, mut false_alarms) = (None, 0);
        for &Noted { at_s: at, kind, place: backend, .. } in noted {
            let news = at >= 0.0 && backend.is_some_and(|i| concerned.contains(&i)) && kind == sign;
            let drift = kind == RecordKind::Drift;
            if news {
                // The first time counts.
                let new = backend.filter(|i| each_s.iter().all(|(seen, _)| seen != i));
                each_s.extend(new.map(|i| (i, at)));
            } else if drift && at >= 0.0 && backend.is_none() && what == Disturbance::Traffic {
                shared_s = shared_s.or(Some(at));
            } else if drift {
                false_alarms += 1;
            }
        }
        let first_s = each_s.first().map(|(_, at)| *at).or(shared_s);
        let all = !concerned.is_empty() && each_s.len() == concerned.len();
        let all_s = each_s.last().map(|(_, at)| *at).filter(|_| all).or(shared_s);
        let from = if concerned.is_empty() { Some(shared_s.unwrap_or(0.0)) } else { first_s };
        // A plan that takes another back answers nothing.
        let answers = |(k, note): (usize, &Noted)| {
            let taken_back = k > 0 && noted[k - 1].kind == RecordKind::Rollback;
            let answers = what.may_be_answered_by(note.planned_rps, before_rps);
            (note.kind == RecordKind::Plan && !taken_back && answers).then_some(note.at_s)
        };
        let plan =
            |from: f64| noted.iter().enumerate().filter_map(answers).find(|at_s| *at_s >= from);
        let planned_s = from.and_then(plan);
        Reaction { first_s, all_s, each_s, planned_s, false_alarms, requests: None }
    }
}

impl Seen {
    /// The part of the traffic that a group got, before and after.
    pub fn group(&self, range: &Range<usize>) -> (f64, f64) {
        let sum = |shares: &[f64]| shares[range.clone()].iter().sum();
        (sum(&self.before), sum(&self.after))
    }
}

/// The mean of what is there; nothing when there is nothing.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    plimsoll_lanes::mean(&values.collect::<Vec<_>>())
}

/// The standard error of the mean; nothing for fewer than two values.
pub fn standard_error(values: impl Iterator<Item = f64>) -> Option<f64> {
    plimsoll_lanes::standard_error(&values.collect::<Vec<_>>())
}

/// The median over all runs, where one in which it never happened counts as later than any other; and in
/// how many it happened.
pub fn median(values: impl Iterator<Item = Option<f64>>) -> (Option<f64>, usize) {
    let values: Vec<Option<f64>> = values.collect();
    let mut there: Vec<f64> = values.iter().copied().flatten().collect();
    there.sort_by(f64::total_cmp);
    (there.get(values.len() / 2).copied(), there.len())
}

/// Before and after by group, the mean over these runs.
pub fn groups<'a>(runs: impl Iterator<Item = &'a Seen> + Clone) -> Vec<(f64, f64)> {
    let of = |range: &Range<usize>| {
        let pick = |which: fn((f64, f64)) -> f64| {
            mean(runs.clone().map(|seen| which(seen.group(range)))).unwrap_or(f64::NAN)
        };
        (pick(|(before, _)| before), pick(|(_, after)| after))
    };
    GROUPS.iter().map(|(_, range)| of(range)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE_RPS: f64 = 100.0;

    fn note(at_s: f64, kind: RecordKind, place: Option<usize>) -> Noted {
        let planned_rps = (kind == RecordKind::Plan).then_some(BEFORE_RPS);
        Noted { at_s, kind, place, planned_rps }
    }

    fn plan_for(at_s: f64, rps: f64) -> Noted {
        Noted { planned_rps: Some(rps), ..note(at_s, RecordKind::Plan, None) }
    }

    fn reaction(what: Disturbance, noted: &[Noted]) -> Reaction {
        Reaction::of(what, BEFORE_RPS, noted)
    }

    #[test]
    fn only_what_concerns_the_change_counts_as_noticed() {
        use RecordKind::{Drift, Failed, Plan};
        let noted = [
            note(-5.0, Drift, Some(24)),
            note(-1.0, Plan, None),
            note(0.1, Plan, None),
            note(0.3, Drift, Some(3)),
            note(0.5, Drift, Some(24)),
            note(0.6, Plan, None),
            note(0.7, Drift, Some(24)),
            note(0.9, Drift, Some(25)),
        ];
        let some = reaction(Disturbance::Capacity, &noted);
        assert_eq!((some.first_s, some.all_s, some.planned_s), (Some(0.5), None, Some(0.6)));
        assert_eq!((some.each_s.len(), some.false_alarms), (2, 2));
        let noted =
            [note(0.1, Failed, Some(24)), note(0.1, Plan, None), note(0.2, Failed, Some(25))];
        let both = reaction(Disturbance::Failure, &noted);
        assert_eq!((both.first_s, both.all_s, both.planned_s), (Some(0.1), Some(0.2), Some(0.1)));
    }

    #[test]
    fn more_traffic_is_answered_by_a_plan_for_it_that_takes_nothing_back() {
        let rollback = note(2.0, RecordKind::Rollback, None);
        let noted = [
            plan_for(-1.0, 110.0),
            plan_for(1.0, 103.0),
            rollback,
            plan_for(2.0, 108.0),
            plan_for(3.0, 108.0),
        ];
        let traffic = reaction(Disturbance::Traffic, &noted);
        assert_eq!((traffic.first_s, traffic.planned_s), (None, Some(3.0)));
        assert_eq!(reaction(Disturbance::Traffic, &noted[..4]).planned_s, None);
    }

    #[test]
    fn a_standard_error_needs_two_values() {
        let error = |values: &[f64]| standard_error(values.iter().copied());
        assert_eq!((error(&[]), error(&[3.0])), (None, None));
        assert_eq!(error(&[1.0, 3.0]), Some(1.0));
    }

    #[test]
    fn never_is_later_than_any_time() {
        let median = |values: &[Option<f64>]| median(values.iter().copied());
        assert_eq!(median(&[Some(3.0), None, Some(1.0)]), (Some(3.0), 2));
        assert_eq!(median(&[None, Some(1.0), None]), (None, 1));
        assert_eq!(median(&[]), (None, 0));
    }
}
