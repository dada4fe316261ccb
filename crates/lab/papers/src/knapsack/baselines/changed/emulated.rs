use std::time::{Duration, Instant};

use plimsoll_lanes::{Family, Finished, Lane, LaneKind, Measured, raise_descriptor_limit};
use plimsoll_testbed::{Change, Mode};

use super::super::emulated::{at_once, start};
use super::super::weights::Known;
use super::super::{Method, Setting};
use super::{FIRST_S, Happening, Length, Through};
use crate::lanes::wait;
use crate::{Context, Failure, Provenance};

type Lanes = Vec<(&'static Method, Lane)>;

struct Bench<'a> {
    context: &'a Context,
    setting: &'a Setting,
    happening: &'a Happening,
    length: Length,
}

/// These methods, side by side as far as the machine's capacity allows, each through the change.
pub fn run(
    context: &Context,
    setting: &Setting,
    happening: &Happening,
    (methods, weights, length): (&[&'static Method], &Known, Length),
    part: (f64, f64),
) -> Result<Vec<Through>, Failure> {
    raise_descriptor_limit();
    let family = Family::start()?;
    let bench = Bench { context, setting, happening, length };
    let groups = at_once(methods, setting.rate_rps());
    let mut rows = Vec::new();
    for (i, group) in groups.iter().enumerate() {
        let at = |i: usize| part.0 + (part.1 - part.0) * i as f64 / groups.len() as f64;
        let mut lanes: Lanes = Vec::new();
        for &(method, kind) in group {
            let name = format!("changed{}", rows.len() + lanes.len());
            let mut lane = start(&family, setting, (method, kind), weights, &name)?;
            lane.open(&family)?;
            lanes.push((method, lane));
        }
        rows.extend(bench.group(lanes, group, (at(i), at(i + 1)))?);
    }
    Ok(rows)
}

impl Bench<'_> {
    fn group(
        &self,
        mut lanes: Lanes,
        group: &[(&'static Method, LaneKind)],
        part: (f64, f64),
    ) -> Result<Vec<Through>, Failure> {
        let steered = group.iter().any(|(_, kind)| kind.is_steered());
        let first_s = if steered { self.length.learn_s } else { self.length.warm_up_s };
        let before_s = first_s + self.length.before_s;
        let after_s = self.length.settle_s + self.length.later_s;
        let middle = part.0 + (part.1 - part.0) * before_s / (before_s + after_s);
        self.wait(&mut lanes, before_s, (part.0, middle))?;
        let at = Instant::now();
        for (_, lane) in &lanes {
            self.change(lane)?;
        }
        self.wait(&mut lanes, after_s, (middle, part.1))?;
        let end = Instant::now();
        lanes.iter().for_each(|(_, lane)| lane.close());
        let finish = |(method, lane): (&'static Method, Lane)| {
            Ok(self.through(method, &lane.finish()?, (at, end)))
        };
        lanes.into_iter().map(finish).collect()
    }

    fn change(&self, lane: &Lane) -> Result<(), Failure> {
        for i in &self.happening.dies {
            lane.change(&format!("s{}", i + 1), Change::mode(Mode::Refuse))?;
        }
        for &(i, part) in &self.happening.slows {
            let speed = part * self.setting.pool[i].speed;
            lane.change(&format!("s{}", i + 1), Change::speed(speed))?;
        }
        lane.set_rate(self.happening.traffic * self.setting.rate_rps())?;
        Ok(())
    }

    fn wait(&self, lanes: &mut Lanes, seconds: f64, part: (f64, f64)) -> Result<(), Failure> {
        let names: Vec<&str> = lanes.iter().map(|(method, _)| method.name).collect();
        let what = format!("emulated, through the change: {}", names.join(", "));
        let alive = || lanes.iter_mut().try_for_each(|(_, lane)| Ok(lane.check()?));
        wait(self.context, Duration::from_secs_f64(seconds), part, &what, alive)
    }

    fn through(
        &self,
        method: &'static Method,
        lane: &Finished,
        (at, end): (Instant, Instant),
    ) -> Through {
        let (at, end) = (at - lane.started, end - lane.started);
        let seconds = Duration::from_secs_f64;
        let over = |from: Duration, to: Duration| {
            Measured::over(&lane.report.records, &[from..to.min(end)])
        };
        let before = over(at.saturating_sub(seconds(self.length.before_s)), at);
        let first = over(at, at + seconds(FIRST_S.min(self.length.settle_s)));
        let later = over(at + seconds(self.length.settle_s), end);
        Through {
            method,
            provenance: Provenance::Emulated,
            before_ms: before.mean_ms,
            first_ms: first.mean_ms,
            later_ms: later.mean_ms,
            lost: over(at, end).errors,
            overload: None,
        }
    }
}
