//! The attacks of §6: SYNs of millions of connections, and millions of guessed cookies. The
//! same code is held to its promises by the tests of `crates/io/l4`.

use std::time::Duration;

use plimsoll_l4::{Policy, REASONS};
use plimsoll_l4bench::{Flood, Forged, Replies, Rig, SERVERS, chi_square, flood, forge, legs};
use plimsoll_testbed::net::{Namespaces, requirements};

use crate::Provenance::Measured;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Bars, Plot};
use crate::{Bound, Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cheetah-attacks",
    paper: &super::PAPER,
    figure: "§6",
    title: "Floods of SYNs, and of forged cookies",
    claim: "Without a table there is nothing to fill, and a cookie that was not given cannot choose a server.",
    provenance: &[Provenance::Measured],
    takes: Duration::from_secs(20),
    takes_quick: Duration::from_secs(3),
    run,
};

/// Connections that go on during the flood.
const LIVE: usize = 64;
/// Pearson's statistic that one sample in 10,000 passes, at 15 degrees of freedom.
const CHI_SQUARE: f64 = 44.3;

fn run(context: &Context) -> Result<Outcome, Failure> {
    requirements()?;
    let total: u32 = context.pick(1_000_000, 10_000_000);
    let (first, strayed) = on_rig(Policy::LeastConnections, |rig| {
        let tell = |done| context.progress(0.7 * done, "SYNs");
        let first = flood(rig, u64::from(total), LIVE, tell)?;
        Ok((first, rig.reasons()?.iter().sum::<u64>()))
    })?;
    context.progress(0.8, "forged cookies")?;
    let forged = on_rig(Policy::RoundRobin, |rig| Ok(forge(rig, total)?))?;
    let notes = vec![
        format!(
            "{SERVERS} servers; packets are made in the kernel. The flood comes in bursts of 65,536; after each, \
             {LIVE} live connections send a packet both ways, which must reach its end with the right \
             timestamp. {strayed} packets of it went by one of the {} other ways.",
            REASONS.len()
        ),
        "A forged cookie is 16 random bits: one in two names the salt that there is, and 16 of 2,048 numbers \
         are a server's, so that one in 256 is taken for valid; the others go where the connection's hash says \
         and are counted."
            .to_owned(),
    ];
    Ok(Outcome {
        tables: vec![table(&first, &forged)?],
        plots: vec![plot(&first, &forged)],
        comparisons: comparisons(&first, &forged),
        notes,
    })
}

fn on_rig<T: Send>(
    policy: Policy,
    work: impl FnOnce(&Rig) -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    let net = Namespaces::new(&["lb", "out"])?;
    net.run("lb", &legs(&net.full("out")))?;
    net.inside("lb", || work(&Rig::new(net.pins(), policy, SERVERS, Replies::Uplink)?))?
}

fn table(first: &Flood, forged: &Forged) -> Result<Table, Failure> {
    let turns = "SYNs, live connections' turns included";
    let statistic = "forged cookies, Pearson's statistic against an even spread";
    let (least, most) = ends(&first.opened);
    let (least_forged, most_forged) = ends(&forged.by_server);
    let mut table = Table::empty("attacks", "What came of them");
    for (what, value, unit) in [
        ("SYNs", first.sent as f64, "packets"),
        (turns, first.sent as f64 / first.seconds, "packets/s"),
        ("maps before", first.before.bytes() as f64, "bytes"),
        ("maps after", first.after.bytes() as f64, "bytes"),
        ("remembered fragments after", first.after.fragments as f64, "entries"),
        ("packets of live connections", first.asked as f64, "packets"),
        ("of these, lost or misled", first.astray as f64, "packets"),
        ("SYNs, server with the fewest", least, "packets"),
        ("SYNs, server with the most", most, "packets"),
        ("forged cookies", forged.sent as f64, "packets"),
        ("of these, counted as nobody's", forged.counted as f64, "packets"),
        ("forged cookies, server with the fewest", least_forged, "packets"),
        ("forged cookies, server with the most", most_forged, "packets"),
        (statistic, chi_square(&forged.by_server), ""),
    ] {
        row!(table, Measured, { what: what; value: value; unit: unit; })?;
    }
    Ok(table)
}

fn ends(counts: &[u64]) -> (f64, f64) {
    let (least, most) = (counts.iter().min(), counts.iter().max());
    (least.map_or(f64::NAN, |n| *n as f64), most.map_or(f64::NAN, |n| *n as f64))
}

fn plot(first: &Flood, forged: &Forged) -> Plot {
    let share = |counts: &[u64]| {
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        counts.iter().map(|count| Some(100.0 * (*count as f64 / mean - 1.0))).collect()
    };
    let series = [("SYNs", &first.opened), ("forged cookies", &forged.by_server)];
    Plot::bars(
        "spread",
        "How far each server's packets are from the mean",
        "server",
        Axis::linear("from the mean (%)"),
        (1..=first.opened.len()).map(|n| n.to_string()).collect(),
        series
            .into_iter()
            .map(|(label, counts)| Bars::new(label, Provenance::Measured, share(counts)))
            .collect(),
    )
}

fn comparisons(first: &Flood, forged: &Forged) -> Vec<Comparison> {
    let grown = first.after.bytes() as f64 - first.before.bytes() as f64;
    let why = "The program does not keep what it promises.";
    let none = (0.0, Tolerance::Absolute(0.0));
    let what = "packets of live connections lost or misled during a flood of SYNs";
    let of = format!("of {}", first.asked);
    let even = ("evenly", Bound::AtMost(CHI_SQUARE));
    let statistic = chi_square(&forged.by_server);
    vec![
        Comparison::number(Measured, "state that a flood of SYNs adds", none, grown, "bytes")
            .why(why),
        Comparison::number(Measured, what, none, first.astray as f64, &of).why(why),
        Comparison::bound(
            Measured,
            "forged cookies spread over the servers",
            even,
            statistic,
            "Pearson's statistic",
        )
        .why(why),
    ]
}
