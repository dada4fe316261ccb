//! One method over capacity ratios (Figures 3 and 4): emulated, and simulated beside it.

use std::time::Duration;

use plimsoll_lanes::Family;
use plimsoll_policy::PolicyKind;

use super::rig::{Rig, Setup};
use super::{Seen, clients_for, others};
use crate::knapsack::baselines::{Both, build};
use crate::lanes::wait;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Plot, Points};
use crate::{Comparison, Context, Failure, Provenance};

/// How busy three equal backends are in the paper.
pub const EQUAL_CPU: f64 = 0.8;
/// Time for queues to settle after a change: over ten times the latency.
const SETTLE: Duration = Duration::from_secs(3);

/// One capacity ratio.
pub struct Point {
    /// Capacity of the third backend over that of the others.
    pub ratio: f64,
    /// With real HAProxy and clients.
    pub emulated: Seen,
    /// In simulated time.
    pub simulated: Seen,
}

/// What to sweep.
pub struct Sweep {
    /// HAProxy's `balance`.
    pub balance: &'static str,
    /// The same as a policy.
    pub policy: PolicyKind,
}

/// The simulation at one ratio, with every default of the policy.
///
/// # Errors
/// Never with these.
pub fn simulate(
    kind: PolicyKind,
    weights: [u32; 3],
    ratio: f64,
    clients: u32,
    seed: u64,
) -> Result<Seen, Failure> {
    Ok(super::simulate(Some(build(kind, &weights)?), ratio, clients, seed))
}

/// What came of it.
pub struct Swept {
    /// By ratio.
    pub points: Vec<Point>,
    /// How many clients there were.
    pub clients: u32,
    /// Every other method at the paper's example of 60 %.
    pub others: Both,
}

impl Sweep {
    /// The whole figure: the sweep, then every other method at 60 %.
    ///
    /// # Errors
    /// When a part of it does not start or ends, or the run is interrupted.
    pub fn figure(
        &self,
        context: &Context,
        compare: fn(&Context, &Swept) -> Result<Vec<Comparison>, Failure>,
    ) -> Result<Outcome, Failure> {
        let (clients, points) = self.run(context, 0.5)?;
        let others = others::run(context, clients, (0.5, 1.0))?;
        let title = "Third backend at 60 %";
        let Outcome { mut tables, plots: more, notes: more_notes, .. } =
            others.outcome(title, &others::SHOWN)?;
        let swept = Swept { points, clients, others };
        let comparisons = compare(context, &swept)?;
        tables.insert(0, table(&swept.points)?);
        let mut figure_plots = plots(self.balance, &swept.points);
        figure_plots.extend(more);
        let mut notes = notes(clients);
        notes.extend(more_notes);
        Ok(Outcome { tables, plots: figure_plots, comparisons, notes })
    }

    /// Runs it, from 0 to `done` of the whole run; says how many clients there were.
    fn run(&self, context: &Context, done: f64) -> Result<(u32, Vec<Point>), Failure> {
        let ratios: &[f64] = context.pick(&[1.0, 0.6, 0.2], &[1.0, 0.8, 0.6, 0.4, 0.2]);
        let measured = context.pick(Duration::from_millis(1500), Duration::from_secs(18));
        let settle = context.pick(Duration::from_millis(700), SETTLE);
        let clients = clients_for(EQUAL_CPU, 1.0, context.seed);
        let family = Family::start()?;
        let setup = Setup {
            name: "sweep".to_owned(),
            balance: self.balance,
            ratio: 1.0,
            clients,
            fresh_connections: false,
        };
        let mut rig = Rig::start(context, &family, &setup)?;
        let mut points = Vec::with_capacity(ratios.len());
        for (i, &ratio) in ratios.iter().enumerate() {
            let part = |i: usize| done * i as f64 / ratios.len() as f64;
            let what = format!("{} at capacity ratio {ratio}", self.balance);
            rig.set_ratio(ratio)?;
            wait(context, settle, (part(i), part(i)), &what, || Ok(()))?;
            let from = rig.mark()?;
            wait(context, measured, (part(i), part(i + 1)), &what, || Ok(()))?;
            let emulated = rig.since(&from)?;
            let simulated = simulate(self.policy, [1; 3], ratio, clients, context.seed)?;
            points.push(Point { ratio, emulated, simulated });
        }
        Ok((clients, points))
    }
}

/// One row per ratio, backend and provenance.
pub fn table(points: &[Point]) -> Result<Table, Failure> {
    let mut table = Table::empty("backends", "Each backend over the capacity of the third");
    for point in points {
        let both =
            [(Provenance::Emulated, &point.emulated), (Provenance::Simulated, &point.simulated)];
        for (provenance, seen) in both {
            for (name, backend) in super::NAMES.into_iter().zip(&seen.backends) {
                row!(table, provenance, {
                    capacity_ratio: point.ratio, "part of the others' capacity";
                    backend: name;
                    cpu_percent: 100.0 * backend.cpu, "%";
                    latency_ms: backend.latency_ms, "ms";
                    share_percent: 100.0 * backend.share, "% of requests";
                    total_rps: seen.rps, "requests/s";
                    errors: seen.errors, "requests";
                })?;
            }
        }
    }
    Ok(table)
}

/// CPU and latency of the two kinds of backend, over the ratio.
pub fn plots(method: &str, points: &[Point]) -> Vec<Plot> {
    let x = || Axis::linear("capacity of the third backend (% of the others')").from_to(0.0, 105.0);
    let lines = |value: fn(&Seen) -> (f64, f64)| -> Vec<Lines> {
        let of = |seen: fn(&Point) -> &Seen, low: bool| -> Points {
            let value = |p: &Point| {
                let (high, third) = value(seen(p));
                (100.0 * p.ratio, if low { third } else { high })
            };
            points.iter().rev().map(value).collect()
        };
        vec![
            Lines::new("third", Provenance::Emulated, of(|p| &p.emulated, true)),
            Lines::new("others", Provenance::Emulated, of(|p| &p.emulated, false)),
            Lines::new("third", Provenance::Simulated, of(|p| &p.simulated, true)),
            Lines::new("others", Provenance::Simulated, of(|p| &p.simulated, false)),
        ]
    };
    let cpu = lines(|seen| (100.0 * seen.high().cpu, 100.0 * seen.low().cpu));
    let latency = lines(|seen| (seen.high().latency_ms, seen.low().latency_ms));
    vec![
        Plot::lines(
            "cpu",
            &format!("CPU per backend under {method}"),
            x(),
            Axis::linear("busy part of the cores (%)").from_to(0.0, 105.0),
            cpu,
        ),
        Plot::lines(
            "latency",
            &format!("Latency per backend under {method}"),
            x(),
            Axis::log("mean latency (ms)"),
            latency,
        ),
    ]
}

/// What every figure of this set-up must say.
pub fn notes(clients: u32) -> Vec<String> {
    vec![
        format!(
            "{clients} clients, each sending its next request on its answer: as many as keep three equal \
             backends 80 % busy. The paper does not say how its clients behave; at a constant rate of \
             that size the pool with a third of 20 % would be overloaded under any method."
        ),
        "Emulated backends burn no CPU: their CPU is the part of their cores that was busy. Service \
         times are exponential, 30 ms in the mean; the third backend is slower, nothing else."
            .to_owned(),
    ]
}
