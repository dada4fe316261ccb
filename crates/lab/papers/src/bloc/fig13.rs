//! Figure 13 (§6.4): Poisson clients at 25 to 47 requests per second, of which ten backends serve 40.

use std::time::Duration;

use super::cluster::Cluster;
use super::show::{Case, Ran, holds, notes, run_all, table, within};
use super::ways::{ALL, BLOC, P2C, Way};
use crate::outcome::{Comparison, Outcome};
use crate::plot::{Axis, Lines, Plot};
use crate::{Context, Experiment, Failure, Provenance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bloc-fig13",
    paper: &super::PAPER,
    figure: "Figure 13",
    title: "90th percentile and requests lost under Poisson arrivals",
    claim: "Least connections is overloaded from 35 requests/s on and loses more than 80 % at 47; BLOC's 90th \
            percentile stays low up to 47, where it drops 16 %.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(1),
    takes_quick: Duration::from_secs(1),
    run,
};

const RATES_RPS: [f64; 6] = [25.0, 30.0, 35.0, 40.0, 43.0, 47.0];
/// Clients give up after the default of the paper's system.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the paper's runs are, seconds: an overload without admission gets worse all the time.
const WHOLE_S: f64 = 300.0;
/// Ten per backend: what BLOC lets in, and the worst it lets anybody wait, seconds.
const WORST_S: f64 = 2.6;

fn run(context: &Context) -> Result<Outcome, Failure> {
    let mut cases = Vec::new();
    for way in ALL {
        for rate in RATES_RPS {
            let requests = (rate * WHOLE_S) as u32;
            let cluster = Cluster { patience: Some(PATIENCE), requests, ..Cluster::new(context) };
            cases.push(Case::new(format!("{rate}"), way, cluster.open(rate)));
        }
    }
    let all = run_all(context, cases)?;
    let mut notes = notes();
    notes.push(
        "Five minutes, as the paper's runs; clients give up after 20 s, and backends serve for nobody those \
         who did."
            .to_owned(),
    );
    Ok(Outcome {
        tables: vec![table(("rate_rps", "requests/s"), &all)],
        plots: vec![
            plot("p90", "90th percentile", Axis::log("response time (s)"), &all, |r| r.at(0.9)),
            plot("lost", "Requests lost", Axis::linear("requests lost (%)"), &all, Ran::lost),
        ],
        comparisons: comparisons(&all),
        notes,
    })
}

fn of(all: &[Ran], way: Way) -> impl DoubleEndedIterator<Item = &Ran> {
    all.iter().filter(move |ran| ran.case.way == way)
}

fn comparisons(all: &[Ran]) -> Vec<Comparison> {
    let last = |way| of(all, way).next_back();
    let (Some(bloc), Some(lc)) = (last(BLOC), last(P2C)) else { return Vec::new() };
    vec![
        within(
            0.15,
            "lost at 47 requests/s under BLOC",
            16.0,
            bloc.lost(),
            "%",
            "Ten backends serve 40 of 47: 15 % is the least.",
        ),
        holds(
            "lost at 47 requests/s under least connections",
            "more than 80 %",
            format!("{:.0} %", lc.lost()),
            lc.lost() > 80.0,
            "First in first out, all are lost once the wait is beyond the clients' patience, 20 s: at 47 \
             requests/s, 7 more than are served, after two of the five minutes. A shorter patience loses \
             more.",
        ),
        holds(
            "90th percentile at 47 requests/s under BLOC",
            "low",
            format!("{:.2} s", bloc.at(0.9)),
            bloc.at(0.9) < WORST_S,
            "Nobody waits behind more than nine.",
        ),
    ]
}

fn plot(name: &str, title: &str, y: Axis, all: &[Ran], value: fn(&Ran) -> f64) -> Plot {
    let line = |way: Way| {
        let points = RATES_RPS.into_iter().zip(of(all, way).map(value));
        let points = points.filter(|(_, value)| value.is_finite()).collect();
        Lines::new(way.name, Provenance::Simulated, points)
    };
    let x = Axis::linear("requests per second");
    Plot::lines(name, title, x, y, ALL.map(line).to_vec())
}
