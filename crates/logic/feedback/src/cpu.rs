//! The load of a core, known without asking it (EdgeBalance, HotEdge '20, §3).
//!
//! ```text
//! load[server][core] = Σ over services  cost[server][core][service] · rate[server][core][service]
//! ```
//!
//! Cost in seconds per packet, rate in packets per second as the forwarder counted them, load as a fraction of one core.
//! Dense arrays; no walk over flows. Costs start from calibration ([`CpuModel::calibrate`]) and are then learned from the
//! busy time that nodes report ([`CpuModel::learn`]): a NAT's packet costs twice as much with 32,000 flows as
//! with a thousand, so no constant holds.
//!
//! Learning is a Kalman filter per core over the costs of its services, diagonal: one report of busy time is split
//! among the services that had packets, more to those whose cost is less certain. Certainty fades with time. A
//! report far outside what is expected is followed in steps: at most [`STEP`] of a cost per report, and never
//! further than [`REACH`] times from calibration (its own, else that of other cores), so that a node that lies can bend its own costs within known
//! bounds and no other's.

use std::time::Duration;

use plimsoll_model::Nanos;
use thiserror::Error;

/// The most by which one report changes a cost, as a part of it.
pub const STEP: f64 = 0.25;
/// How many times higher or lower than calibrated a cost can be learned to be. NAT costs vary threefold
/// between an idle and a full connection table.
pub const REACH: f64 = 4.0;
/// Costs of a packet that are believed, seconds: what a node says of itself is cut to this.
pub const LEAST_COST: f64 = 0.05e-6;
/// The highest one.
pub const MOST_COST: f64 = 1e-3;
/// The cost of a packet where nothing is known, seconds: about what forwarding costs.
const UNKNOWN: f64 = 1e-6;
/// How uncertain a calibrated cost is, as a part of it: bursts through an idle node were off by up to 40 %.
const CALIBRATED_ERROR: f64 = 0.4;
/// How uncertain a cost becomes in a second without reports, as a part of it.
const DRIFT: f64 = 0.05;
/// Standard error of a report: 5 % of the busy time, and this much of a core.
const REPORT_ERROR: f64 = 0.05;
const REPORT_FLOOR: f64 = 0.005;
/// Surprise, in standard errors, above which a cost is taken to have changed.
const SURPRISE: f64 = 3.0;
/// What the variance of a cost that has changed is multiplied by.
const DOUBT: f64 = 4.0;
/// Reports of windows that ended longer ago say nothing of now.
const OLDEST: Duration = Duration::from_secs(5);
/// Packets that a node may have handled beyond those sent in the window: the two windows differ by what is underway.
const UNDERWAY: f64 = 1.25;
const UNDERWAY_PACKETS: f64 = 4096.0;

/// How many of each there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Servers.
    pub servers: usize,
    /// Cores of the server that has most.
    pub cores: usize,
    /// Services.
    pub services: usize,
}

/// One service on one core of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which server.
    pub server: usize,
    /// Which of its cores.
    pub core: usize,
    /// Which service.
    pub service: usize,
}

impl Shape {
    /// Number of places.
    pub fn places(&self) -> usize {
        self.servers * self.cores * self.services
    }

    /// Number of cores of all servers.
    pub fn all_cores(&self) -> usize {
        self.servers * self.cores
    }

    /// Index of a core in arrays of all cores.
    pub fn core(&self, server: usize, core: usize) -> usize {
        server * self.cores + core
    }

    /// Index of a place in arrays of all places: services of a core are neighbours.
    pub fn place(&self, place: Place) -> usize {
        self.core(place.server, place.core) * self.services + place.service
    }
}

/// What a node reports of one of its cores for a window of time.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// Which server.
    pub server: usize,
    /// Which of its cores.
    pub core: usize,
    /// When the window ended.
    pub ended: Nanos,
    /// Its length, seconds.
    pub seconds: f64,
    /// Time in it that the core was busy with packets, seconds.
    pub busy: f64,
    /// Packets handled, by service. A node that measures services one by one sends a report for each, with zeros for
    /// the others.
    pub handled: &'a [u64],
    /// Packets that the forwarder itself sent there in about the same time, by service.
    pub sent: &'a [u64],
}

/// What a report changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learned {
    /// Load that the model predicted for the reported packets before it learned from them.
    pub predicted: f64,
    /// Load that was reported.
    pub reported: f64,
}

/// Why a report was not used. Each is counted by the caller under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// No such server, core or number of services.
    #[error("no such core, or not one number per service")]
    Unknown,
    /// Not finite, negative, or more than the window's time.
    #[error("busy time is not possible in the window")]
    Impossible,
    /// More packets than were sent there.
    #[error("more packets handled than were sent")]
    TooMany,
    /// The window ended more than five seconds ago, in the future, before one already reported, or was reported.
    #[error("too old, out of order, repeated, or in the future")]
    Old,
}

#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Seconds per packet; 0 where nothing is known.
    seconds: f64,
    /// What calibration found; 0 where there was none.
    calibrated: f64,
    /// Variance of `seconds` as a part of it.
    variance: f64,
    /// Whether a report was ever used.
    learned: bool,
}

/// The model. A server's clock may differ: `ended` is in the forwarder's time, corrected by the caller.
#[derive(Clone, Debug)]
pub struct CpuModel {
    shape: Shape,
    costs: Vec<Cost>,
    /// By core: end of the last report used, what it reported, mean absolute error of predictions.
    cores: Vec<CoreState>,
    /// By place: whether a report of the core's last window had packets of it, so that a repeated one is known.
    heard: Vec<bool>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CoreState {
    last: Option<Nanos>,
    reported: f64,
    error: Option<f64>,
}

impl CpuModel {
    /// One that knows no cost yet.
    pub fn new(shape: Shape) -> Self {
        let nothing = Cost { seconds: 0.0, calibrated: 0.0, variance: 1.0, learned: false };
        CpuModel {
            shape,
            costs: vec![nothing; shape.places()],
            cores: vec![CoreState::default(); shape.all_cores()],
            heard: vec![false; shape.places()],
        }
    }

    /// What it covers.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Sets what a packet costs as measured when the service started there, seconds (E2). What was learned before is
    /// forgotten: it was another process. Values that are no cost are ignored, others cut to [`LEAST_COST`] and
    /// [`MOST_COST`]: a node's calibration is its own word.
    pub fn calibrate(&mut self, place: Place, seconds: f64) {
        if seconds.is_finite() && seconds > 0.0 {
            let variance = CALIBRATED_ERROR * CALIBRATED_ERROR;
            let seconds = seconds.clamp(LEAST_COST, MOST_COST);
            self.costs[self.shape.place(place)] =
                Cost { seconds, calibrated: seconds, variance, learned: false };
        }
    }

    /// Cost of a packet, seconds: learned, calibrated, or else the mean of this service on other cores, or else 1 µs.
    pub fn cost(&self, place: Place) -> f64 {
        let own = self.costs[self.shape.place(place)].seconds;
        if own > 0.0 { own } else { self.elsewhere(place.service) }
    }

    fn elsewhere(&self, service: usize) -> f64 {
        let others = self.costs.iter().skip(service).step_by(self.shape.services);
        let known = others.map(|cost| cost.seconds).filter(|&seconds| seconds > 0.0);
        let (sum, count) = known.fold((0.0, 0u32), |(sum, n), seconds| (sum + seconds, n + 1));
        if count > 0 { sum / f64::from(count) } else { UNKNOWN }
    }

    /// What learning keeps within reach of: the place's calibration, else the mean one of this service on other cores;
    /// 0 where it was calibrated nowhere.
    fn reference(&self, index: usize, service: usize) -> f64 {
        if self.costs[index].calibrated > 0.0 {
            return self.costs[index].calibrated;
        }
        let others = self.costs.iter().skip(service).step_by(self.shape.services);
        let known = others.map(|cost| cost.calibrated).filter(|&seconds| seconds > 0.0);
        let (sum, count) = known.fold((0.0, 0u32), |(sum, n), seconds| (sum + seconds, n + 1));
        if count > 0 { sum / f64::from(count) } else { 0.0 }
    }

    /// Standard error of [`CpuModel::cost`], as a part of it, when it was last learned or calibrated; 1 where nothing
    /// is known.
    pub fn uncertainty(&self, place: Place) -> f64 {
        self.costs[self.shape.place(place)].variance.sqrt().min(1.0)
    }

    /// Whether the cost was learned from reports, not only calibrated.
    pub fn is_learned(&self, place: Place) -> bool {
        self.costs[self.shape.place(place)].learned
    }

    /// Predicts the load of every core from packet rates of all places, packets per second (E1).
    pub fn predict(&self, rates: &[f64], loads: &mut [f64]) {
        for (core, load) in loads.iter_mut().enumerate().take(self.shape.all_cores()) {
            let first = core * self.shape.services;
            let of =
                |service: usize| self.cost_at(first + service, service) * rates[first + service];
            *load = (0..self.shape.services).map(of).sum();
        }
    }

    fn cost_at(&self, index: usize, service: usize) -> f64 {
        let own = self.costs[index].seconds;
        if own > 0.0 { own } else { self.elsewhere(service) }
    }

    /// Load that this core reported, where the report is no older than `age`.
    pub fn reported(&self, server: usize, core: usize, now: Nanos, age: Duration) -> Option<f64> {
        let state = &self.cores[self.shape.core(server, core)];
        state.last.filter(|&last| now.since(last) <= age).map(|_| state.reported)
    }

    /// Mean absolute error of recent predictions against reports, each made before the report was learned from;
    /// fraction of a core. `None` before the first report.
    pub fn error(&self, server: usize, core: usize) -> Option<f64> {
        self.cores[self.shape.core(server, core)].error
    }

    /// Learns from what a node reports of one core.
    ///
    /// # Errors
    /// [`Refused`] when the report cannot be true or says nothing; nothing is changed then.
    pub fn learn(&mut self, now: Nanos, report: &Report) -> Result<Learned, Refused> {
        self.check(now, report)?;
        let core = self.shape.core(report.server, report.core);
        let first = core * self.shape.services;
        self.grow_doubt(core, report);
        let part = |handled: u64| handled as f64 / report.seconds;
        let rates: Vec<f64> = report.handled.iter().map(|&handled| part(handled)).collect();
        let loads: Vec<f64> =
            rates.iter().enumerate().map(|(s, rate)| rate * self.cost_at(first + s, s)).collect();
        let predicted: f64 = loads.iter().sum();
        let reported = (report.busy / report.seconds).min(1.0);
        let noise = (REPORT_ERROR * reported).powi(2) + REPORT_FLOOR.powi(2);
        let variance = |costs: &[Cost]| -> f64 {
            loads.iter().zip(costs).map(|(load, cost)| load * load * cost.variance).sum()
        };
        let surprise = reported - predicted;
        let references: Vec<f64> =
            (0..self.shape.services).map(|s| self.reference(first + s, s)).collect();
        let costs = &mut self.costs[first..first + self.shape.services];
        if surprise.powi(2) > SURPRISE.powi(2) * (variance(costs) + noise) {
            let handled = costs.iter_mut().zip(&loads).filter(|(_, load)| **load > 0.0);
            handled.for_each(|(cost, _)| cost.variance = (cost.variance * DOUBT).min(1.0));
        }
        let total = variance(costs) + noise;
        for (service, &load) in loads.iter().enumerate().filter(|(_, load)| **load > 0.0) {
            let cost = &mut self.costs[first + service];
            // Relative to the cost, so the gain is too.
            let gain = cost.variance * load / total;
            let before = load / rates[service];
            let after = before * (1.0 + (gain * surprise).clamp(-STEP, STEP));
            cost.variance *= (1.0 - gain * load).max(0.0);
            let within = match references[service] {
                0.0 => after,
                reference => after.clamp(reference / REACH, reference * REACH),
            };
            cost.seconds = within.clamp(LEAST_COST, MOST_COST);
            cost.learned = true;
        }
        self.note(report, Learned { predicted, reported });
        Ok(Learned { predicted, reported })
    }

    /// Remembers a report and how well it was predicted.
    fn note(&mut self, report: &Report, learned: Learned) {
        let core = self.shape.core(report.server, report.core);
        let state = &mut self.cores[core];
        let heard = &mut self.heard[core * self.shape.services..][..self.shape.services];
        // Reports of one window each for one service add up to the core's.
        let mut earlier = 0.0;
        if state.last == Some(report.ended) {
            earlier = state.reported;
        } else {
            heard.fill(false);
        }
        let handled = heard.iter_mut().zip(report.handled);
        handled.for_each(|(heard, &packets)| *heard |= packets > 0);
        (state.last, state.reported) = (Some(report.ended), (earlier + learned.reported).min(1.0));
        if learned.predicted > 0.0 {
            let error = (learned.reported - learned.predicted).abs();
            state.error = Some(state.error.map_or(error, |mean| mean + 0.1 * (error - mean)));
        }
    }

    /// Takes note of the busy time of a report without learning costs from it, for policies that go by reports.
    ///
    /// # Errors
    /// As [`CpuModel::learn`].
    pub fn hear(&mut self, now: Nanos, report: &Report) -> Result<(), Refused> {
        self.check(now, report)?;
        let reported = (report.busy / report.seconds).min(1.0);
        self.note(report, Learned { predicted: 0.0, reported });
        Ok(())
    }

    fn check(&self, now: Nanos, report: &Report) -> Result<(), Refused> {
        let shape = self.shape;
        let services = [report.handled.len(), report.sent.len()];
        if report.server >= shape.servers
            || report.core >= shape.cores
            || services != [shape.services; 2]
        {
            return Err(Refused::Unknown);
        }
        let (seconds, busy) = (report.seconds, report.busy);
        // Windows are cut by a clock of their own: a little more than all of it is all of it.
        let possible = (0.0..=1.05 * seconds).contains(&busy);
        if !(possible && seconds.is_finite() && seconds > 0.0) {
            return Err(Refused::Impossible);
        }
        let last = self.cores[shape.core(report.server, report.core)].last;
        if report.ended > now || now.since(report.ended) > OLDEST {
            return Err(Refused::Old);
        }
        if last.is_some_and(|last| report.ended < last) || self.is_repeated(last, report) {
            return Err(Refused::Old);
        }
        let most = |sent: u64| sent as f64 * UNDERWAY + UNDERWAY_PACKETS;
        if report
            .handled
            .iter()
            .zip(report.sent)
            .any(|(&handled, &sent)| handled as f64 > most(sent))
        {
            return Err(Refused::TooMany);
        }
        Ok(())
    }

    /// Whether the core's last window is reported again, for a service that was in it or for none.
    fn is_repeated(&self, last: Option<Nanos>, report: &Report) -> bool {
        let first = self.shape.core(report.server, report.core) * self.shape.services;
        let mut handled = report.handled.iter().enumerate().filter(|(_, packets)| **packets > 0);
        last == Some(report.ended)
            && (handled.clone().next().is_none()
                || handled.any(|(service, _)| self.heard[first + service]))
    }

    /// Costs may have drifted since the last report.
    fn grow_doubt(&mut self, core: usize, report: &Report) {
        let last = self.cores[core].last;
        let passed = last.map_or(0.0, |last| report.ended.since(last).as_secs_f64());
        let first = core * self.shape.services;
        for cost in &mut self.costs[first..first + self.shape.services] {
            cost.variance = (cost.variance + DRIFT * DRIFT * passed).min(1.0);
        }
    }
}
