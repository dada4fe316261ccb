//! Figure 13 (§6.4): Poisson clients at 25 to 47 requests per second, of which ten backends serve 40.

use std::time::Duration;

use super::cluster::Cluster;
use super::show::{Case, Ran, holds, notes, run_all, table, within};
use super::ways::{ALL, BLOC, P2C, Way};
use crate::outcome::Outcome;
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
    takes: Duration::from_secs(20),
    takes_quick: Duration::from_secs(2),
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
            let cluster = cluster.open(rate);
            cases.push(Case::new(format!("{rate}"), way, cluster));
        }
    }
    let all = run_all(context, cases)?;
    let of = |way: Way| all.iter().filter(move |ran| ran.case.way == way);
    let last = |way| of(way).next_back();
    let mut comparisons = Vec::new();
    if let (Some(bloc), Some(lc)) = (last(BLOC), last(P2C)) {
        comparisons.push(within(
            0.15,
            "lost at 47 requests/s under BLOC",
            16.0,
            bloc.lost(),
            "%",
            "Ten backends serve 40 of 47: 15 % is the least.",
        ));
        comparisons.push(holds(
            "lost at 47 requests/s under least connections",
            "more than 80 %",
            format!("{:.0} %", lc.lost()),
            lc.lost() > 80.0,
            "First in first out, all are lost once the wait is beyond the clients' patience, 20 s: at 47 requests/s, \
             7 more than are served, after two of the five minutes. A shorter patience loses more.",
        ));
        comparisons.push(holds(
            "90th percentile at 47 requests/s under BLOC",
            "low",
            format!("{:.2} s", bloc.at(0.9)),
            bloc.at(0.9) < WORST_S,
            "Nobody waits behind more than nine.",
        ));
    }
    let lines = |value: fn(&Ran) -> f64| {
        let line = |way: Way| {
            let rate = |ran: &Ran| ran.seen.report.offered() as f64;
            let points = of(way)
                .zip(RATES_RPS)
                .filter(|(ran, _)| rate(ran) > 0.0 && value(ran).is_finite())
                .map(|(ran, rate)| (rate, value(ran)));
            Lines::new(way.name, Provenance::Simulated, points.collect())
        };
        ALL.map(line).to_vec()
    };
    let x = || Axis::linear("requests per second");
    let plots = vec![
        Plot::lines(
            "p90",
            "90th percentile",
            x(),
            Axis::log("response time (s)"),
            lines(|r| r.at(0.9)),
        ),
        Plot::lines(
            "lost",
            "Requests lost",
            x(),
            Axis::linear("requests lost (%)"),
            lines(Ran::lost),
        ),
    ];
    let mut notes = notes();
    notes.push(
        "Five minutes, as the paper's runs; clients give up after 20 s, and backends serve for nobody those \
         who did."
            .to_owned(),
    );
    let tables = vec![table(("rate_rps", "requests/s"), &all)];
    Ok(Outcome { tables, plots, comparisons, notes })
}
