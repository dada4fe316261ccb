//! Deadline refusal (§10, the study's future work), live in our proxy: an ingress before each server refuses at once
//! what it cannot answer in time.
//!
//! Three lanes with the same proxies on the way, an egress and an ingress before each server, and the same time for each
//! request. In the first the ingresses do not know of deadlines, and what is late is given up by the egress when its
//! time is over. In the second they believe the deadline that the egress sends (`trust`), and refuse for nothing
//! else. In the third their capacity is the default one as well, which adapts: what a user gets.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_lanes::{
    Family, LOOPBACK, Proxy, ProxySection, free_addresses, raise_descriptor_limit,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::lane::{Lane, Seen};
use super::method::{Balancer, Method, Weights};
use super::pool::{Addresses, Sizes, asks};
use super::servers::{Bed, chosen};
use super::sweep::Turn;
use crate::cells::Cells;
use crate::comparison::Bound;
use crate::lanes::wait;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, ServerPool};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "haproxy-deadline",
    paper: &super::PAPER,
    figure: "§10, future work",
    title: "Refusing at once what cannot be answered in time",
    claim: "Dropping requests that cannot meet their deadline is left to future work.",
    provenance: &[Provenance::Emulated],
    takes: Duration::from_secs(18 * 60),
    takes_quick: Duration::from_secs(12),
    run,
};

/// Parts of what the pool can do.
const LOADS: [f64; 4] = [0.7, 0.9, 1.1, 1.4];
const SIZES: Sizes<'static> = Sizes::Homogeneous;
/// More than ever are in flight: nothing is refused for want of room.
const ROOM: u32 = 100_000;
const UNAWARE: Method = called("deadline unknown");
const ALONE: Method = called("deadline refusal alone");
const DEFAULT: Method = called("deadline refusal, adaptive capacity");
const LANES: [Method; 3] = [UNAWARE, ALONE, DEFAULT];

const fn called(name: &'static str) -> Method {
    let balancer = Balancer::Proxy("expected_delay");
    Method { name, balancer, weights: Weights::Equal, is_steered: false }
}

/// What is kept of a lane.
#[derive(Serialize, Deserialize)]
struct Kept {
    seen: Seen,
    /// CPU time of all servers, seconds a second.
    busy_cores: f64,
    /// How long it was measured.
    seconds: f64,
}

struct Point {
    load: f64,
    round: u32,
    method: Method,
    kept: Kept,
}

impl Point {
    /// Answered in time, requests a second.
    fn goodput_rps(&self) -> f64 {
        self.kept.seen.requests as f64 * (1.0 - self.kept.seen.late) / self.kept.seconds
    }
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    raise_descriptor_limit();
    let pools = chosen(context)?;
    let mut cells = Cells::open(context, EXPERIMENT.name)?;
    let mut outcome = Outcome::default();
    let loads = context.chosen(&context.options.loads, &LOADS[3..], &LOADS);
    for (i, &pool) in pools.iter().enumerate() {
        let part = (i as f64 / pools.len() as f64, (i as f64 + 1.0) / pools.len() as f64);
        let (points, core_rps) = sweep(context, &mut cells, pool, loads, part)?;
        outcome.tables.push(table(pool, &points)?);
        outcome.plots.push(plot(pool, &points, loads));
        for method in [ALONE, DEFAULT] {
            let compare = |&load: &f64| comparison(pool, &points, method, load);
            outcome.comparisons.extend(loads.iter().filter_map(compare));
            let over = loads.iter().filter(|load| **load > 1.0);
            let of_possible = |&load: &f64| of_possible(pool, &points, method, load);
            outcome.comparisons.extend(over.filter_map(of_possible));
        }
        outcome.notes.push(format!(
            "{}: a core serves {core_rps:.1} requests/s of the mix, all servers together have {:.1} cores; a request has {} ms, of which the egress tells the ingress what is left (`plimsoll-deadline`); servers \
             are alike. Clients do not come again. What is refused is a client's error at once, and counts as late in \
             all lanes.",
            pool.title(),
            pool.total_cores(SIZES),
            pool.deadline().as_millis()
        ));
    }
    Ok(outcome)
}

fn sweep(
    context: &Context,
    cells: &mut Cells,
    pool: ServerPool,
    loads: &[f64],
    part: (f64, f64),
) -> Result<(Vec<Point>, f64), Failure> {
    let family = Family::start()?;
    let mut bed = Bed::start(context, &family, pool, SIZES, (&[], context.seed))?;
    let core_rps = bed.scale(context, &family, cells)?.core_rps;
    let rounds = context.repetitions(3);
    let all = f64::from(rounds) * (loads.len() * LANES.len()) as f64;
    let mut points: Vec<Point> = Vec::new();
    for round in 0..rounds {
        for &load in loads {
            for method in LANES {
                let number = points.len();
                let at = |n: usize| part.0 + (part.1 - part.0) * n as f64 / all;
                let step = Step {
                    method,
                    rate_rps: load * pool.total_cores(SIZES) * core_rps,
                    seed: context.seed + 1_000 * u64::from(round),
                    name: format!("deadline-{}-{number}", pool.name()),
                    part: (at(number), at(number + 1)),
                };
                let cell = format!("{}/{load}/{round}/{}", pool.name(), method.name);
                let kept = cells.get_or(&cell, || one(context, &family, &mut bed, &step))?;
                points.push(Point { load, round, method, kept });
            }
        }
    }
    Ok((points, core_rps))
}

/// One lane at one rate.
struct Step {
    method: Method,
    rate_rps: f64,
    seed: u64,
    name: String,
    part: (f64, f64),
}

fn one(context: &Context, family: &Family, bed: &mut Bed, step: &Step) -> Result<Kept, Failure> {
    let turn = Turn::of(context, bed.pool);
    let servers = bed.addresses();
    let ingresses = free_addresses(servers.len())?;
    let proxy = Proxy::start_with(family, &step.name, |socket, address| {
        let setting = Setting { socket, address, servers: &servers, ingresses: &ingresses };
        setting.configuration(bed.pool.deadline(), step.method)
    })?;
    let mut lane = Lane::behind_proxy(step.method, proxy);
    lane.open(&asks(bed.pool, &[]), step.rate_rps, step.seed)?;
    let what = format!("{}: {} at {:.1}/s", bed.pool.title(), step.method.name, step.rate_rps);
    let mut look = |time, part| {
        wait(context, time, part, &what, || {
            bed.check()?;
            lane.check()
        })
    };
    // Service times are learned within this.
    look(turn.warm_up * 2, (step.part.0, step.part.0))?;
    let (from, before) = (Instant::now(), bed.cpu_used()?);
    let mut look = |time, part| {
        wait(context, time, part, &what, || {
            bed.check()?;
            lane.check()
        })
    };
    look(turn.measure, step.part)?;
    let (to, after) = (Instant::now(), bed.cpu_used()?);
    let (seen, _) = lane.finish_together(from, to, bed.pool.deadline(), 1)?;
    Bed::settle(std::slice::from_ref(bed), context)?;
    let seconds = (to - from).as_secs_f64();
    let busy: f64 = after.iter().zip(before).map(|(after, before)| after - before).sum();
    Ok(Kept { seen, busy_cores: busy / seconds, seconds })
}

struct Setting<'a> {
    socket: &'a Path,
    address: SocketAddr,
    servers: &'a Addresses,
    ingresses: &'a [SocketAddr],
}

impl Setting<'_> {
    /// An egress for clients, and an ingress before each server.
    fn configuration(&self, deadline: Duration, method: Method) -> Value {
        let both = || self.servers.iter().zip(self.ingresses);
        let mut keys = json!({});
        if method != DEFAULT {
            keys["capacity"] = json!({ "static": ROOM });
        }
        if method != UNAWARE {
            keys["trust"] = json!(LOOPBACK);
        }
        let section = both().fold(ProxySection::default(), |section, ((name, server), listen)| {
            section.ingress(name, *listen, *server, keys.clone())
        });
        let timeouts = json!({ "request": format!("{}ms", deadline.as_millis()) });
        let backends = both().map(|((name, _), listen)| (name.as_str(), *listen, 1));
        section
            .socket(self.socket)
            .egress("clients", self.address, json!({ "timeouts": timeouts }))
            .pool("pool", backends, json!({ "policy": "expected_delay" }))
            .file()
    }
}

fn table(pool: ServerPool, points: &[Point]) -> Result<Table, Failure> {
    let title = format!("Answered in time, with and without deadline refusal, {}", pool.title());
    let mut table = Table::empty(pool.name(), &title);
    for p in points {
        let Kept { seen, busy_cores, seconds } = &p.kept;
        row!(table, pool.provenance(), {
            load: p.load, "part of the capacity";
            lane: p.method.name;
            repetition: p.round + 1;
            offered_rps: seen.requests as f64 / seconds, "requests/s";
            in_time_rps: p.goodput_rps(), "requests/s";
            in_time: 1.0 - seen.late, "part of the requests";
            unanswered: seen.errors as f64 / seen.requests.max(1) as f64, "part of the requests";
            told_after_ms: Some(seen.refused_ms).filter(|ms| ms.is_finite()), "ms, those without an answer";
            busy_cores: *busy_cores, "cores of the servers";
        })?;
    }
    Ok(table)
}

/// Means over the repetitions.
fn mean(points: &[Point], method: Method, load: f64, value: fn(&Point) -> f64) -> Option<f64> {
    let those = points.iter().filter(|p| p.method == method && p.load == load);
    plimsoll_lanes::mean(&those.map(value).collect::<Vec<_>>())
}

fn plot(pool: ServerPool, points: &[Point], loads: &[f64]) -> Plot {
    let line = |method: &Method| {
        let at = |&load: &f64| {
            Some((100.0 * load, 100.0 * mean(points, *method, load, |p| 1.0 - p.kept.seen.late)?))
        };
        Lines::new(method.name, pool.provenance(), loads.iter().filter_map(at).collect())
    };
    let (x, y) = (Axis::linear("load (% of capacity)"), Axis::linear("answered in time (%)"));
    let name = format!("deadline-{}", pool.name());
    let title = format!("Deadline refusal, {}", pool.title());
    Plot::lines(&name, &title, x, y, LANES.iter().map(line).collect())
}

fn comparison(pool: ServerPool, points: &[Point], method: Method, load: f64) -> Option<Comparison> {
    let good = |method| mean(points, method, load, Point::goodput_rps);
    let (with, without) = (good(method)?, good(UNAWARE)?);
    let told = |method| mean(points, method, load, |p| p.kept.seen.refused_ms);
    let both = told(method).zip(told(UNAWARE));
    let both = both.filter(|(with, without)| with.is_finite() && without.is_finite());
    let told = both.map_or(String::new(), |(with, without)| {
        format!(
            " Those without an answer are told after {with:.0} ms, and after {without:.0} ms without it."
        )
    });
    let what = format!(
        "{}, {:.0} % of capacity: answered in time, {} over {}",
        pool.title(),
        100.0 * load,
        method.name,
        UNAWARE.name
    );
    let silent = "left to future work";
    let why = format!("The study measures nothing of it.{told}");
    Some(Comparison::silent(pool.provenance(), what, silent, with / without, "×").why(why))
}

/// What is answered in time beside what the servers could do, where more is asked of them: a target of Plimsoll's.
fn of_possible(
    pool: ServerPool,
    points: &[Point],
    method: Method,
    load: f64,
) -> Option<Comparison> {
    let possible = 1.0 / load;
    let ours = mean(points, method, load, |p| 1.0 - p.kept.seen.late)? / possible;
    let what = format!(
        "{}, {:.0} % of capacity: answered in time, of what the servers can do, {}",
        pool.title(),
        100.0 * load,
        method.name
    );
    let target = ("as much as the servers can do", Bound::AtLeast(0.9));
    let why = "A tenth is left for requests that are refused or given up late.";
    Some(Comparison::bound(pool.provenance(), what, target, ours, "×").target().why(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_s_ingresses_believe_and_refuse_what_its_name_says() {
        let servers = vec![("s1".to_owned(), "127.0.0.1:81".parse().unwrap())];
        let ingresses = ["127.0.0.1:91".parse().unwrap()];
        let address = "127.0.0.1:80".parse().unwrap();
        let setting =
            Setting { socket: Path::new("/x"), address, servers: &servers, ingresses: &ingresses };
        let all = LANES.map(|method| setting.configuration(Duration::from_secs(3), method));
        let of = |key: &str| all.clone().map(|text| text["proxy"]["ingress"][0][key].clone());
        let believed = json!(["127.0.0.0/8"]);
        assert_eq!(of("trust"), [Value::Null, believed.clone(), believed]);
        let room = json!({ "static": ROOM });
        assert_eq!(of("capacity"), [room.clone(), room, Value::Null]);
        for text in all {
            let proxy = &text["proxy"];
            assert_eq!(proxy["pools"][0]["backends"][0]["address"], proxy["ingress"][0]["listen"]);
            assert_eq!(proxy["egress"][0]["timeouts"]["request"], "3000ms");
        }
    }
}
