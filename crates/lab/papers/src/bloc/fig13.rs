//! Figure 13 (§6.4): Poisson clients at 25 to 47 requests per second, of which ten backends serve 40.

use std::time::Duration;

use super::cluster::Cluster;
use super::methods::{ADAPTIVE, ALL, AVERAGE, BLOC, Method, P2C};
use super::show::{Case, Ran, notes, run_all, table};
use crate::Provenance::Simulated;
use crate::outcome::Outcome;
use crate::plot::{Axis, Lines, Plot};
use crate::{Bound, Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bloc-fig13",
    paper: &super::PAPER,
    figure: "Figure 13",
    title: "90th percentile and requests lost under Poisson arrivals",
    claim: "Least connections is overloaded from 35 requests/s on and loses more than 80 % at 47; BLOC's 90th \
            percentile stays low up to 47, where it drops 16 %: no more than must be, 15 %.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(1),
    takes_quick: Duration::from_secs(1),
    run,
};

const RATES_RPS: [f64; 6] = [25.0, 30.0, 35.0, 40.0, 43.0, 47.0];
/// What also runs without the settling minute: all five minutes count, as in the paper's runs.
const FROM_NOTHING_TOO: [Method; 4] = [BLOC, P2C, ADAPTIVE, AVERAGE];
/// Clients give up after the default of the paper's system.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the paper's runs are, seconds: an overload without admission gets worse all the time.
const WHOLE_S: f64 = 300.0;
/// What goes before and does not count, seconds: a learned capacity begins with a trial that lets in 16 per
/// backend. Were the measurement to begin while these wait, their service would be taken from those that count.
const SETTLING_S: f64 = 60.0;
/// The label of the runs that count from their first request.
const FROM_NOTHING: &str = "from nothing";
/// Ten per backend: what BLOC lets in, and the worst it lets anybody wait, seconds.
const WORST_S: f64 = 2.6;

fn run(context: &Context) -> Result<Outcome, Failure> {
    let mut cases = Vec::new();
    for method in ALL {
        for rate in RATES_RPS {
            let cluster = cluster(context, rate, SETTLING_S);
            cases.push(Case::new(format!("{rate}"), method, cluster));
        }
    }
    let worst = RATES_RPS[RATES_RPS.len() - 1];
    for method in FROM_NOTHING_TOO {
        cases.push(Case::new(FROM_NOTHING, method, cluster(context, worst, 0.0)));
    }
    let mut all = run_all(context, cases)?;
    let from_nothing = all.split_off(all.len() - FROM_NOTHING_TOO.len());
    let mut notes = notes();
    notes.push(
        "Table and plots: five minutes after one that does not count, for all alike. What is compared with the \
         paper runs from nothing, and all five minutes count, as in the paper (§6.1). Clients give up after \
         20 s; backends do not learn of it, and serve their requests in vain."
            .to_owned(),
    );
    Ok(Outcome {
        tables: vec![table(("rate_rps", "requests/s"), &all)],
        plots: vec![
            plot("p90", "90th percentile", Axis::log("response time (s)"), &all, |r| r.at(0.9)),
            plot("lost", "Requests lost", Axis::linear("requests lost (%)"), &all, Ran::lost),
        ],
        comparisons: comparisons(&all, &from_nothing),
        notes,
    })
}

/// A minute or nothing that does not count, and five that do.
fn cluster(context: &Context, rate_rps: f64, settling_s: f64) -> Cluster {
    let requests = (rate_rps * (settling_s + WHOLE_S)) as u32;
    let warm_up = Some((rate_rps * settling_s) as u32);
    let whole = Cluster { patience: Some(PATIENCE), requests, warm_up, ..Cluster::new(context) };
    whole.open(rate_rps)
}

fn of(all: &[Ran], method: Method) -> impl DoubleEndedIterator<Item = &Ran> {
    all.iter().filter(move |ran| ran.case.method == method)
}

/// The least that can be lost of what came: (λ − μ)/λ, percent.
fn least(ran: &Ran) -> f64 {
    let report = &ran.seen.report;
    let offered_rps = report.goodput_rps * report.offered() as f64 / report.requests.max(1) as f64;
    100.0 * (1.0 - ran.case.cluster.capacity_rps() / offered_rps).max(0.0)
}

/// What is lost at the greatest rate, beside the least; the paper gives no such number.
fn beside_least(ran: &Ran, why: &str) -> Comparison {
    let least = least(ran);
    let from = if ran.case.label == FROM_NOTHING { ", from nothing" } else { "" };
    let method = ran.case.method.name;
    let what =
        format!("lost at 47 requests/s under {method}{from}, of which (λ − μ)/λ cannot be served");
    let ours = format!("{:.1} %, least {least:.1} %", ran.lost());
    Comparison::silent(Simulated, what, "not given", ours, "").why(why)
}

fn comparisons(all: &[Ran], from_nothing: &[Ran]) -> Vec<Comparison> {
    let [bloc, lc, adaptive, average] = from_nothing else { return Vec::new() };
    let worst =
        |ran: &Ran| format!("90th percentile at 47 requests/s under {}", ran.case.method.name);
    let low = "No request waits behind more than nine.";
    let mut found = vec![
        Comparison::number(
            Simulated,
            "lost at 47 requests/s under BLOC",
            (16.0, Tolerance::Part(0.15)),
            bloc.lost(),
            "%",
        )
        .why("Ten backends serve 40 of 47: 15 % is the least."),
        Comparison::bound(
            Simulated,
            "lost at 47 requests/s under least connections",
            ("more than 80", Bound::AtLeast(80.0)),
            lc.lost(),
            "%",
        )
        .why(
            "First in first out, all are lost once the wait is beyond the clients' patience, 20 s, the default \
             of the paper's system: at 47 requests/s, 7 more than are served, after two of the five minutes. A \
             shorter patience loses more.",
        ),
        Comparison::bound(Simulated, worst(bloc), ("low", Bound::AtMost(WORST_S)), bloc.at(0.9), "s")
            .why(low),
        Comparison::silent(Simulated, worst(adaptive), "not given", adaptive.at(0.9), "s").why(
            "Plimsoll's own capacity, the default; the paper has its dynamic one in Figure 11 alone.",
        ),
    ];
    let learning = "It lets in more until it has learned, which it serves as well.";
    let average_sinks = "The mean of what was in flight is below the limit that made it, so the limit sinks to one.";
    found.extend([beside_least(adaptive, learning), beside_least(average, average_sinks)]);
    for (method, why) in [
        (BLOC, "A full queue of ten per backend throughout."),
        (ADAPTIVE, "It keeps queues short for up to 0.8 % of the throughput."),
        (AVERAGE, average_sinks),
    ] {
        found.extend(of(all, method).next_back().map(|ran| beside_least(ran, why)));
    }
    found
}

fn plot(name: &str, title: &str, y: Axis, all: &[Ran], value: fn(&Ran) -> f64) -> Plot {
    let line = |method: Method| {
        let points = RATES_RPS.into_iter().zip(of(all, method).map(value));
        let points = points.filter(|(_, value)| value.is_finite()).collect();
        Lines::new(method.name, Provenance::Simulated, points)
    };
    let x = Axis::linear("requests per second");
    Plot::lines(name, title, x, y, ALL.map(line).to_vec())
}

#[cfg(test)]
mod tests {
    use plimsoll_lanes::Interrupt;

    use super::super::cluster::run;
    use super::*;

    /// What is lost beyond what cannot be served, percentage points, is no more than this.
    const NEAR: f64 = 2.0;

    /// The default capacity in the overload, by ten seeds: after a minute, and from nothing.
    #[test]
    fn a_learned_capacity_loses_little_more_than_must_be() {
        for seed in 1..=10 {
            let context = Context::new(seed, false, Interrupt::never());
            for settling_s in [SETTLING_S, 0.0] {
                let cluster = cluster(&context, 47.0, settling_s);
                let seen = run(&cluster, ADAPTIVE).expect("it runs");
                let ran = Ran { case: Case::new("", ADAPTIVE, cluster), seen };
                let beyond = ran.lost() - least(&ran);
                println!("seed {seed}, after {settling_s} s: {beyond:.2} points");
                assert!(beyond < NEAR, "seed {seed}, after {settling_s} s: {beyond:.2}");
                assert!(beyond > 0.0 || settling_s == 0.0, "less than the least: {beyond:.2}");
            }
        }
    }
}
