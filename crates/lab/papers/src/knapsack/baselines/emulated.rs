use std::time::Duration;

use plimsoll_lanes::{
    Distribution, Family, Finished, Lane, LaneKind, Measured, Pool, raise_descriptor_limit,
};

use super::weights::Known;
use super::{Clients, KindRan, Method, Ran, Setting, Weights};
use crate::lanes::{Moment, wait};
use crate::{Context, Failure, Provenance};

/// What two cores carry of lanes side by side, requests per second.
const AT_ONCE_RPS: f64 = 1_750.0;

/// How long each lane runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// From nothing, where Plimsoll's daemon steers.
    pub learn: Duration,
    /// Load that is not measured, where no method learns.
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

    /// Before the measured part, of lanes that run together.
    fn before(&self, steered: bool) -> Duration {
        if steered { self.learn } else { self.warm_up }
    }
}

/// Methods side by side, as many as the machine can serve at this rate each; those that Plimsoll steers apart
/// from the others, which need not wait for it to learn. Those that HAProxy lacks are left out.
pub fn at_once(
    methods: &[&'static Method],
    rate_rps: f64,
) -> Vec<Vec<(&'static Method, LaneKind)>> {
    let together = ((AT_ONCE_RPS / rate_rps) as usize).max(1);
    let lanes = methods.iter().filter_map(|&method| Some((method, method.lane?)));
    let (steered, plain): (Vec<_>, Vec<_>) = lanes.partition(|(_, kind)| kind.is_steered());
    [plain, steered].iter().flat_map(|lanes| lanes.chunks(together).map(<[_]>::to_vec)).collect()
}

/// Runs these methods, each behind a HAProxy of its own. Weights that had to be learned are the
/// simulation's, but for Plimsoll's, whose daemon learns.
pub fn emulated(
    context: &Context,
    setting: &Setting,
    methods: &[&'static Method],
    weights: &Known,
    clients: Clients,
    part: (f64, f64),
) -> Result<Vec<Ran>, Failure> {
    raise_descriptor_limit();
    let turn = Turn::of(context);
    let groups = at_once(methods, setting.most_rps());
    let steered = |group: &[(&Method, LaneKind)]| group.iter().any(|(_, kind)| kind.is_steered());
    let length = |group: &Vec<_>| (turn.before(steered(group)) + turn.measure).as_secs_f64();
    let whole: f64 = groups.iter().map(length).sum();
    let family = Family::start()?;
    let mut done = part.0;
    let mut rows = Vec::new();
    for group in &groups {
        let to = done + (part.1 - part.0) * length(group) / whole;
        let mut lanes = Vec::new();
        for &(method, kind) in group {
            let name = format!("lane{}", rows.len() + lanes.len());
            lanes.push((method, start(&family, setting, (method, kind), weights, &name)?));
        }
        let run = Group { context, setting, clients, turn, part: (done, to) };
        rows.extend(run.measure(lanes, &family, turn.before(steered(group)))?);
        done = to;
    }
    Ok(rows)
}

/// A lane without clients as yet. What Plimsoll steers starts with equal weights.
pub fn start(
    family: &Family,
    setting: &Setting,
    (method, kind): (&'static Method, LaneKind),
    weights: &Known,
    name: &str,
) -> Result<Lane, Failure> {
    let service = Duration::from_nanos((setting.service_us * 1e3) as u64);
    let distribution = Distribution::Exponential;
    let pool = Pool::new(&setting.pool, service, distribution, setting.load, setting.seed);
    let start = if kind.is_steered() { Weights::Equal } else { method.weights };
    Ok(Lane::start_with(family, &pool, kind, weights.of(start)?.to_vec(), name)?)
}

/// Lanes that run together.
struct Group<'a> {
    context: &'a Context,
    setting: &'a Setting,
    clients: Clients,
    turn: Turn,
    part: (f64, f64),
}

impl Group<'_> {
    fn measure(
        &self,
        mut lanes: Vec<(&'static Method, Lane)>,
        family: &Family,
        before: Duration,
    ) -> Result<Vec<Ran>, Failure> {
        for (_, lane) in &mut lanes {
            match self.clients {
                Clients::Open => lane.open(family)?,
                Clients::Closed(clients) => lane.open_closed(clients as usize)?,
            }
        }
        let names: Vec<&str> = lanes.iter().map(|(method, _)| method.name).collect();
        let what = format!("emulated: {}, {} clients", names.join(", "), self.clients.name());
        let passed = before.as_secs_f64() / (before + self.turn.measure).as_secs_f64();
        let middle = self.part.0 + (self.part.1 - self.part.0) * passed;
        let mut run = |time, part| {
            let alive = || lanes.iter_mut().try_for_each(|(_, lane)| Ok(lane.check()?));
            wait(self.context, time, part, &what, alive)?;
            lanes.iter().map(|(_, lane)| Moment::of(lane)).collect::<Result<Vec<_>, Failure>>()
        };
        let first = run(before, (self.part.0, middle))?;
        let last = run(self.turn.measure, (middle, self.part.1))?;
        lanes.iter().for_each(|(_, lane)| lane.close());
        let moments = first.iter().zip(&last);
        let all = lanes.into_iter().zip(moments);
        all.map(|((method, lane), (first, last))| self.ran(method, first, last, lane.finish()?))
            .collect()
    }

    fn ran(
        &self,
        method: &'static Method,
        first: &Moment,
        last: &Moment,
        finished: Finished,
    ) -> Result<Ran, Failure> {
        let stretch = first.at - finished.started..last.at - finished.started;
        let measured = Measured::over(&finished.report.records, &[stretch]);
        let (Some(mean_ms), Some(p99_ms)) = (measured.mean_ms, measured.p99_ms) else {
            return Err(Failure::Other(format!("{}: nobody was served", method.name)));
        };
        let all = last.served(first).0;
        let of = |kind: &super::Kind| {
            let (mut requests, mut sum_ms, mut busy) = (0.0, 0.0, 0.0);
            for &i in &kind.backends {
                let (count, ms, part) = last.served_by(i, first);
                (requests, sum_ms, busy) = (requests + count, sum_ms + ms, busy + part);
            }
            KindRan {
                latency_ms: (requests > 0.0).then(|| sum_ms / requests),
                utilisation: busy / kind.backends.len() as f64,
                share: requests / all.max(1.0),
            }
        };
        Ok(Ran {
            method,
            provenance: Provenance::Emulated,
            clients: self.clients,
            served_rps: all / last.seconds(first),
            mean_ms,
            error_ms: measured.error_ms,
            p99_ms,
            errors: measured.errors,
            kinds: self.setting.kinds.iter().map(of).collect(),
            overload: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::METHODS;
    use super::*;

    #[test]
    fn lanes_run_together_as_far_as_the_machine_bears() {
        let all: Vec<&'static Method> = METHODS.iter().collect();
        let together =
            |rate_rps| -> Vec<usize> { at_once(&all, rate_rps).iter().map(Vec::len).collect() };
        assert_eq!(together(150.0), [10, 2]);
        assert_eq!(together(400.0), [4, 4, 2, 2]);
        assert_eq!(together(9_000.0), [1; 12]);
    }
}
