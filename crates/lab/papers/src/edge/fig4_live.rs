//! Figures 4a to 4c (§4) on real cores: an elephant among mice, two nodes.

use std::time::{Duration, Instant};

use super::live::{Cell, CellPlan, Latency, Load, Threads, set};
use super::show::{MONITOR, WATER_FILL, WRR, mean};
use crate::Provenance::Measured;
use crate::comparison::Bound;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Plot};
use crate::{Comparison, Context, Experiment, Failure};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "edge-fig4-live",
    paper: &super::PAPER,
    figure: "Figure 4",
    title: "An elephant of 7 to 47 % of the traffic on two nodes, live",
    claim: "EdgeBalance keeps the CPUs within 3 points of each other, its throughput and latency hardly change with the \
            elephant; static WRR loses a third of the throughput.",
    provenance: &[Measured],
    takes: Duration::from_secs(300),
    takes_quick: Duration::from_secs(45),
    run,
};

/// What is run: its name in tables, and in configuration.
const WAYS: [(&str, &str); 3] =
    [(WATER_FILL, "water_fill"), (MONITOR, "monitor"), (WRR, "weighted_round_robin")];
/// Per mille of the traffic.
const SHARES: [u64; 5] = [70, 170, 270, 370, 470];
/// Mean load of the two cores; what makes and forwards packets takes its part of them besides.
const LOAD: f64 = 0.75;
const WORK_US: u32 = 8;
/// Without an elephant, so that the next one is another flow; and before a window, so that old flows have ended.
const PAUSE: Duration = Duration::from_millis(300);
const SETTLES: Duration = Duration::from_millis(1500);
const RUNS: usize = 3;
/// How often cores are looked at within a window.
const LOOK: Duration = Duration::from_millis(250);

/// One window.
struct Point {
    way: &'static str,
    run: usize,
    share: f64,
    sent: f64,
    served: f64,
    busy: [f64; 2],
    /// Mean distance between cores over looks, points.
    gap: f64,
    median_us: f64,
    p99_us: f64,
    /// Part of a core that sending and forwarding took.
    clients: f64,
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let window = context
        .options
        .window
        .unwrap_or(context.pick(Duration::from_secs(1), Duration::from_secs(3)));
    let shares: &[u64] = context.pick(&[70, 470], &SHARES);
    let runs = context.pick(1, RUNS);
    let all = (WAYS.len() * shares.len() * runs) as f64;
    let mut points = Vec::new();
    for (way, policy) in WAYS {
        context.progress(points.len() as f64 / all, way)?;
        let bench = Bench::start(context, policy)?;
        for run in 1..=runs {
            for share in shares {
                context.progress(points.len() as f64 / all, way)?;
                points.push(bench.window(way, run, *share, window)?);
            }
        }
    }
    let plots = plots(&points);
    Ok(Outcome {
        tables: vec![table(&points)?],
        plots,
        comparisons: comparisons(&points),
        notes: notes(window),
    })
}

struct Bench {
    cell: Cell,
    threads: Vec<Threads>,
    clients: Load,
    latency: Latency,
}

impl Bench {
    fn start(context: &Context, policy: &'static str) -> Result<Bench, Failure> {
        let cell = Cell::start(&CellPlan::two_nodes(policy, WORK_US), context.interrupt())?;
        let (threads, clients, latency) = (cell.threads(), cell.clients(None)?, cell.time()?);
        // Mice alone, until costs are learned.
        set(&clients.traffic.rate, 50_000);
        std::thread::sleep(SETTLES * 2);
        let places = cell.fresh()?.places;
        let cost = mean(places.iter().map(|one| one.cost_us / 1e6));
        set(&clients.traffic.rate, (2.0 * LOAD / cost) as u64);
        Ok(Bench { cell, threads, clients, latency })
    }

    fn busy(&self) -> [f64; 2] {
        [self.threads[0].seconds(), self.threads[1].seconds()]
    }

    fn window(
        &self,
        way: &'static str,
        run: usize,
        share: u64,
        window: Duration,
    ) -> Result<Point, Failure> {
        let traffic = &self.clients.traffic;
        set(&traffic.elephant, 0);
        std::thread::sleep(PAUSE);
        set(&traffic.elephant, share);
        std::thread::sleep(SETTLES);
        drop(self.latency.take());
        let count = || Ok::<_, Failure>((self.cell.arrived()?, traffic.sent(), traffic.cpu()));
        let (began, busy, (arrived, sent, cpu)) = (Instant::now(), self.busy(), count()?);
        let (mut gaps, mut last, mut at) = (Vec::new(), busy, began);
        while began.elapsed() < window {
            std::thread::sleep(LOOK);
            let (now, here) = (self.busy(), Instant::now());
            let seconds = (here - at).as_secs_f64();
            let load = |core: usize| (now[core] - last[core]) / seconds;
            gaps.push(100.0 * (load(0) - load(1)).abs());
            (last, at) = (now, here);
        }
        let (arrived_after, sent_after, cpu_after) = count()?;
        let seconds = began.elapsed().as_secs_f64();
        let mut took = self.latency.take();
        took.sort_by(f64::total_cmp);
        let at =
            |part: f64| took.get((part * took.len() as f64) as usize).copied().unwrap_or(f64::NAN);
        Ok(Point {
            way,
            run,
            share: share as f64 / 10.0,
            sent: (sent_after - sent) as f64 / seconds,
            served: (arrived_after - arrived) as f64 / seconds,
            busy: [0, 1].map(|core| 100.0 * (last[core] - busy[core]) / seconds),
            gap: mean(gaps),
            median_us: at(0.5),
            p99_us: at(0.99),
            clients: (cpu_after - cpu) / seconds,
        })
    }
}

impl Point {
    /// Between the cores over the whole window, points.
    fn whole_gap(&self) -> f64 {
        (self.busy[0] - self.busy[1]).abs()
    }
}

/// The mean over runs at each share.
fn curve(points: &[Point], way: &str, value: fn(&Point) -> f64) -> Vec<(f64, f64)> {
    let of: Vec<&Point> = points.iter().filter(|one| one.way == way).collect();
    let mut shares: Vec<f64> = of.iter().map(|one| one.share).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    let at = |share: f64| mean(of.iter().filter(|one| one.share == share).map(|one| value(one)));
    shares.into_iter().map(|share| (share, at(share))).collect()
}

fn comparisons(points: &[Point]) -> Vec<Comparison> {
    let of = |way: &str, value: fn(&Point) -> f64| -> Vec<f64> {
        curve(points, way, value).into_iter().map(|(_, value)| value).collect()
    };
    let most = |values: &[f64]| values.iter().copied().fold(f64::MIN, f64::max);
    let least = |values: &[f64]| values.iter().copied().fold(f64::MAX, f64::min);
    let ratio = |values: &[f64]| values.last().copied().unwrap_or(f64::NAN) / values[0];
    let mut comparisons = Vec::new();
    for (way, _) in WAYS {
        let gap = most(&of(way, Point::whole_gap));
        let served = of(way, |one| one.served);
        let drop = 100.0 * (1.0 - least(&served) / most(&served));
        let tail = ratio(&of(way, |one| one.p99_us));
        let named = |what: &str| format!("{way}: {what}");
        let rows = [
            ("greatest gap between the cores over a window", gap, "points", "less than 3", 3.0),
            ("throughput, least below greatest", drop, "%", "flat: at most 10 %", 10.0),
            (
                "p99 of latency, heaviest over lightest elephant",
                tail,
                "times",
                "hardly changes: at most 1.3",
                1.3,
            ),
        ];
        for (what, ours, unit, paper, bound) in rows {
            let one = if way == WATER_FILL {
                Comparison::bound(Measured, named(what), (paper, Bound::AtMost(bound)), ours, unit)
            } else {
                Comparison::silent(Measured, named(what), "a baseline", ours, unit)
            };
            comparisons.push(one.why(
                "Two cores do everything here: clients, forwarder, functions, and whatever else the machine does, which takes \
                 from one core more than from the other.",
            ));
        }
    }
    let clients = mean(points.iter().map(|one| 50.0 * one.clients));
    comparisons.push(
        Comparison::silent(
            Measured,
            "sending and forwarding: part of the two cores",
            "at most 15 %",
            clients,
            "%",
        )
        .why("A packet of 64 bytes costs about as much to make as to forward."),
    );
    comparisons
}

fn table(points: &[Point]) -> Result<Table, Failure> {
    let mut table = Table::empty("elephants", "Two nodes and an elephant, by window");
    for point in points {
        row!(table, Measured, {
            method: point.way;
            run: point.run;
            elephant_percent: point.share, "% of the traffic";
            sent_kpps: point.sent / 1e3, "thousand packets/s";
            served_kpps: point.served / 1e3, "thousand packets/s";
            first_core_percent: point.busy[0], "% of the core";
            second_core_percent: point.busy[1], "% of the core";
            gap_points: point.whole_gap(), "points, of the whole window";
            gap_of_looks_points: point.gap, "points, mean over looks of 250 ms";
            median_us: point.median_us, "µs";
            p99_us: point.p99_us, "µs";
            clients_percent: 100.0 * point.clients, "% of a core";
        })?;
    }
    Ok(table)
}

fn plots(points: &[Point]) -> Vec<Plot> {
    let plot = |name: &str, title: &str, y: Axis, value: fn(&Point) -> f64| {
        let line =
            |(way, _): (&'static str, _)| Lines::new(way, Measured, curve(points, way, value));
        let x = Axis::linear("elephant's part of the traffic (%)");
        Plot::lines(name, title, x, y, WAYS.map(line).to_vec())
    };
    vec![
        plot(
            "throughput",
            "Throughput of two nodes",
            Axis::linear("throughput (thousand packets/s)"),
            |one| one.served / 1e3,
        ),
        plot("latency", "Latency of mice", Axis::log("p99 (µs)"), |one| one.p99_us),
        plot("gap", "Gap between the cores", Axis::linear("gap (points)"), Point::whole_gap),
    ]
}

fn notes(window: Duration) -> Vec<String> {
    vec![
        format!(
            "Real forwarder and nodes on this machine, one core each, {WORK_US} µs of work a packet and a mean load of {:.0} %; \
             windows of {} s, means of the runs. Mice have 10 packets, which come in one burst, as do the elephant's.",
            100.0 * LOAD,
            window.as_secs_f64()
        ),
        "Latency is one mouse's in sixteen, from the client's system call to the server's: it holds the queue of the core, \
         the burst that a packet is in, and a thread's wake-up at either end."
            .to_owned(),
    ]
}
