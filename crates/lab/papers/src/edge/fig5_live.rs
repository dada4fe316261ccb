//! Figure 5 (§4) on real cores: a second node joins at full load.

use std::time::{Duration, Instant};

use super::live::{Cell, CellPlan, set};
use super::show::{WATER_FILL, WRR, mean};
use crate::Provenance::Measured;
use crate::comparison::Bound;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Mark, Plot};
use crate::{Comparison, Context, Experiment, Failure};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "edge-fig5-live",
    paper: &super::PAPER,
    figure: "Figure 5",
    title: "A second node joins at full load, live",
    claim: "Under EdgeBalance the loads of the two servers are equal in close to a second, under static WRR in about \
            35 s.",
    provenance: &[Measured],
    takes: Duration::from_secs(180),
    takes_quick: Duration::from_secs(40),
    run,
};

const WAYS: [(&str, &str); 2] = [(WATER_FILL, "water_fill"), (WRR, "weighted_round_robin")];
/// How long each flow lasts, milliseconds; flows at a time: so few that the bursts of one are less than 10 ms apart. Flows whose
/// packets are further apart look as if they ended young, and loads swing.
const LIVES_MS: [u64; 2] = [1_500, 10_000];
const FLOWS: u64 = 60;
const WORK_US: u32 = 8;
/// Of the first core, at first.
const BEFORE: f64 = 0.7;
/// What is offered then; the standby joins at 95 %. By costs at the load before, which are higher than at full load.
const FULL: f64 = 1.1;
const LOOK: Duration = Duration::from_millis(50);
/// Loads are equal when their mean distance over so many looks is at most so many points.
const LOOKS: usize = 4;
const EQUAL: f64 = 5.0;
/// A core that is busy for more than this part of a look has been given flows.
const SERVES: f64 = 0.03;
const JOINS: Duration = Duration::from_secs(10);
const RUNS: usize = 3;

/// One look: seconds since the second node served, and both cores' loads.
type Look = (f64, [f64; 2]);

struct Joined {
    way: &'static str,
    life_ms: u64,
    run: usize,
    looks: Vec<Look>,
}

impl Joined {
    /// Seconds from the second node's first packets until loads are equal.
    fn equal_after(&self) -> Option<f64> {
        let gap = |look: &Look| 100.0 * (look.1[0] - look.1[1]).abs();
        let after: Vec<&Look> = self.looks.iter().filter(|look| look.0 >= 0.0).collect();
        let equal =
            after.windows(LOOKS).find(|some| mean(some.iter().map(|look| gap(look))) <= EQUAL);
        equal.map(|some| some[LOOKS - 1].0)
    }
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let (runs, lives) = (context.pick(1, RUNS), &LIVES_MS[..context.pick(1, LIVES_MS.len())]);
    let all = (WAYS.len() * runs * lives.len()) as f64;
    let mut joined = Vec::new();
    for (way, policy) in WAYS {
        for life_ms in lives {
            for run in 1..=runs {
                context.progress(joined.len() as f64 / all, way)?;
                let looks = join(context, policy, *life_ms)?;
                joined.push(Joined { way, life_ms: *life_ms, run, looks });
            }
        }
    }
    Ok(Outcome {
        tables: vec![times(&joined)?, loads(&joined)?],
        plots: plots(&joined, lives),
        comparisons: comparisons(&joined, lives),
        notes: notes(),
    })
}

/// Loads from a second before the second node's first packets on.
fn join(context: &Context, policy: &'static str, life_ms: u64) -> Result<Vec<Look>, Failure> {
    let plan = CellPlan { standby: true, ..CellPlan::two_nodes(policy, WORK_US) };
    let cell = Cell::start(&plan, context.interrupt())?;
    let threads = cell.threads();
    // On the second node's core: it has nothing else to do at first.
    let clients = cell.clients(Some(1))?;
    let traffic = &clients.traffic;
    set(&traffic.flows, FLOWS);
    set(&traffic.life_ms, life_ms);
    set(&traffic.rate, 30_000);
    std::thread::sleep(Duration::from_secs(2));
    let rate = |load: f64| Ok::<_, Failure>((1e6 * load / cell.fresh()?.places[0].cost_us) as u64);
    set(&traffic.rate, rate(BEFORE)?);
    std::thread::sleep(Duration::from_secs(2));
    let full = rate(FULL)?;
    let mut looks: Vec<(Instant, [f64; 2])> = Vec::new();
    let busy = || [threads[0].seconds(), threads[1].seconds()];
    let (mut at, mut last) = (Instant::now(), busy());
    let (began, mut first) = (at, None);
    let lasts = Duration::from_millis(life_ms * 5 / 4) + Duration::from_secs(1);
    set(&traffic.rate, full);
    while first.is_none_or(|first: Instant| first.elapsed() < lasts) {
        context.check()?;
        if first.is_none() && began.elapsed() > JOINS {
            return Err(Failure::Other("the standby did not join within 10 s".to_owned()));
        }
        std::thread::sleep(LOOK);
        let (now, here) = (busy(), Instant::now());
        let seconds = (here - at).as_secs_f64();
        let load = [0, 1].map(|core| (now[core] - last[core]) / seconds);
        if first.is_none() && load[1] > SERVES {
            first = Some(at);
        }
        looks.push((here, load));
        (at, last) = (here, now);
    }
    let first = first.unwrap_or(began);
    let since = |at: Instant| {
        let after = at.saturating_duration_since(first).as_secs_f64();
        after - first.saturating_duration_since(at).as_secs_f64()
    };
    Ok(looks.into_iter().map(|(at, load)| (since(at), load)).filter(|look| look.0 > -1.0).collect())
}

fn comparisons(joined: &[Joined], lives: &[u64]) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for life in lives {
        for (way, _) in WAYS {
            let of = joined.iter().filter(|one| one.way == way && one.life_ms == *life);
            let time = mean(of.map(|one| one.equal_after().unwrap_or(f64::NAN)));
            let seconds = *life as f64 / 1e3;
            let what = format!("{way}, flows of {seconds} s: until loads are within 5 points");
            let one = if way == WATER_FILL && *life == LIVES_MS[0] {
                let paper = ("close to 1 s", Bound::AtMost(1.0));
                Comparison::bound(Measured, what, paper, time, "s").fitted("flows last 1.5 s")
            } else {
                Comparison::silent(
                    Measured,
                    what,
                    "about 35 s under WRR; lifetimes are not given",
                    time,
                    "s",
                )
            };
            comparisons.push(one.why(
                "Weights touch new flows alone: all of them to the new node make loads equal after half a lifetime, half of them \
                 after a whole one.",
            ));
        }
    }
    comparisons
}

fn times(joined: &[Joined]) -> Result<Table, Failure> {
    let mut table = Table::empty(
        "times",
        "From the second node's first packets until loads are within 5 points",
    );
    for one in joined {
        row!(table, Measured, {
            method: one.way;
            life_s: one.life_ms as f64 / 1e3, "s";
            run: one.run;
            equal_after_s: one.equal_after(), "s; none: not within 5/4 of a lifetime and a second";
        })?;
    }
    Ok(table)
}

fn loads(joined: &[Joined]) -> Result<Table, Failure> {
    let mut table = Table::empty("loads", "Loads of the two cores, looks of 50 ms");
    for one in joined {
        for (time, load) in &one.looks {
            row!(table, Measured, {
                method: one.way;
                life_s: one.life_ms as f64 / 1e3, "s";
                run: one.run;
                time_s: *time, "s since the second node's first packets";
                first_node_percent: 100.0 * load[0], "% of its core";
                second_node_percent: 100.0 * load[1], "% of its core";
            })?;
        }
    }
    Ok(table)
}

fn plots(joined: &[Joined], lives: &[u64]) -> Vec<Plot> {
    let plot = |life: &u64| {
        let of = joined.iter().filter(|one| one.life_ms == *life && one.run == 1);
        let lines = of.flat_map(|one| {
            [0, 1].map(|core| {
                let points = one.looks.iter().map(|look| (look.0, 100.0 * look.1[core])).collect();
                let label = format!("{}, node {}", one.way, core + 1);
                Lines::new(&label, Measured, points).drawn(Mark::Line)
            })
        });
        let title = format!("A second node joins; flows of {} s", *life as f64 / 1e3);
        let (x, y) = (Axis::linear("time (s)"), Axis::linear("CPU usage (%)"));
        Plot::lines(&format!("loads_{life}ms"), &title, x, y, lines.collect())
    };
    lives.iter().map(plot).collect()
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "Real forwarder and nodes on this machine, {WORK_US} µs of work a packet. {FLOWS} flows at a time, of 1.5 s or 10 s, \
             which is chosen; the first node goes from 70 to more than 95 % and a standby joins by the product's rule (95 % predicted). \
             Time is counted from the first packets that the second node's core works on."
        ),
        "Clients and forwarder share the second node's core, which therefore has less to give than the first.".to_owned(),
    ]
}
