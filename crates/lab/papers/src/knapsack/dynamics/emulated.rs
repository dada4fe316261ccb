//! The same with real processes: two HAProxy in front of one emulated pool each, the one steered by a
//! daemon, the other left with the weights that the daemon had found; then backends change.

use std::ops::Range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plimsoll_control::{RecordKind, ServiceView};
use plimsoll_lanes::{Distribution, Event, Family, Finished, Lane, LaneKind, Measured, Pool};
use plimsoll_sim::Method;
use plimsoll_testbed::{Change, Mode};

use super::episode::busiest;
use super::seen::{Noted, Reaction, Seen};
use super::{Disturbance, LOAD, Steering, table3};
use crate::{Context, Failure, Provenance, lanes};

/// Mean service time: slow enough that two cores carry two lanes of the whole pool.
const SERVICE: Duration = Duration::from_millis(80);
/// How often lanes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// What counts as the first seconds after a change.
const FIRST: Duration = Duration::from_secs(10);

/// How long each part takes.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// From nothing known to weights.
    pub learning: Duration,
    /// Both lanes together, before something happens.
    pub before: Duration,
    /// From the change until all has settled.
    pub settling: Duration,
    /// What is measured from then on.
    pub measured: Duration,
    /// From the return of what was changed until `before`.
    pub healing: Duration,
    /// The part of the pool's capacity that clients ask for.
    pub load: f64,
}

impl Length {
    /// All of it, for so many changes.
    fn whole(&self, changes: usize) -> Duration {
        let each = self.before + self.settling + self.measured;
        self.learning + (each + self.healing) * changes as u32 - self.healing
    }
}

/// One change while both lanes ran, on the clock of this process.
struct Happened {
    what: Disturbance,
    at: Instant,
    unix_ms: f64,
    end: Instant,
    seen: Looks,
}

/// What was seen of the steered lane, over time.
#[derive(Default)]
struct Looks {
    /// What HAProxy held.
    held: Vec<(Instant, Vec<u32>)>,
    /// The daemon's last plan: its epoch, and the traffic that it was made for, requests per second.
    plans: Vec<(Instant, u64, f64)>,
}

impl Looks {
    fn note(&mut self, lane: &Lane) {
        let view = lane.view();
        // What it shows was so before.
        let now = Instant::now();
        self.held.push((now, lane.held(view.as_ref())));
        self.plans.extend(view.map(|ServiceView { epoch, plan, .. }| (now, epoch, plan.rate_rps)));
    }

    /// What the plan of this moment was made for: the next that was seen to be new.
    fn planned_rps(&self, planned: Instant) -> Option<f64> {
        let mut new = self.plans.windows(2).filter(|two| two[0].1 != two[1].1).map(|two| two[1]);
        new.find(|(seen, ..)| *seen >= planned).map(|(.., rps)| rps)
    }
}

struct Bench<'a> {
    context: &'a Context,
    length: Length,
    /// Before anything happens.
    rate_rps: f64,
    began: Instant,
    whole: Duration,
    /// The part of the experiment's progress that is this one's.
    progress: Range<f64>,
}

/// Runs these changes one after the other.
///
/// # Errors
/// When lanes do not run, or when it is interrupted.
pub fn run(
    context: &Context,
    whats: &[Disturbance],
    length: Length,
    progress: Range<f64>,
) -> Result<Vec<Seen>, Failure> {
    let pool = Pool::new(&table3(), SERVICE, Distribution::Exponential, length.load, context.seed);
    let family = Family::start()?;
    let whole = length.whole(whats.len());
    let rate_rps = pool.rate_rps;
    let bench = Bench { context, length, rate_rps, began: Instant::now(), whole, progress };
    let mut steered = Lane::start(&family, &pool, LaneKind::PlimsollRoundrobin, "steered")?;
    steered.open(&family)?;
    bench.wait(length.learning, "learning", &mut [&mut steered], &mut Looks::default())?;
    let weights = steered.held(steered.view().as_ref());
    let kind = LaneKind::Roundrobin;
    let mut frozen = Lane::start_with(&family, &pool, kind, weights.clone(), "frozen")?;
    frozen.open(&family)?;
    let mut changes = Vec::new();
    for (i, &what) in whats.iter().enumerate() {
        let mut lanes = [&mut steered, &mut frozen];
        if i > 0 {
            bench.wait(length.healing, "all as before", &mut lanes, &mut Looks::default())?;
        }
        changes.push(bench.change(what, &mut lanes)?);
    }
    let events = steered.events();
    steered.close();
    frozen.close();
    let steered = (Steering::Plimsoll, steered.finish()?);
    let frozen = (Steering::Frozen, frozen.finish()?);
    let mut seen = Vec::new();
    for change in &changes {
        for (steering, lane) in [&steered, &frozen] {
            let mut held = change.seen.held.clone();
            if *steering == Steering::Frozen {
                held.iter_mut().for_each(|(_, held)| held.clone_from(&weights));
            }
            seen.push(report(&bench, change, (*steering, lane), &held, &events));
        }
    }
    Ok(seen)
}

impl Bench<'_> {
    fn change(&self, what: Disturbance, lanes: &mut [&mut Lane; 2]) -> Result<Happened, Failure> {
        let mut seen = Looks::default();
        self.wait(self.length.before, "before the change", lanes, &mut seen)?;
        let (at, unix) = (Instant::now(), SystemTime::now());
        let unix_ms = unix.duration_since(UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64() * 1e3);
        self.set(what, lanes, true)?;
        let after = self.length.settling + self.length.measured;
        self.wait(after, what.name(), lanes, &mut seen)?;
        let end = Instant::now();
        self.set(what, lanes, false)?;
        Ok(Happened { what, at, unix_ms, end, seen })
    }

    /// Waits, and writes down what is seen of the first lane.
    fn wait(
        &self,
        time: Duration,
        what: &str,
        lanes: &mut [&mut Lane],
        seen: &mut Looks,
    ) -> Result<(), Failure> {
        let Range { start, end } = self.progress;
        let done = |now: Duration| {
            start + (end - start) * (now.as_secs_f64() / self.whole.as_secs_f64()).min(1.0)
        };
        let part = (done(self.began.elapsed()), done(self.began.elapsed() + time));
        let mut next = Instant::now();
        lanes::wait(self.context, time, part, what, || {
            if Instant::now() < next {
                return Ok(());
            }
            next += LOOK_EVERY;
            lanes.iter_mut().try_for_each(|lane| lane.check())?;
            if let Some(lane) = lanes.first() {
                seen.note(lane);
            }
            Ok(())
        })
    }

    /// Makes the change in every lane, or takes it back.
    fn set(&self, what: Disturbance, lanes: &[&mut Lane; 2], make: bool) -> Result<(), Failure> {
        for i in what.concerned() {
            let cores = table3()[i].cores;
            let change = match (what, make) {
                (Disturbance::Failure, true) => Change::mode(Mode::Refuse),
                (Disturbance::Failure, false) => Change::mode(Mode::Normal),
                (_, true) => Change { cores: Some(cores - 1), ..Change::default() },
                (_, false) => Change { cores: Some(cores), ..Change::default() },
            };
            for lane in lanes {
                lane.change(&format!("s{}", i + 1), change)?;
            }
        }
        if what == Disturbance::Traffic {
            let rate_rps = if make { what.traffic() * self.rate_rps } else { self.rate_rps };
            lanes.iter().try_for_each(|lane| lane.set_rate(rate_rps))?;
        }
        Ok(())
    }
}

fn report(
    bench: &Bench<'_>,
    change: &Happened,
    (steering, lane): (Steering, &Finished),
    held: &[(Instant, Vec<u32>)],
    events: &[Event],
) -> Seen {
    let length = &bench.length;
    let at = change.at - lane.started;
    let settled = at + length.settling;
    let end = change.end - lane.started;
    let over = |from: Duration, to: Duration| Measured::over(&lane.report.records, &[from..to]);
    // A lane that has just begun is still filling.
    let before = over(at.saturating_sub(length.before / 2), at);
    let first = over(at, (at + FIRST).min(settled));
    let (later, all) = (over(settled, end), over(at, end));
    let shares = |from: Instant, to: Instant| mean_shares(held, from, to);
    let after = shares(change.at + length.settling, change.end);
    let reaction = match steering {
        Steering::Frozen => Reaction::default(),
        _ => Reaction::of(change.what, bench.rate_rps, &noted(bench, change, events)),
    };
    let series =
        lane.report.series.iter().filter_map(|slice| {
            Some((slice.second as f64 + 0.5 - at.as_secs_f64(), slice.mean_ms?))
        });
    Seen {
        provenance: Provenance::Emulated,
        what: change.what,
        method: Method::RoundRobin,
        steering,
        seed: bench.context.seed,
        held: held.first().map(|(_, held)| held.clone()).unwrap_or_default(),
        before: shares(change.at - length.before, change.at),
        busiest: busiest(change.what, &after) * length.load / LOAD,
        after,
        reaction,
        before_ms: before.mean_ms.unwrap_or(f64::NAN),
        first_ms: first.mean_ms.unwrap_or(f64::NAN),
        later_ms: later.mean_ms.unwrap_or(f64::NAN),
        lost: all.errors,
        series: series
            .filter(|(at, _)| *at < (end - settled + length.settling).as_secs_f64())
            .collect(),
    }
}

/// The daemon's decisions around the change. Those of learning and of other changes are not among them.
fn noted(bench: &Bench<'_>, change: &Happened, events: &[Event]) -> Vec<Noted> {
    let end_s = (change.end - change.at).as_secs_f64();
    let near = -bench.length.before.as_secs_f64()..end_s;
    let note = |event: &Event| {
        let at_s = (event.unix_ms as f64 - change.unix_ms) / 1e3;
        let number = event.backend.as_deref().and_then(|name| name.strip_prefix('s'));
        // Of what came before the change nobody asks.
        let after = Duration::try_from_secs_f64(at_s).ok();
        let planned = after.filter(|_| event.kind == RecordKind::Plan);
        Noted {
            at_s,
            kind: event.kind,
            place: number.and_then(|n| n.parse::<usize>().ok()).map(|n| n - 1),
            planned_rps: planned.and_then(|after| change.seen.planned_rps(change.at + after)),
        }
    };
    events.iter().map(note).filter(|note| near.contains(&note.at_s)).collect()
}

/// Each backend's part of the weights, the mean over a stretch of time.
fn mean_shares(held: &[(Instant, Vec<u32>)], from: Instant, to: Instant) -> Vec<f64> {
    let within: Vec<&Vec<u32>> =
        held.iter().filter(|(at, _)| (from..=to).contains(at)).map(|(_, held)| held).collect();
    let mut shares = vec![0.0; table3().len()];
    for weights in &within {
        let sum: u32 = weights.iter().sum();
        for (share, &weight) in shares.iter_mut().zip(weights.iter()) {
            *share += f64::from(weight) / f64::from(sum.max(1)) / within.len() as f64;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_for_what_the_next_new_epoch_shows() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let plans =
            vec![(at(0), 6, 90.0), (at(500), 6, 91.0), (at(1000), 7, 100.0), (at(1500), 7, 101.0)];
        let seen = Looks { plans, ..Looks::default() };
        let planned = [300, 800, 1100].map(|ms| seen.planned_rps(at(ms)));
        assert_eq!(planned, [Some(100.0), Some(100.0), None], "what came last was not seen");
    }

    #[test]
    fn shares_are_the_mean_over_the_stretch() {
        let begin = Instant::now();
        let at = |second| begin + Duration::from_secs(second);
        let weights = |first| {
            let mut weights = vec![0; 30];
            (weights[0], weights[1]) = (first, 4 - first);
            weights
        };
        let held = [(at(0), weights(4)), (at(2), weights(1)), (at(3), weights(3))];
        let shares = mean_shares(&held, at(1), at(3));
        assert_eq!((shares[0], shares[1]), (0.5, 0.5));
    }
}
