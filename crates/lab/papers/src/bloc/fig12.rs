//! Figure 12 (§6.3): BLOC put together part by part: admission, backing off, trying again.

use std::time::Duration;

use plimsoll_policy::PolicyKind;

use super::cluster::{Cluster, run as run_one};
use super::methods::{ALL, Balance, Door, Method, bloc};
use super::show::{Case, Ran, distributions, notes, run_all, table};
use crate::Provenance::Simulated;
use crate::outcome::{Outcome, Table};
use crate::plot::{Axis, Bars, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bloc-fig12",
    paper: &super::PAPER,
    figure: "Figure 12",
    title: "What BLOC's parts contribute",
    claim: "Admission alone narrows responses and drops a third of the requests (4,000 of 12,000); backing off \
            narrows them further and drops more; trying again drops few, and all of BLOC fewest.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(7),
    takes_quick: Duration::from_secs(1),
    run,
};

const TEN: Door = Door::Static(10);
const PARTS: [Method; 4] = [
    Method { name: "admission", balance: Balance::By(PolicyKind::PowerOfN), door: TEN, tries: 1 },
    Method { name: "admission, back-off", tries: 1, ..bloc("", TEN) },
    Method {
        name: "admission, tries",
        balance: Balance::By(PolicyKind::PowerOfN),
        door: TEN,
        tries: 3,
    },
    bloc("admission, back-off, tries", TEN),
];
/// The paper's drops of 12,000 requests: admission alone, with tries, and all of BLOC; percent.
const THEIRS: [f64; 3] = [100.0 * 4.0 / 12.0, 100.0 * 446.0 / 12_000.0, 100.0 * 346.0 / 12_000.0];
/// How many fewer requests all of BLOC drops than admission with tries (446 and 346), percent.
const THEIR_GAIN: f64 = 22.0;

fn run(context: &Context) -> Result<Outcome, Failure> {
    let cluster = Cluster::new(context);
    let methods = PARTS.into_iter().chain(ALL);
    let all = run_all(context, methods.map(|method| Case::new("", method, cluster)).collect())?;
    let [alone, back_off, tries, whole, lc] = [0, 1, 2, 3, 4].map(|i| &all[i]);
    let number = |what: &str, paper: (f64, Tolerance), ours: f64| {
        Comparison::number(Simulated, format!("requests dropped: {what}"), paper, ours, "%")
    };
    let part = Tolerance::Part;
    let place = "Each try is drawn among the others, blindly or by chips; both find a place when there is one.";
    let comparisons = vec![
        number("admission alone", (THEIRS[0], part(0.15)), alone.lost())
            .fitted("150 ms from an answer to the user's next request (table over it)")
            .why("How many depends on how soon a refused user comes back."),
        Comparison::order(
            Simulated,
            "requests dropped: backing off without trying again",
            "more than by admission alone",
            [("admission", alone.lost()), ("with back-off", back_off.lost())],
            "%",
        )
        .why(
            "Chips steer requests past full queues, so fewer are refused. The paper's frontends may have spun \
             for a chip meanwhile.",
        ),
        number("tries", (THEIRS[1], part(0.25)), tries.lost()).why(place),
        number("all of BLOC", (THEIRS[2], part(0.25)), whole.lost()).why(place),
        number(
            "all of BLOC, less than with tries alone",
            (THEIR_GAIN, Tolerance::Absolute(5.0)),
            100.0 * (1.0 - whole.lost() / tries.lost()),
        )
        .why(place),
        Comparison::order(
            Simulated,
            "range p10 to p90: all of BLOC beside least connections",
            "narrower",
            [("BLOC", whole.range()), ("LC", lc.range())],
            "s",
        )
        .why("No request waits behind more than nine."),
    ];
    let names = PARTS.map(|method| method.name.to_owned()).to_vec();
    let lost = all[..4].iter().map(|ran| Some(ran.lost())).collect();
    let theirs = vec![Some(THEIRS[0]), None, Some(THEIRS[1]), Some(THEIRS[2])];
    let series = vec![
        Bars::new("dropped", Provenance::Simulated, lost),
        Bars::new("paper", Provenance::Reported, theirs),
    ];
    let y = Axis::linear("requests dropped (%)");
    let plots = vec![
        distributions("Responses part by part", &all[..5]),
        Plot::bars("drops", "Requests dropped part by part", "parts", y, names, series),
    ];
    let tables = vec![table(("set_up", ""), &all), between(context)?];
    Ok(Outcome { tables, plots, comparisons, notes: notes() })
}

/// Drops over how soon users come back.
fn between(context: &Context) -> Result<Table, Failure> {
    let names = PARTS.map(|method| method.name.replace([',', ' '], "_").replace("__", "_"));
    let columns: Vec<(&str, &str)> = [("between_ms", "ms, from an answer to the next request")]
        .into_iter()
        .chain(names.iter().map(|name| (name.as_str(), "% dropped")))
        .collect();
    let mut table =
        Table::new("between", "Requests dropped over how soon users come back", &columns);
    for ms in [2_u32, 10, 50, 100, 150, 200, 300] {
        context.check()?;
        let between = Duration::from_millis(u64::from(ms));
        let cluster = Cluster { between, ..Cluster::new(context) };
        let mut cells = vec![ms.into()];
        for method in PARTS {
            let seen = run_one(&cluster, method)?;
            cells.push(Ran { case: Case::new("", method, cluster), seen }.lost().into());
        }
        table.row(Provenance::Simulated, cells);
    }
    Ok(table)
}
