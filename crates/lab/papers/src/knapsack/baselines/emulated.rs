use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plimsoll_lanes::{
    Distribution, Family, Finished, Lane, LaneKind, Measured, Pool, raise_descriptor_limit,
};
use plimsoll_testbed::BackendStats;
use plimsoll_testbed::load::{LoadReport, Summary};

use super::{Clients, KindRan, Method, Ran, Setting, Weights};
use crate::{Context, Failure, Provenance};

/// How often the lane is looked at while it is waited for.
const TICK: Duration = Duration::from_millis(100);

/// How long each lane runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// From nothing, where Plimsoll's daemon steers.
    pub learn: Duration,
    /// Load that is not measured, where nobody learns.
    pub warm_up: Duration,
    /// Load that is.
    pub measure: Duration,
}

impl Turn {
    /// What the figures take.
    pub fn of(context: &Context) -> Self {
        let ms = Duration::from_millis;
        context.pick(
            Turn { learn: ms(2_000), warm_up: ms(300), measure: ms(700) },
            Turn { learn: ms(40_000), warm_up: ms(2_000), measure: ms(9_000) },
        )
    }

    fn before(&self, kind: LaneKind) -> Duration {
        if kind.is_steered() { self.learn } else { self.warm_up }
    }
}

/// What a lane had done at some moment.
struct Moment {
    at: Instant,
    clients: LoadReport,
    backends: Vec<BackendStats>,
}

/// Runs these methods one after the other, each behind a HAProxy of its own; those without one are left
/// out. Weights that had to be learned are the simulation's, but for Plimsoll's, whose daemon learns.
pub fn emulated(
    context: &Context,
    setting: &Setting,
    methods: &[&'static Method],
    weights: &BTreeMap<Weights, Vec<u32>>,
    clients: Clients,
    part: (f64, f64),
) -> Result<Vec<Ran>, Failure> {
    raise_descriptor_limit();
    let turn = Turn::of(context);
    let service = Duration::from_nanos((setting.service_us * 1e3) as u64);
    let distribution = Distribution::Exponential;
    let pool = Pool::new(&setting.pool, service, distribution, setting.load, setting.seed);
    let lanes: Vec<(&'static Method, LaneKind)> =
        methods.iter().filter_map(|&method| Some((method, method.lane?))).collect();
    let whole: f64 =
        lanes.iter().map(|(_, k)| (turn.before(*k) + turn.measure).as_secs_f64()).sum();
    let family = Family::start(&context.plimsoll)?;
    let mut done = part.0;
    let mut rows = Vec::new();
    for (method, kind) in lanes {
        let steps = (turn.before(kind) + turn.measure).as_secs_f64() / whole;
        let to = done + (part.1 - part.0) * steps;
        let start = if kind.is_steered() { Weights::Equal } else { method.weights };
        let name = format!("lane{}", rows.len());
        let lane = Lane::start_with(&family, &pool, kind, weights[&start].clone(), &name)?;
        let run = Run { context, setting, method, clients, turn, part: (done, to) };
        rows.push(run.measure(lane, &family, turn.before(kind))?);
        done = to;
    }
    Ok(rows)
}

struct Run<'a> {
    context: &'a Context,
    setting: &'a Setting,
    method: &'static Method,
    clients: Clients,
    turn: Turn,
    part: (f64, f64),
}

impl Run<'_> {
    fn measure(&self, mut lane: Lane, family: &Family, before: Duration) -> Result<Ran, Failure> {
        match self.clients {
            Clients::Open => lane.open(family)?,
            Clients::Closed(clients) => lane.open_closed(clients as usize)?,
        }
        let begin = Instant::now();
        let end = begin + before + self.turn.measure;
        self.wait(&mut lane, begin, begin + before, end)?;
        let first = moment(&lane)?;
        self.wait(&mut lane, begin, end, end)?;
        let last = moment(&lane)?;
        self.ran(&first, &last, lane.finish()?)
    }

    fn wait(
        &self,
        lane: &mut Lane,
        begin: Instant,
        until: Instant,
        end: Instant,
    ) -> Result<(), Failure> {
        let what = format!("emulated: {}, {} clients", self.method.name, self.clients.name());
        while Instant::now() < until {
            let passed = begin.elapsed().as_secs_f64() / (end - begin).as_secs_f64();
            self.context.progress(self.part.0 + (self.part.1 - self.part.0) * passed, &what)?;
            lane.check()?;
            std::thread::sleep(TICK.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    fn ran(&self, first: &Moment, last: &Moment, finished: Finished) -> Result<Ran, Failure> {
        let stretch = first.at - finished.started..last.at - finished.started;
        let seconds = (stretch.end - stretch.start).as_secs_f64();
        let measured = Measured::over(&finished.report.records, &[stretch]);
        let (Some(mean_ms), Some(p99_ms)) = (measured.mean_ms, measured.p99_ms) else {
            return Err(Failure::Other(format!("{}: nobody was served", self.method.name)));
        };
        let all = served(&first.clients.total, &last.clients.total).0;
        let of = |kind: &super::Kind| {
            let (mut requests, mut sum_ms, mut busy) = (0.0, 0.0, 0.0);
            for &i in &kind.backends {
                let name = &last.backends[i].name;
                let none = Summary::default();
                let by = |m: &Moment| m.clients.by_backend.get(name).unwrap_or(&none).clone();
                let (count, sum) = served(&by(first), &by(last));
                requests += count;
                sum_ms += sum;
                let worked =
                    last.backends[i].busy_core_seconds - first.backends[i].busy_core_seconds;
                busy += worked / seconds / f64::from(last.backends[i].cores);
            }
            KindRan {
                latency_ms: (requests > 0.0).then(|| sum_ms / requests),
                utilisation: busy / kind.backends.len() as f64,
                share: requests / all.max(1.0),
            }
        };
        Ok(Ran {
            method: self.method,
            provenance: Provenance::Emulated,
            clients: self.clients,
            served_rps: all / seconds,
            mean_ms,
            error_ms: measured.error_ms,
            p99_ms,
            errors: measured.errors,
            kinds: self.setting.kinds.iter().map(of).collect(),
            overload: false,
        })
    }
}

fn moment(lane: &Lane) -> Result<Moment, Failure> {
    let (clients, backends) = (lane.so_far(), lane.backends());
    match (clients, backends) {
        (Some(clients), Some(backends)) => Ok(Moment { at: Instant::now(), clients, backends }),
        _ => Err(Failure::Other("clients or backends have stopped".to_owned())),
    }
}

/// Requests answered between two moments, and the sum of their latencies, milliseconds.
fn served(first: &Summary, last: &Summary) -> (f64, f64) {
    let until = |summary: &Summary| {
        let count = (summary.requests - summary.errors) as f64;
        (count, count * summary.mean_ms.unwrap_or(0.0))
    };
    let (before, after) = (until(first), until(last));
    (after.0 - before.0, after.1 - before.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_served_between_two_moments_is_their_difference() {
        let summary = |requests, errors, mean_ms| Summary {
            requests,
            errors,
            mean_ms: Some(mean_ms),
            ..Summary::default()
        };
        let (count, sum_ms) = served(&summary(11, 1, 20.0), &summary(33, 3, 30.0));
        assert_eq!((count, sum_ms), (20.0, 700.0));
        assert_eq!(served(&Summary::default(), &summary(2, 0, 5.0)), (2.0, 10.0));
    }
}
