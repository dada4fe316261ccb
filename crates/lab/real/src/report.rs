//! What was measured, as numbers.

use std::ops::Range;
use std::time::Duration;

use plimsoll_control::RecordKind;
use plimsoll_lanes::Measured;
use plimsoll_testbed::load::Record;
use serde::Serialize;

use crate::LaneKind;
use crate::args::Args;
use crate::event::{Event, What};
use crate::noticed::{Noticed, noticed};
use crate::ratio::{Pair, Ratio, pairs};
use crate::run::Ran;
use crate::{Pool, make::Make};

/// A machine that is busier has too little left for whoever wakes up.
const MOST_BUSY: f64 = 0.75;
/// CPU that a hypervisor took.
const MOST_STEAL: f64 = 0.02;
/// Arrivals that were begun later than this were not begun by a clock.
const MOST_LATE_US: u64 = 10_000;
/// Stretches after an event, seconds from its end.
const AFTER_S: [(u64, u64); 3] = [(0, 30), (30, 60), (60, 120)];
/// What a change of load is given before it is judged.
const SETTLED: Duration = Duration::from_secs(60);

/// The whole result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The servers with their quotas and true capacities.
    pub servers: Vec<Server>,
    /// What they are.
    pub make: &'static str,
    /// One per load and lane.
    pub cells: Vec<Cell>,
    /// One per lane, over all loads.
    pub lanes: Vec<Summary>,
    /// What each event did; one per event, stretch, load and lane.
    pub events: Vec<During>,
    /// What Plimsoll did about each event; one per event, load and lane that it steers.
    pub noticed: Vec<Noticed>,
    /// What makes these numbers doubtful.
    pub warnings: Vec<String>,
}

/// One server.
#[derive(Debug, Serialize)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Its quota, part of a core.
    pub cores: f64,
    /// What it serves while a request always waits.
    pub capacity_rps: f64,
}

/// One lane under one load, all rounds together.
#[derive(Debug, Serialize)]
pub struct Cell {
    /// Part of the true capacity.
    pub load: f64,
    /// The balancer.
    pub lane: &'static str,
    /// After learning.
    pub steady: Measured,
    /// Mean over that of the oracle of the same method, in lanes that ran at the same time.
    pub ratio: Option<Ratio>,
    /// While it learned.
    pub learning: Measured,
    /// Mean while it learned over that of equal weights under the same method, then.
    pub learning_ratio: Option<Ratio>,
    /// How often a backend that worked was declared failed, after learning; steered lanes only.
    pub living_failed: Option<usize>,
    /// The same while it learned.
    pub living_failed_learning: Option<usize>,
    /// Busy part of the machine.
    pub busy: Option<f64>,
    /// Part that the hypervisor gave to others.
    pub steal: Option<f64>,
}

/// One lane over all loads.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// The balancer.
    pub lane: &'static str,
    /// Geometric mean of its ratios.
    pub ratio: Option<Ratio>,
    /// 99th percentile of all its requests after learning.
    pub p99_ms: Option<f64>,
    /// That over its oracle's.
    pub p99_ratio: Option<f64>,
    /// Errors after learning.
    pub errors: u64,
    /// Living backends declared failed, learning included.
    pub living_failed: Option<usize>,
}

/// One lane during an event, or after it.
#[derive(Debug, Serialize)]
pub struct During {
    /// The event, as it was asked for.
    pub event: String,
    /// `during`, or seconds after its end.
    pub when: String,
    /// Part of the true capacity.
    pub load: f64,
    /// The balancer.
    pub lane: &'static str,
    /// What clients saw.
    pub measured: Measured,
    /// Mean over the oracle's in the same stretches.
    pub ratio: Option<Ratio>,
}

impl Report {
    /// From everything that ran.
    pub fn new(args: &Args, pool: &Pool, capacities_rps: &[f64], all: &[Ran]) -> Self {
        let server = |(size, capacity): (&crate::Size, &f64)| Server {
            name: size.name.clone(),
            cores: size.cores,
            capacity_rps: *capacity,
        };
        let cells: Vec<Cell> =
            each(args).map(|(load, kind)| cell(args, pool, all, load, kind)).collect();
        let events = each(args).flat_map(|(load, kind)| events(args, all, load, kind)).collect();
        let noticed = |(load, kind)| {
            let runs: Vec<&Ran> = of(all, load, kind).collect();
            let one = |event: &Event| noticed(event, args, pool, &runs, kind, load);
            args.events.iter().filter_map(one).collect::<Vec<_>>()
        };
        Report {
            servers: pool.sizes.iter().zip(capacities_rps).map(server).collect(),
            make: match args.make {
                Make::Own => args.model.name(),
                other => other.name(),
            },
            lanes: args.lanes.iter().map(|kind| summary(args, all, &cells, *kind)).collect(),
            warnings: warnings(args, all),
            cells,
            events,
            noticed: each(args).flat_map(noticed).collect(),
        }
    }
}

fn each(args: &Args) -> impl Iterator<Item = (f64, LaneKind)> {
    args.loads.iter().flat_map(|&load| args.lanes.iter().map(move |&kind| (load, kind)))
}

fn of(all: &[Ran], load: f64, kind: LaneKind) -> impl Iterator<Item = &Ran> {
    all.iter().filter(move |ran| ran.trial.load == load && ran.kind == kind)
}

/// The lane of this kind that ran at the same time; else one with the same arrivals.
fn partner<'a>(all: &'a [Ran], own: &Ran, kind: LaneKind) -> Option<&'a Ran> {
    let mut same = all.iter().filter(|ran| ran.trial == own.trial && ran.kind == kind);
    let first = same.clone().next();
    same.find(|ran| ran.group == own.group).or(first)
}

/// Several lanes as one: the n-th lane's stretches lie n spans later.
fn together(lanes: &[&Ran], stretches: &[Range<Duration>], span: Duration) -> Measured {
    // Answers may be waited for after the span; starts lie within it.
    let mut records: Vec<Record> = Vec::new();
    let mut ranges = Vec::new();
    for (ran, n) in lanes.iter().zip(0_u32..) {
        let shift = span * n;
        let moved = |r: &Record| Record { start_ns: r.start_ns + shift.as_nanos() as u64, ..*r };
        let within_span = |r: &&Record| u128::from(r.start_ns) < span.as_nanos();
        records.extend(ran.report.records.iter().filter(within_span).map(moved));
        ranges.extend(stretches.iter().map(|s| s.start + shift..s.end + shift));
    }
    Measured::over(&records, &ranges)
}

fn ratio(
    all: &[Ran],
    runs: &[&Ran],
    other: LaneKind,
    stretches: &[Range<Duration>],
) -> Option<Ratio> {
    let mut found: Vec<Pair> = Vec::new();
    for ran in runs {
        let partner = partner(all, ran, other).filter(|partner| partner.kind != ran.kind)?;
        for stretch in stretches {
            found.extend(pairs(&ran.report.records, &partner.report.records, stretch));
        }
    }
    Ratio::of(&found)
}

fn cell(args: &Args, pool: &Pool, all: &[Ran], load: f64, kind: LaneKind) -> Cell {
    let runs: Vec<&Ran> = of(all, load, kind).collect();
    let (learning, steady) = (Duration::ZERO..args.learn, args.learn..args.span());
    let over =
        |stretch: &Range<Duration>| together(&runs, std::slice::from_ref(stretch), args.span());
    let failed = |stretch: &Range<Duration>| {
        let count = |ran: &&Ran| living_failed(ran, &args.events, pool, args.span(), stretch);
        kind.is_steered().then(|| runs.iter().map(count).sum())
    };
    let mean = |share: fn(&Ran) -> Option<f64>| {
        let shares: Option<Vec<f64>> = runs.iter().map(|ran| share(ran)).collect();
        let shares = shares.filter(|shares| !shares.is_empty())?;
        Some(shares.iter().sum::<f64>() / shares.len() as f64)
    };
    let to =
        |other, stretch: &Range<Duration>| ratio(all, &runs, other, std::slice::from_ref(stretch));
    Cell {
        load,
        lane: kind.name(),
        steady: over(&steady),
        ratio: to(kind.oracle(), &steady),
        learning: over(&learning),
        learning_ratio: to(kind.equal(), &learning),
        living_failed: failed(&steady),
        living_failed_learning: failed(&learning),
        busy: mean(|ran| ran.busy),
        steal: mean(|ran| ran.steal),
    }
}

/// How often a backend was declared failed that did work at the time.
fn living_failed(
    ran: &Ran,
    events: &[Event],
    pool: &Pool,
    span: Duration,
    stretch: &Range<Duration>,
) -> usize {
    let is_down = |at: &Duration, backend: &str| {
        events.iter().filter(|event| event.takes_down()).any(|event| {
            let befalls =
                event.which.positions(pool).iter().any(|&i| pool.sizes[i].name == backend);
            befalls && event.stretches(span).iter().any(|stretch| stretch.contains(at))
        })
    };
    let failures = ran
        .decisions
        .iter()
        .filter(|(_, d)| matches!(d.kind, RecordKind::Failed | RecordKind::Ejected));
    failures
        .filter(|(at, _)| stretch.contains(at))
        .filter(|(at, d)| !is_down(at, d.backend.as_deref().unwrap_or_default()))
        .count()
}

fn summary(args: &Args, all: &[Ran], cells: &[Cell], kind: LaneKind) -> Summary {
    let own: Vec<&Cell> = cells.iter().filter(|cell| cell.lane == kind.name()).collect();
    let ratios: Option<Vec<Ratio>> = own.iter().map(|cell| cell.ratio).collect();
    let p99 = |kind: LaneKind| {
        let runs: Vec<&Ran> = all.iter().filter(|ran| ran.kind == kind).collect();
        let steady = args.learn..args.span();
        together(&runs, &[steady], args.span()).p99_ms
    };
    let (p99_ms, oracle_ms) = (p99(kind), p99(kind.oracle()));
    let living = |cell: &&Cell| Some(cell.living_failed? + cell.living_failed_learning?);
    Summary {
        lane: kind.name(),
        ratio: ratios.and_then(|ratios| Ratio::geometric_mean(&ratios)),
        p99_ms,
        p99_ratio: p99_ms.zip(oracle_ms).filter(|_| !kind.is_oracle()).map(|(own, o)| own / o),
        errors: own.iter().map(|cell| cell.steady.errors).sum(),
        living_failed: own.iter().map(living).sum(),
    }
}

fn events(args: &Args, all: &[Ran], load: f64, kind: LaneKind) -> Vec<During> {
    let runs: Vec<&Ran> = of(all, load, kind).collect();
    let mut found = Vec::new();
    for event in &args.events {
        for (when, stretches) in windows(event, &args.events, args.span()) {
            found.push(During {
                event: event.text.clone(),
                when,
                load,
                lane: kind.name(),
                measured: together(&runs, &stretches, args.span()),
                ratio: ratio(all, &runs, kind.oracle(), &stretches),
            });
        }
    }
    found
}

/// The stretches that an event is judged by: while it is on and after it, or, for a new load, before and
/// after it has settled.
fn windows(event: &Event, events: &[Event], end: Duration) -> Vec<(String, Vec<Range<Duration>>)> {
    let seconds = Duration::from_secs;
    let on = event.stretches(end);
    if let What::Load(_) = event.what {
        let next = events.iter().filter(|e| matches!(e.what, What::Load(_)) && e.at > event.at);
        let until = next.map(|e| e.at).min().unwrap_or(end);
        let settled = (event.at + SETTLED).min(until);
        let parts = [("first 60 s", event.at..settled), ("from 60 s", settled..until)];
        let whole = parts.into_iter().filter(|(_, range)| !range.is_empty());
        return whole.map(|(when, range)| (when.to_owned(), vec![range])).collect();
    }
    let mut found = vec![("during".to_owned(), on.clone())];
    for (from, to) in AFTER_S {
        let after = |(i, stretch): (usize, &Range<Duration>)| {
            let bound = on.get(i + 1).map_or(end, |next| next.start);
            (stretch.end + seconds(from)).min(bound)..(stretch.end + seconds(to)).min(bound)
        };
        let stretches: Vec<_> =
            on.iter().enumerate().map(after).filter(|range| !range.is_empty()).collect();
        if !stretches.is_empty() {
            found.push((format!("{from}–{to} s after"), stretches));
        }
    }
    found
}

/// A warning where true capacities are too low because the machine had no more to give.
pub fn busy_at_calibration(busy: Option<f64>) -> Option<String> {
    let busy = busy.filter(|busy| *busy > MOST_BUSY)?;
    Some(format!(
        "the machine was {:.0} % busy while true capacities were measured: they may be too low, and with them \
         all loads and the oracle's weights",
        busy * 100.0
    ))
}

fn warnings(args: &Args, all: &[Ran]) -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found = args.doubts(cores);
    let greatest =
        |share: fn(&Ran) -> Option<f64>| all.iter().filter_map(share).fold(0.0, f64::max);
    let busy = greatest(|ran| ran.busy);
    if busy > MOST_BUSY {
        found.push(format!(
            "the machine was {:.0} % busy: its own lack of CPU is part of these numbers",
            busy * 100.0
        ));
    }
    let steal = greatest(|ran| ran.steal);
    if steal > MOST_STEAL {
        found.push(format!("the hypervisor took {:.1} % of the CPU", steal * 100.0));
    }
    let late = all.iter().map(|ran| ran.report.start_lateness_p99_us).max().unwrap_or_default();
    if late > MOST_LATE_US {
        found.push(format!(
            "one request in a hundred was sent more than {} ms late (which counts as waiting)",
            late / 1000
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(from: u64, to: u64) -> Range<Duration> {
        Duration::from_secs(from)..Duration::from_secs(to)
    }

    #[test]
    fn an_event_is_judged_while_it_is_on_and_after_it() {
        let event: Event = "neighbour@100s+75s".parse().unwrap();
        let found = windows(&event, std::slice::from_ref(&event), Duration::from_secs(240));
        let ranges: Vec<_> = found.iter().map(|(_, ranges)| ranges[0].clone()).collect();
        assert_eq!(
            ranges,
            [seconds(100, 175), seconds(175, 205), seconds(205, 235), seconds(235, 240)]
        );
        // What comes again is judged up to the next time.
        let event: Event = "pause@10s+1s/20s".parse().unwrap();
        let found = windows(&event, std::slice::from_ref(&event), Duration::from_secs(60));
        assert_eq!(found[0].1, [seconds(10, 11), seconds(30, 31), seconds(50, 51)]);
        assert_eq!(found[1].1, [seconds(11, 30), seconds(31, 50), seconds(51, 60)]);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_load_is_judged_up_to_the_next() {
        let events = ["load@10s:0.6", "load@100s:0.85"].map(|text| text.parse::<Event>().unwrap());
        let found = windows(&events[0], &events, Duration::from_secs(120));
        assert_eq!((&found[0].1[0], &found[1].1[0]), (&seconds(10, 70), &seconds(70, 100)));
        assert_eq!(windows(&events[1], &events, Duration::from_secs(120)).len(), 1);
    }
}
