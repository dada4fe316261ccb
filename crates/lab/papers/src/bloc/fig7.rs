//! Figure 7 (§3): the longest and the shortest of ten queues over time, with 100 balancers.

use std::time::Duration;

use plimsoll_sim::{Arena, Window};

use super::cluster::run_in;
use super::fig6::{LOAD, cluster, rest};
use super::methods::{JSQ, LC, Method};
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Mark, Plot, Points};
use crate::{Bound, Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bloc-fig7",
    paper: &super::PAPER,
    figure: "Figure 7",
    title: "Queue lengths over time with 100 balancers: JSQ and least connections",
    claim: "Under least connections queues hold about 30 requests and the longest and the shortest are far \
            apart; under JSQ they are short and rise and fall together.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(5),
    takes_quick: Duration::from_secs(1),
    run,
};

const BALANCERS: u32 = 100;
/// The paper's queues under least connections, on average.
const THEIR_QUEUE: f64 = 30.0;
/// What the plot shows, seconds: in the middle of the run.
const SHOWN_S: usize = 300;

struct Queues {
    method: &'static str,
    /// Of every second: the shortest and the longest queue, and the mean of all.
    seconds: Vec<(u32, u32, f64)>,
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let methods: Vec<Method> = [LC, JSQ].into_iter().chain(rest()).collect();
    let mut all = Vec::new();
    for (i, &method) in methods.iter().enumerate() {
        context.progress(i as f64 / methods.len() as f64, method.name)?;
        all.push(queues(context, method)?);
    }
    Ok(Outcome {
        tables: vec![table(&all)?],
        plots: vec![plot(&all)],
        comparisons: comparisons(&all),
        notes: vec![
            "As in bloc-fig6: ten backends that serve one request at a time, 250 ms each, at 99 % load. \
             Queues are read every second, and include requests in service."
                .to_owned(),
        ],
    })
}

fn queues(context: &Context, method: Method) -> Result<Queues, Failure> {
    let open = cluster(context, LOAD, BALANCERS).arena();
    let arena = Arena { window_s: Some(1.0), ..open };
    let windows = run_in(&arena, method, BALANCERS)?.report.windows;
    let warm_up = (f64::from(arena.warm_up) / arena.rate_rps) as usize;
    let last = (f64::from(arena.requests) / arena.rate_rps) as usize;
    let second = |window: &Window| {
        let queues = &window.in_flight;
        let (least, most) = (queues.iter().min()?, queues.iter().max()?);
        let mean = f64::from(queues.iter().sum::<u32>()) / queues.len() as f64;
        Some((*least, *most, mean))
    };
    let measured = &windows[warm_up.min(windows.len())..last.min(windows.len())];
    Ok(Queues { method: method.name, seconds: measured.iter().filter_map(second).collect() })
}

impl Queues {
    fn mean(&self, of: impl Fn(&(u32, u32, f64)) -> f64) -> f64 {
        self.seconds.iter().map(of).sum::<f64>() / self.seconds.len().max(1) as f64
    }

    fn length(&self) -> f64 {
        self.mean(|(.., mean)| *mean)
    }

    fn spread(&self) -> f64 {
        self.mean(|(least, most, _)| f64::from(most - least))
    }
}

fn table(all: &[Queues]) -> Result<Table, Failure> {
    let mut table = Table::empty("queues", "Queues with 100 balancers, means over time");
    for queues in all {
        row!(table, Provenance::Simulated, {
            method: queues.method;
            mean_queue: queues.length(), "requests";
            shortest: queues.mean(|(least, ..)| f64::from(*least)), "requests";
            longest: queues.mean(|(_, most, _)| f64::from(*most)), "requests";
            longest_less_shortest: queues.spread(), "requests";
        })?;
    }
    Ok(table)
}

fn plot(all: &[Queues]) -> Plot {
    let mut lines = Vec::new();
    for queues in all.iter().take(2) {
        let from = queues.seconds.len().saturating_sub(SHOWN_S) / 2;
        let shown = queues.seconds.iter().skip(from).take(SHOWN_S).enumerate();
        let (mut longest, mut shortest): (Points, Points) = (Vec::new(), Vec::new());
        for (second, (least, most, _)) in shown {
            longest.push((second as f64, f64::from(*most)));
            shortest.push((second as f64, f64::from(*least)));
        }
        let line = |label: &str, points| {
            Lines::new(&format!("{}, {label}", queues.method), Provenance::Simulated, points)
                .drawn(Mark::Line)
        };
        lines.push(line("longest", longest));
        lines.push(line("shortest", shortest));
    }
    let y = Axis::linear("requests in the queue");
    Plot::lines(
        "queues",
        "The longest and the shortest of ten queues",
        Axis::linear("time (s)"),
        y,
        lines,
    )
}

fn comparisons(all: &[Queues]) -> Vec<Comparison> {
    let [lc, jsq, ..] = all else { return Vec::new() };
    let from = Provenance::Simulated;
    let paper = (THEIR_QUEUE, Tolerance::Part(0.3));
    let ratio = lc.spread() / jsq.spread();
    let what = "longest less shortest queue, least connections over JSQ";
    vec![
        Comparison::number(from, "mean queue under least connections", paper, lc.length(), "requests")
            .fitted("the load of 99 % of bloc-fig6")
            .why(
                "Near full load a queue's mean depends on the last per cent of load and on how services \
                 scatter, neither of which the paper gives.",
            ),
        Comparison::bound(from, what, ("very large", Bound::AtLeast(3.0)), ratio, "×")
            .why("JSQ keeps ten queues of equal servers within one request of each other."),
    ]
}
