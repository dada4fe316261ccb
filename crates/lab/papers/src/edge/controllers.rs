//! Controllers for more than two cores: what the paper leaves open, simulated.

use std::time::Duration;

use plimsoll_feedback::{Ages, BalancerKind};
use plimsoll_sim::edge::{EdgeRun, Elephants, Mice, Seen, Way};

use super::show::{mean, notes};
use crate::Provenance::Simulated;
use crate::comparison::Bound;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Bars, Plot};
use crate::summary::figures;
use crate::{Comparison, Context, Experiment, Failure, Provenance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "edge-controllers",
    paper: &super::PAPER,
    figure: "§3",
    title: "Controllers over 2, 8 and 16 cores, with elephants that move and flows that last",
    claim: "A PID on the predicted load makes loads equal.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(600),
    takes_quick: Duration::from_secs(20),
    run,
};

/// Mean load of the cores.
const LOAD: f64 = 0.85;
/// Repetitions, each with a seed of its own.
const RUNS: u64 = 2;

struct Setting {
    name: &'static str,
    cores: usize,
    elephants: Elephants,
    mice: Mice,
}

const MOVING: Elephants = Elephants::Moving { share: 0.3, load: 0.15, mean_ms: 300.0 };
const SETTINGS: [Setting; 4] = [
    Setting {
        name: "2 cores, elephant of 47 %",
        cores: 2,
        elephants: Elephants::Fixed { share: 0.47 },
        mice: Mice::Packets(10),
    },
    Setting { name: "8 cores", cores: 8, elephants: MOVING, mice: Mice::Packets(10) },
    Setting { name: "16 cores", cores: 16, elephants: MOVING, mice: Mice::Packets(10) },
    Setting {
        name: "8 cores, flows of 1 s",
        cores: 8,
        elephants: MOVING,
        mice: Mice::Exponential(1000.0),
    },
];

struct Method {
    name: &'static str,
    way: Way,
    ages: Ages,
}

/// Flows are old by age alone: the water-filling of the first studies.
const BY_AGE: Ages =
    Ages { aging: Duration::from_millis(20), old: Duration::from_millis(20), heavy: u32::MAX };

fn methods() -> Vec<Method> {
    let ages = Ages::default();
    let policy = |name, kind: BalancerKind| Method { name, way: Way::policy(kind), ages };
    let filled = |name, ms, ages| {
        let way = Way::Policy(BalancerKind::WaterFill, Duration::from_millis(ms));
        Method { name, way, ages }
    };
    vec![
        policy(WRR, BalancerKind::WeightedRoundRobin),
        policy(LITERAL, BalancerKind::PidLiteral),
        policy("pid", BalancerKind::Pid),
        policy("monitor", BalancerKind::Monitor),
        policy("residual (Spotlight)", BalancerKind::Residual),
        Method { name: "awrr", way: Way::Awrr, ages },
        Method { name: "two choices per flow", way: Way::Choices(2), ages },
        Method { name: "least loaded per flow", way: Way::Least, ages },
        filled(PAGE, 10, BY_AGE),
        filled(OURS, 10, ages),
        filled(FIVE, 5, ages),
        filled("water_fill, 2 ms", 2, ages),
    ]
}

const WRR: &str = "weighted_round_robin";
const LITERAL: &str = "pid_literal";
const PAGE: &str = "water_fill, old by age alone";
const OURS: &str = "water_fill";
const FIVE: &str = "water_fill, 5 ms";

struct Point {
    method: &'static str,
    setting: &'static str,
    gap: f64,
    gap_p99: f64,
    lost: f64,
    p99_us: f64,
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let (mut points, methods) = (Vec::new(), methods());
    let all = (methods.len() * SETTINGS.len()) as f64;
    for method in &methods {
        for setting in &SETTINGS {
            context.progress(points.len() as f64 / all, method.name)?;
            points.push(one(context, method, setting)?);
        }
    }
    let tables = vec![table(&points)?];
    let plots = vec![plot(&points, &methods)];
    Ok(Outcome { tables, plots, comparisons: comparisons(&points), notes: explained() })
}

fn one(context: &Context, method: &Method, setting: &Setting) -> Result<Point, Failure> {
    let mut seen: Vec<Seen> = Vec::new();
    for run in 0..context.pick(1, RUNS) {
        context.check()?;
        let mut one = EdgeRun::new(setting.cores, LOAD, method.way);
        (one.traffic.elephants, one.traffic.mice) = (setting.elephants, setting.mice);
        one.ages = method.ages;
        (one.run_ms, one.warm_ms) = context.pick((500, 200), (6000, 1500));
        one.seed = context.seed + run;
        seen.push(one.run());
    }
    let of = |value: fn(&Seen) -> f64| mean(seen.iter().map(value));
    Ok(Point {
        method: method.name,
        setting: setting.name,
        gap: of(|seen| seen.gap),
        gap_p99: of(|seen| seen.gap_p99),
        lost: of(|seen| seen.lost),
        p99_us: of(|seen| seen.delay_p99),
    })
}

/// The prototypes' numbers and what was to be reached, neither of the paper.
fn comparisons(points: &[Point]) -> Vec<Comparison> {
    let gap = |method: &str, setting: usize| {
        let name = SETTINGS[setting].name;
        let there = points.iter().find(|p| p.method == method && p.setting == name);
        there.map_or(f64::NAN, |point| point.gap)
    };
    let reach = |setting: usize, most: f64| {
        let what = format!("water_fill each 10 ms: gap, {}", SETTINGS[setting].name);
        let words = format!("not in it; wanted: at most {most} points");
        Comparison::bound(
            Simulated,
            what,
            (&words, Bound::AtMost(most)),
            gap(OURS, setting),
            "points",
        )
        .target()
        .why("What an elephant adds is seen only once it sends.")
    };
    let prototype = |method: &str, setting: usize, paper: f64| {
        let what = format!("{method}: gap, {}", SETTINGS[setting].name);
        let paper = format!("not in it; the prototype's {}", figures(paper));
        Comparison::silent(Simulated, what, paper, gap(method, setting), "points")
            .why("Two simulators with draws of their own; an unstable controller's gap depends on them most.")
    };
    let mut comparisons = vec![reach(0, 3.0), reach(1, 17.0), reach(2, 22.0), reach(3, 29.0)];
    let prototypes = [
        (WRR, [79.9, 53.0, 63.0, 54.0]),
        (LITERAL, [1.3, 72.0, 127.0, 44.0]),
        ("pid", [1.2, 29.0, 36.0, 49.0]),
        (PAGE, [0.9, 17.0, 22.0, 29.0]),
    ];
    for (method, gaps) in prototypes {
        comparisons
            .extend(gaps.iter().enumerate().map(|(at, &paper)| prototype(method, at, paper)));
    }
    comparisons
}

fn table(points: &[Point]) -> Result<Table, Failure> {
    let mut table = Table::empty("controllers", "Gaps between the most and the least loaded core");
    for point in points {
        row!(table, Provenance::Simulated, {
            method: point.method;
            setting: point.setting;
            gap_points: point.gap, "points of offered load, mean of windows of 30 ms";
            gap_p99_points: point.gap_p99, "points, 99th percentile of windows";
            lost_percent: point.lost, "% of the packets";
            p99_us: point.p99_us, "µs of waiting and service";
        })?;
    }
    Ok(table)
}

fn plot(points: &[Point], methods: &[Method]) -> Plot {
    let series = SETTINGS.iter().map(|setting| {
        let of = points.iter().filter(|point| point.setting == setting.name);
        Bars::new(setting.name, Provenance::Simulated, of.map(|point| Some(point.gap)).collect())
    });
    let names = methods.iter().map(|method| method.name.to_owned()).collect();
    let y = Axis::linear("gap (points of a core)");
    Plot::bars("gaps", "Most less least loaded core", "method", y, names, series.collect())
}

fn explained() -> Vec<String> {
    let own = [
        "The paper shows two nodes. Here a moving elephant loads a core with 0.15 for 300 ms in the mean (exponential), and \
         elephants are 30 % of the traffic; a core's queue is 4096 packets; the gap is taken over windows of 30 ms. The numbers \
         compared with are those of the first studies and the targets made of them, not the paper's.",
        "Per-flow methods go by an exponential mean of 5 ms of every core's packets and what they just placed, with one \
         forwarder that sees all; several with stale views do worse than static shares.",
    ];
    notes().into_iter().chain(own.map(str::to_owned)).collect()
}
