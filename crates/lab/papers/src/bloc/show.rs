//! Tables, plots and comparisons that the figures share.

use super::cluster::{Cluster, Seen, run};
use super::methods::Method;
use crate::outcome::Table;
use crate::plot::{Axis, Lines, Mark, Plot};
use crate::{Cell, Context, Failure, Provenance};

/// Points of a distribution in a plot.
const POINTS: usize = 100;

/// One run of a figure.
pub struct Case {
    /// What distinguishes it from the others of its figure besides the way.
    pub label: String,
    /// The method.
    pub method: Method,
    /// On what.
    pub cluster: Cluster,
}

impl Case {
    /// One run; the label may be empty.
    pub fn new(label: impl Into<String>, method: Method, cluster: Cluster) -> Self {
        Case { label: label.into(), method, cluster }
    }
}

/// A case and what came of it.
pub struct Ran {
    /// Which.
    pub case: Case,
    /// What was seen.
    pub seen: Seen,
}

/// Runs all of them; progress goes from 0 to 1.
pub fn run_all(context: &Context, cases: Vec<Case>) -> Result<Vec<Ran>, Failure> {
    let count = cases.len() as f64;
    let one = |(i, case): (usize, Case)| {
        let what = format!("{} {}", case.method.name, case.label);
        context.progress(i as f64 / count, what.trim())?;
        let seen = run(&case.cluster, case.method)?;
        Ok(Ran { case, seen })
    };
    cases.into_iter().enumerate().map(one).collect()
}

impl Ran {
    /// Its name in plots.
    pub fn name(&self) -> String {
        let Case { label, method, .. } = &self.case;
        if label.is_empty() { method.name.to_owned() } else { format!("{}, {label}", method.name) }
    }

    /// This quantile of the responses, seconds.
    pub fn at(&self, quantile: f64) -> f64 {
        let times = &self.seen.report.times_us;
        let rank = (quantile * times.len().saturating_sub(1) as f64) as usize;
        times.get(rank).map_or(f64::NAN, |&us| f64::from(us) / 1e6)
    }

    /// From the 10th to the 90th percentile, seconds.
    pub fn range(&self) -> f64 {
        self.at(0.9) - self.at(0.1)
    }

    /// The part of the requests that were not served in time, percent.
    pub fn lost(&self) -> f64 {
        let report = &self.seen.report;
        100.0 * (1.0 - report.requests as f64 / report.offered().max(1) as f64)
    }
}

/// One row per run; `what` heads the column of labels.
pub fn table(what: (&str, &str), all: &[Ran]) -> Table {
    let mut table = Table::new(
        "responses",
        "Response times of the requests that were served, and what became of the others",
        &[
            ("method", ""),
            what,
            ("frontends", ""),
            ("p10_s", "s"),
            ("p50_s", "s"),
            ("p90_s", "s"),
            ("p99_s", "s"),
            ("p10_to_p90_s", "s"),
            ("mean_s", "s"),
            ("served_rps", "requests/s"),
            ("lost_percent", "% of the requests"),
            ("tries", "per request"),
            ("sent_imbalance", "requests sent in 2 s, standard deviation over backends"),
            ("served_imbalance", "the same of requests served"),
        ],
    );
    for ran in all {
        let report = &ran.seen.report;
        let cells: [Cell; 14] = [
            ran.case.method.name.into(),
            ran.case.label.as_str().into(),
            ran.case.cluster.frontends.into(),
            ran.at(0.1).into(),
            ran.at(0.5).into(),
            ran.at(0.9).into(),
            ran.at(0.99).into(),
            ran.range().into(),
            (report.mean_us / 1e6).into(),
            report.goodput_rps.into(),
            ran.lost().into(),
            report.tries_per_request().into(),
            ran.seen.truth.imbalance().into(),
            report.imbalance().into(),
        ];
        table.row(Provenance::Simulated, cells);
    }
    table
}

/// The distribution functions of these runs.
pub fn distributions<'a>(title: &str, shown: impl IntoIterator<Item = &'a Ran>) -> Plot {
    let line = |ran: &Ran| {
        let points = (0..=POINTS).map(|k| {
            let part = k as f64 / POINTS as f64;
            (ran.at(part), part)
        });
        Lines::new(&ran.name(), Provenance::Simulated, points.collect()).drawn(Mark::Line)
    };
    Plot::lines(
        "distribution",
        title,
        Axis::linear("response time (s)"),
        Axis::linear("part of the requests").from_to(0.0, 1.0),
        shown.into_iter().map(line).collect(),
    )
}

/// What a reader of any of these figures must know.
pub fn notes() -> Vec<String> {
    [
        "Everything is simulated: backends serve one request at a time, first in first out; frontends balance \
         by what they see of their own requests; a gateway sends each request to a frontend drawn at random; \
         1 ms each way between frontend and backend. Closed clients: 100 users (`hey -c 100`), 150 ms in the \
         mean between an answer and the next request, which makes admission alone drop the paper's third \
         (table over it in bloc-fig12); the paper does not give it.",
        "JSQ knows all queues, which no real balancer does; the paper takes one frontend with LC for it. \
         \"LC (P2C)\" is the paper's baseline (and Envoy's): of two backends the one with fewer of the \
         frontend's own requests; \"LC over all\" looks at all ten.",
        "BLOC is Plimsoll's: admission and chips as in the paper, three tries; its search is bounded, where the \
         paper's loop spins when nobody is eligible. With 100 users and 10 backends the capacity of 10, which \
         the paper finds to be the best, is 100 / 10.",
    ]
    .map(str::to_owned)
    .to_vec()
}
