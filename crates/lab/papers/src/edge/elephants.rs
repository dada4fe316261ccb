//! Two nodes of one core and an elephant that is 7 to 47 % of the traffic (§4): what figures 4a to 4c share.

use plimsoll_sim::edge::{EdgeRun, Elephants, Seen};

use super::show::{mean, ways};
use crate::outcome::{Table, row};
use crate::plot::{Axis, Lines, Plot};
use crate::{Context, Failure, Provenance};

/// Parts of the traffic that are the elephant's, percent.
pub const SHARES: [f64; 5] = [7.0, 17.0, 27.0, 37.0, 47.0];
/// Mean load of the two cores. The paper says that the input is constant, not what it is.
pub const LOAD: f64 = 0.85;
/// A NIC's ring of 512 descriptors: a full one is 360 µs of packets of 700 ns.
const QUEUE: u32 = 512;
/// Standard error of a node's report, fraction of a core. The paper speaks of noise and does not give it.
pub const REPORT_ERROR: f64 = 0.01;
/// Repetitions, each with a seed of its own.
const RUNS: u64 = 3;

/// Mean over repetitions at one share under one way.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The way.
    pub way: &'static str,
    /// The elephant's share, percent.
    pub share: f64,
    /// Served, million packets per second.
    pub served: f64,
    /// Lost, percent.
    pub lost: f64,
    /// Mean and 99th percentile of waiting and service, microseconds.
    pub mean_us: f64,
    /// See `mean_us`.
    pub p99_us: f64,
    /// Gap between the cores' busy time, points; and between their offered loads.
    pub gap: f64,
    /// See `gap`.
    pub offered_gap: f64,
}

/// All shares under all ways.
pub struct Sweep(pub Vec<Point>);

/// Runs all of them.
pub fn sweep(context: &Context) -> Result<Sweep, Failure> {
    let mut points = Vec::new();
    let all = (ways().len() * SHARES.len()) as f64;
    for (name, way) in ways() {
        for share in SHARES {
            context.progress(points.len() as f64 / all, name)?;
            let mut seen: Vec<Seen> = Vec::new();
            for run in 0..context.pick(1, RUNS) {
                context.check()?;
                let mut one = EdgeRun::new(2, LOAD, way);
                one.queue = QUEUE;
                one.report_error = REPORT_ERROR;
                one.traffic.elephants = Elephants::Fixed { share: share / 100.0 };
                (one.run_ms, one.warm_ms) = context.pick((1200, 600), (8000, 2000));
                one.seed = context.seed + run;
                seen.push(one.run());
            }
            let of = |value: fn(&Seen) -> f64| mean(seen.iter().map(value));
            points.push(Point {
                way: name,
                share,
                served: of(|seen| seen.served / 1e6),
                lost: of(|seen| seen.lost),
                mean_us: of(|seen| seen.delay_mean),
                p99_us: of(|seen| seen.delay_p99),
                gap: of(|seen| seen.busy_gap),
                offered_gap: of(|seen| seen.gap),
            });
        }
    }
    Ok(Sweep(points))
}

impl Sweep {
    /// A value over the shares under one way.
    pub fn of(&self, way: &str, value: fn(&Point) -> f64) -> Vec<f64> {
        self.0.iter().filter(|point| point.way == way).map(value).collect()
    }

    /// The same at the heaviest elephant.
    pub fn heaviest(&self, way: &str, value: fn(&Point) -> f64) -> f64 {
        self.of(way, value).last().copied().unwrap_or(f64::NAN)
    }

    /// Greatest and least over the shares.
    pub fn range(&self, way: &str, value: fn(&Point) -> f64) -> (f64, f64) {
        let all = self.of(way, value);
        (all.iter().copied().fold(f64::MIN, f64::max), all.iter().copied().fold(f64::MAX, f64::min))
    }

    /// All numbers.
    pub fn table(&self) -> Result<Table, Failure> {
        let title = "Two nodes and an elephant, means of the repetitions";
        let mut table = Table::empty("elephants", title);
        for point in &self.0 {
            row!(table, Provenance::Simulated, {
                method: point.way;
                elephant_percent: point.share, "% of the traffic";
                served_mpps: point.served, "million packets/s";
                lost_percent: point.lost, "% of the packets";
                mean_us: point.mean_us, "µs";
                p99_us: point.p99_us, "µs";
                cpu_gap_points: point.gap, "points of busy time";
                offered_gap_points: point.offered_gap, "points of offered load";
            })?;
        }
        Ok(table)
    }

    /// A line per way.
    pub fn plot(&self, name: &str, title: &str, y: Axis, value: fn(&Point) -> f64) -> Plot {
        let line = |(way, _): (&'static str, _)| {
            let points = SHARES.into_iter().zip(self.of(way, value)).collect();
            Lines::new(way, Provenance::Simulated, points)
        };
        let x = Axis::linear("elephant's part of the traffic (%)");
        Plot::lines(name, title, x, y, ways().map(line).to_vec())
    }
}
