//! Figure 10 (§6.2): the same over what a request costs a backend, 100 to 500 ms.

use std::time::Duration;

use super::cluster::Cluster;
use super::methods::{ALL, BLOC, JSQ, Method, P2C};
use super::show::{Case, Ran, notes, run_all, table};
use crate::Provenance::Simulated;
use crate::outcome::Outcome;
use crate::plot::{Axis, Lines, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bloc-fig10",
    paper: &super::PAPER,
    figure: "Figure 10",
    title: "BLOC, JSQ and least connections over the cost of a request",
    claim: "BLOC's responses are spread about as JSQ's, at any cost of a request, and much less than those \
            of least connections.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(8),
    takes_quick: Duration::from_secs(1),
    run,
};

const COSTS_MS: [f64; 5] = [100.0, 150.0, 250.0, 350.0, 500.0];
const SHOWN: [Method; 3] = [P2C, JSQ, BLOC];

fn run(context: &Context) -> Result<Outcome, Failure> {
    let mut cases = Vec::new();
    for method in ALL {
        for service_ms in COSTS_MS {
            let cluster = Cluster { service_ms, ..Cluster::new(context) };
            cases.push(Case::new(format!("{service_ms:.0}"), method, cluster));
        }
    }
    let all = run_all(context, cases)?;
    let of = |method: Method| all.iter().filter(move |ran| ran.case.method == method);
    let ratios = |value: fn(&Ran) -> f64, over: Method| -> (f64, f64) {
        let pairs = of(over).zip(of(BLOC)).map(|(other, bloc)| value(other) / value(bloc));
        pairs.fold((f64::MAX, 0.0), |(least, most), r| (least.min(r), most.max(r)))
    };
    let (least, most) = ratios(Ran::range, P2C);
    let (low, high) = ratios(|ran| ran.at(0.99), JSQ);
    let range = |what: &str, ours: f64| {
        let what = format!("range p10 to p90, least connections over BLOC, {what} of all costs");
        Comparison::range(Simulated, what, (2.0, 4.0, Tolerance::Part(0.1)), ours, "×")
            .why("Simulated services do not scatter, so BLOC's range is narrower still.")
    };
    let tail = |what: &str, ours: f64| {
        let what = format!("p99, JSQ over BLOC, {what} of all costs");
        Comparison::number(Simulated, what, (1.0, Tolerance::Part(0.15)), ours, "×")
            .why("A refused request starts anew, and its tries count.")
    };
    let comparisons = vec![
        range("the least", least),
        range("the greatest", most),
        tail("the least", low),
        tail("the greatest", high),
    ];
    let line = |value: f64| {
        SHOWN.map(|method| {
            let points =
                of(method).map(|ran| (ran.case.cluster.service_ms, ran.at(value))).collect();
            Lines::new(method.name, Provenance::Simulated, points)
        })
    };
    let plot = |name: &str, title: &str, quantile: f64| {
        let (x, y) = (Axis::linear("cost of a request (ms)"), Axis::linear("response time (s)"));
        Plot::lines(name, title, x, y, line(quantile).to_vec())
    };
    let plots = vec![
        plot("p10", "10th percentile", 0.1),
        plot("p50", "Median", 0.5),
        plot("p90", "90th percentile", 0.9),
        plot("p99", "99th percentile", 0.99),
    ];
    let tables = vec![table(("cost_ms", "ms"), &all)];
    Ok(Outcome { tables, plots, comparisons, notes: notes() })
}
