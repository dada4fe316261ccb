//! What Plimsoll did about an event, and how soon.

use std::ops::Range;
use std::time::Duration;

use plimsoll_control::RecordKind;
use serde::Serialize;

use crate::args::Args;
use crate::event::{Event, What};
use crate::run::Ran;
use crate::{LaneKind, Pool};

/// What is decided later than this after the end of an event is not about it.
const LATEST: Duration = Duration::from_secs(10);

/// One event in a lane that Plimsoll steers. Times are the event's own, which begins up to 20 ms later than
/// asked for.
#[derive(Debug, Serialize)]
pub struct Noticed {
    /// The event, as it was asked for.
    pub event: String,
    /// Part of the true capacity.
    pub load: f64,
    /// The balancer.
    pub lane: &'static str,
    /// How often it came, all rounds together.
    pub times: usize,
    /// A server that it befalls was set aside, from the event's beginning.
    pub set_aside: Reaction,
    /// It was declared failed.
    pub failed: Reaction,
    /// It was said to work at another rate than before.
    pub change: Reaction,
    /// What was set aside or failed was restored, or returned, from the event's end.
    pub back: Reaction,
}

/// How often something was done about an event, and how soon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Reaction {
    /// How many times of all.
    pub count: usize,
    /// The latest of them, seconds.
    pub latest_s: Option<f64>,
}

impl Reaction {
    fn add(&mut self, after: Option<Duration>) {
        let Some(after) = after.map(|after| after.as_secs_f64()) else { return };
        self.count += 1;
        self.latest_s = Some(self.latest_s.map_or(after, |latest| latest.max(after)));
    }
}

/// One event in all runs of one lane under one load; none where no balancer decides.
pub fn noticed(
    event: &Event,
    args: &Args,
    pool: &Pool,
    runs: &[&Ran],
    kind: LaneKind,
    load: f64,
) -> Option<Noticed> {
    if !kind.is_steered() {
        return None;
    }
    let none = Reaction::default();
    let (text, lane) = (event.text.clone(), kind.name());
    let (set_aside, failed, change, back) = (none, none, none, none);
    let mut found = Noticed { event: text, load, lane, times: 0, set_aside, failed, change, back };
    for ran in runs {
        for (during, after) in windows(event, args.span()) {
            let first = |kinds: &[RecordKind], within: &Range<Duration>| {
                first(ran, event, pool, kinds, within)
            };
            let (set_aside, failed) = (
                first(&[RecordKind::SetAside], &during),
                first(&[RecordKind::Failed, RecordKind::Ejected], &during),
            );
            found.times += 1;
            found.set_aside.add(set_aside);
            found.failed.add(failed);
            found.change.add(first(&[RecordKind::Drift], &during));
            if set_aside.or(failed).is_some() {
                found.back.add(first(&[RecordKind::Restored, RecordKind::Returned], &after));
            }
        }
    }
    Some(found)
}

/// For each time the event comes: in which stretch something is done about it, and about its end.
fn windows(event: &Event, end: Duration) -> Vec<(Range<Duration>, Range<Duration>)> {
    let on = event.stretches(end);
    let window = |(i, stretch): (usize, &Range<Duration>)| {
        let next = on.get(i + 1).map_or(end, |next| next.start);
        (stretch.start..(stretch.end + LATEST).min(next), stretch.end..next)
    };
    on.iter().enumerate().map(window).collect()
}

/// How long after the beginning of this stretch the first such decision about a server came that the event
/// befalls; about the whole pool, for an event that befalls all.
fn first(
    ran: &Ran,
    event: &Event,
    pool: &Pool,
    kinds: &[RecordKind],
    within: &Range<Duration>,
) -> Option<Duration> {
    let befallen = event.which.positions(pool);
    let is_about = |backend: Option<&str>| match backend {
        Some(name) => befallen.iter().any(|&i| pool.sizes[i].name == name),
        None => matches!(event.what, What::Pause | What::Load(_)),
    };
    let mut about = ran
        .decisions
        .iter()
        .filter(|(_, d)| kinds.contains(&d.kind) && is_about(d.backend.as_deref()));
    about.find(|(at, _)| within.contains(at)).map(|(at, _)| *at - within.start)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use plimsoll_lanes::Event as Decision;
    use plimsoll_testbed::load::LoadReport;

    use super::*;
    use crate::run::Trial;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn ran(decisions: &[(f64, RecordKind, Option<&str>)]) -> Ran {
        let decision = |(seq, (at, kind, backend)): (u64, &(f64, RecordKind, Option<&str>))| {
            let backend = backend.map(str::to_owned);
            let reason = String::new();
            let decision = Decision { seq, unix_ms: 0, kind: *kind, backend, reason };
            (Duration::from_secs_f64(*at), decision)
        };
        Ran {
            kind: LaneKind::PlimsollRoundrobin,
            trial: Trial { load: 0.7, round: 0, seed: 1 },
            group: 0,
            report: LoadReport::default(),
            decisions: (1..).zip(decisions).map(decision).collect(),
            busy: None,
            steal: None,
        }
    }

    #[test]
    fn reactions_are_timed_from_the_event_and_about_its_server_alone() {
        use RecordKind::*;
        let args =
            Line::parse_from(["real", "--event", "stop@100s+20s/100s:s3", "--measure", "320s"])
                .args;
        let (pool, event) = (args.pool(), &args.events[0]);
        let ran = ran(&[
            (50.0, Failed, Some("s3")),
            (101.0, SetAside, Some("s3")),
            (102.0, SetAside, Some("s3")),
            (103.0, Failed, Some("s2")),
            (104.0, Drift, None),
            (109.5, Failed, Some("s3")),
            (120.5, Returned, Some("s3")),
            (202.5, SetAside, Some("s3")),
            (220.1, Restored, Some("s3")),
            (301.5, SetAside, Some("s3")),
            (331.0, Drift, Some("s3")),
            (421.0, Restored, Some("s3")),
        ]);
        let runs = [&ran];
        let found = noticed(event, &args, &pool, &runs, ran.kind, 0.7).unwrap();
        let reaction = |r: Reaction| (r.count, r.latest_s.map(|s| (s * 1e3).round() / 1e3));
        assert_eq!(found.times, 4, "at 100, 200, 300 and 400 s");
        assert_eq!(reaction(found.set_aside), (3, Some(2.5)));
        assert_eq!(reaction(found.failed), (1, Some(9.5)));
        assert_eq!(reaction(found.change), (0, None));
        assert_eq!(reaction(found.back), (2, Some(0.5)));
        assert!(noticed(event, &args, &pool, &runs, LaneKind::RoundrobinOracle, 0.7).is_none());
    }
}
