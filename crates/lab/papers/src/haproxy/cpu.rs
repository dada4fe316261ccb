//! CPU-aware random (§10): on a stock HAProxy, as `balance random` and weight 0 for servers whose CPU is above a
//! threshold, and in our proxy, as its policy `cpu_random`.
//!
//! The study patches HAProxy's C code to ask libvirt. Here a controller outside reads the CPU of each server, of
//! control groups where servers are real, twice a second, and sets weights over the admin socket. A server is in
//! again once it is below; when all are above, all are in, as our policy `cpu_random` does it.
//!
//! What the study promises of it is equality: how far apart the servers' utilisations are is measured. Beside it runs
//! leastconn, which spares small servers without a reading.
//!
//! Before our proxy's servers are ingresses, which read the account of the servers' control groups and tell it who asks;
//! emulated servers have none, and no such lane.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plimsoll_lanes::{
    Family, LOOPBACK, PATIENCE, Proxy, ProxySection, free_addresses, mean, raise_descriptor_limit,
    timeouts,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::figure::scale_note;
use super::lane::{Lane, Seen, Task};
use super::method::{Balancer, Method, Weights};
use super::pool::{Addresses, Sizes, asks};
use super::servers::{Bed, chosen};
use super::show;
use super::sweep::{self, Point, mean_of, rate_rps};
use crate::cells::Cells;
use crate::comparison::Bound;
use crate::lanes::wait;
use crate::outcome::{Outcome, Table, row};
use crate::{Comparison, Context, Experiment, Failure, Provenance, ServerPool};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "haproxy-cpu",
    paper: &super::PAPER,
    figure: "§10",
    title: "Random among servers whose CPU is under a threshold",
    claim: "A random that pulls only from servers whose CPU utilization lies below a threshold increases the \
            equality of resource partitioning.",
    provenance: &[Provenance::Emulated],
    takes: Duration::from_secs(20 * 60),
    takes_quick: Duration::from_secs(6),
    run,
};

/// The part of its CPU above which a server gets nothing.
const THRESHOLD: f64 = 0.7;
/// Between two readings.
const READ_EVERY: Duration = Duration::from_millis(500);
/// More than ever are in flight: our ingresses tell of CPU and refuse nothing.
const ROOM: u32 = 100_000;
const TASKS: [f64; 3] = [10_000.0, 20_000.0, 40_000.0];
const AWARE: Method = Method { name: "random, CPU-aware", ..PLAIN };
const OURS: Method =
    Method { name: "our proxy, cpu_random", balancer: Balancer::Proxy("cpu_random"), ..PLAIN };
const PLAIN: Method = Method {
    name: "random",
    balancer: Balancer::Haproxy("random"),
    weights: Weights::Equal,
    is_steered: false,
};
const COUNTING: Method =
    Method { name: "leastconn", balancer: Balancer::Haproxy("leastconn"), ..PLAIN };

/// In the order of the first repetition.
const LANES: [Method; 4] = [PLAIN, AWARE, COUNTING, OURS];

/// Those that there are with these servers.
fn lanes(pool: ServerPool) -> &'static [Method] {
    match pool {
        ServerPool::Emulated => &LANES[..3],
        ServerPool::Real | ServerPool::Wordpress => &LANES,
    }
}

/// Reads CPU and sets weights.
struct Controller {
    cores: Vec<f64>,
    last: Option<(Instant, Vec<f64>)>,
    weights: Vec<bool>,
    changes: u32,
}

impl Controller {
    fn new(cores: &[f64]) -> Self {
        let (cores, weights) = (cores.to_vec(), vec![true; cores.len()]);
        Controller { cores, last: None, weights, changes: 0 }
    }

    /// Which servers are in, by the CPU used since the last reading; nothing while it is too early.
    fn step(&mut self, now: Instant, used: Vec<f64>) -> Option<Vec<bool>> {
        let Some((at, before)) = &self.last else {
            self.last = Some((now, used));
            return None;
        };
        let seconds = now.duration_since(*at).as_secs_f64();
        if seconds < READ_EVERY.as_secs_f64() {
            return None;
        }
        let busy = used.iter().zip(before).zip(&self.cores);
        let mut inside: Vec<bool> = busy
            .map(|((used, before), cores)| (used - before) / seconds / cores < THRESHOLD)
            .collect();
        if !inside.contains(&true) {
            inside.fill(true);
        }
        self.last = Some((now, used));
        Some(inside)
    }

    /// Tells HAProxy what has changed.
    fn set(&mut self, socket: &Path, names: &Addresses, inside: Vec<bool>) -> Result<(), Failure> {
        for (i, (name, _)) in names.iter().enumerate() {
            if inside[i] != self.weights[i] {
                let weight = u8::from(inside[i]);
                say(socket, &format!("set server pool/{name} weight {weight}"))?;
                self.changes += 1;
            }
        }
        self.weights = inside;
        Ok(())
    }
}

fn say(socket: &Path, command: &str) -> Result<(), Failure> {
    let mut admin = UnixStream::connect(socket).map_err(Failure::file("reach haproxy"))?;
    admin.write_all(format!("{command}\n").as_bytes()).map_err(Failure::file("ask haproxy"))?;
    let mut said = String::new();
    admin.read_to_string(&mut said).map_err(Failure::file("hear haproxy"))?;
    match said.trim() {
        "" => Ok(()),
        said => Err(Failure::Other(format!("haproxy: {command}: {said}"))),
    }
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    raise_descriptor_limit();
    let pools = chosen(context)?;
    let mut cells = Cells::open(context, EXPERIMENT.name)?;
    let tasks = context.chosen(&context.options.tasks, &TASKS[1..2], &TASKS);
    let mut outcome = Outcome::default();
    let mut weights = Table::empty(
        "weights",
        "Utilisation of the smallest to the largest server, and how often one was taken out or put in",
    );
    for (i, &pool) in pools.iter().enumerate() {
        let part = (i as f64 / pools.len() as f64, (i as f64 + 1.0) / pools.len() as f64);
        let (points, lanes_cpu, core_rps) = sweep(context, &mut cells, pool, tasks, part)?;
        for lane in &lanes_cpu {
            lane.write(&mut weights, pool)?;
        }
        for task in Task::ALL {
            let name = format!("cpu-{}-{}", pool.name(), task.name().to_lowercase());
            let title = format!("{}, {}", task.name(), pool.title());
            let deadline = pool.deadline();
            let drawn = show::plot(&name, &title, &points, lanes(pool), task, deadline, None);
            outcome.plots.extend(drawn);
        }
        for &method in &lanes(pool)[1..] {
            for &tasks in tasks {
                outcome.comparisons.push(comparison(&points, pool, method, tasks));
                if method != COUNTING {
                    outcome.comparisons.push(equality(&lanes_cpu, pool, method, tasks));
                }
            }
        }
        let title = format!("random with and without CPU readings, {}", pool.title());
        outcome.tables.push(show::table(pool.name(), &title, &points)?);
        outcome.notes.push(scale_note(pool, Sizes::Heterogeneous, core_rps));
    }
    outcome.tables.push(weights);
    outcome.notes.push(format!(
        "Servers of Table 4, equal weights; weight 0 above {:.0} % of the CPU of the last {} ms; all are in when \
         all are above. Emulated servers tell the busy part of their cores; real ones are read from the account of \
         their control groups. `our proxy, cpu_random` has an ingress before each server, which HAProxy has not.",
        100.0 * THRESHOLD,
        READ_EVERY.as_millis(),
    ));
    Ok(outcome)
}

/// What is kept of a lane.
#[derive(Serialize, Deserialize)]
struct Kept {
    seen: Vec<(Task, Seen)>,
    changes: u32,
    /// Part of each server's CPU that was used.
    utilisation: Vec<f64>,
}

/// The servers' CPU in one lane.
struct LaneCpu {
    method: Method,
    tasks: f64,
    round: u32,
    changes: u32,
    utilisation: Vec<f64>,
}

impl LaneCpu {
    /// How far the greatest utilisation is from the least.
    fn spread(&self) -> f64 {
        let ends = |(low, high): (f64, f64), &part: &f64| (low.min(part), high.max(part));
        let (low, high) = self.utilisation.iter().fold((f64::INFINITY, f64::NEG_INFINITY), ends);
        high - low
    }

    fn write(&self, table: &mut Table, pool: ServerPool) -> Result<(), Failure> {
        let of = |i: usize| self.utilisation.get(i).copied().unwrap_or(f64::NAN);
        row!(table, pool.provenance(), {
            servers: pool.title();
            method: self.method.name;
            tasks_per_60_s: self.tasks, "the paper's rate";
            repetition: self.round + 1;
            s1: of(0), "part of its CPU";
            s2: of(1), "part of its CPU";
            s3: of(2), "part of its CPU";
            s4: of(3), "part of its CPU";
            s5: of(4), "part of its CPU";
            spread: self.spread(), "greatest minus least";
            // Our proxy sets no weights: it draws among those that are below.
            changes: (self.method == AWARE).then_some(self.changes);
        })
    }
}

/// One lane: a method at a rate.
struct Turn {
    method: Method,
    name: String,
    rate_rps: f64,
    seed: u64,
    part: (f64, f64),
}

fn sweep(
    context: &Context,
    cells: &mut Cells,
    pool: ServerPool,
    tasks: &[f64],
    part: (f64, f64),
) -> Result<(Vec<Point>, Vec<LaneCpu>, f64), Failure> {
    let family = Family::start()?;
    let sizes = Sizes::Heterogeneous;
    let mut bed = Bed::start(context, &family, pool, sizes, (&[], context.seed))?;
    let scale = bed.scale(context, &family, cells)?;
    let rounds = context.repetitions(4);
    let all = f64::from(rounds) * (tasks.len() * lanes(pool).len()) as f64;
    let mut points: Vec<Point> = Vec::new();
    let mut lanes_cpu = Vec::new();
    for round in 0..rounds {
        for &tasks in tasks {
            let rate_rps = rate_rps(pool, sizes, scale.smallest_rps, tasks);
            // The order alternates, as the first finds what the last run has left.
            let mut order = lanes(pool).to_vec();
            if round % 2 == 1 {
                order.reverse();
            }
            for method in order {
                let number = points.len() / Task::ALL.len();
                let at = |n: usize| part.0 + (part.1 - part.0) * n as f64 / all;
                let turn = Turn {
                    method,
                    name: format!("cpu-{}-{number}", pool.name()),
                    rate_rps,
                    seed: context.seed + 1_000 * u64::from(round),
                    part: (at(number), at(number + 1)),
                };
                let cell = format!("{}/{tasks:.0}/{round}/{}", pool.name(), method.name);
                let kept = cells.get_or(&cell, || one(context, &family, &mut bed, &turn))?;
                let Kept { seen, changes, utilisation } = kept;
                lanes_cpu.push(LaneCpu { method, tasks, round, changes, utilisation });
                let seen = seen.into_iter();
                points.extend(seen.map(|(task, seen)| Point {
                    pool,
                    method,
                    tasks,
                    rate_rps,
                    round,
                    task,
                    seen,
                }));
            }
        }
    }
    Ok((points, lanes_cpu, scale.smallest_rps))
}

fn one(context: &Context, family: &Family, bed: &mut Bed, turn: &Turn) -> Result<Kept, Failure> {
    let span = sweep::Turn::of(context, bed.pool);
    let servers = bed.addresses();
    let cores = bed.sizes.cores();
    let mut lane = match bed.groups() {
        Some(groups) if turn.method == OURS => ours(family, &turn.name, &servers, &groups)?,
        _ => Lane::start(family, turn.method, &servers, cores, &turn.name)?,
    };
    let socket = lane.socket().map(Path::to_owned);
    let mut controller = Controller::new(&bed.cores());
    lane.open(&asks(bed.pool, &[]), turn.rate_rps, turn.seed)?;
    let mut look = |time, part, bed: &mut Bed| {
        wait(context, time, part, turn.method.name, || {
            bed.check()?;
            let Some(socket) = socket.as_ref().filter(|_| turn.method == AWARE) else {
                return lane.check();
            };
            if let Some(inside) = controller.step(Instant::now(), bed.cpu_used()?) {
                controller.set(socket, &servers, inside)?;
            }
            lane.check()
        })
    };
    look(span.warm_up, (turn.part.0, turn.part.0), bed)?;
    let (from, before) = (Instant::now(), bed.cpu_used()?);
    look(span.measure, turn.part, bed)?;
    let (to, after) = (Instant::now(), bed.cpu_used()?);
    let seconds = (to - from).as_secs_f64();
    let used = after.iter().zip(before).map(|(after, before)| (after - before) / seconds);
    let utilisation = used.zip(bed.cores()).map(|(used, cores)| used / cores).collect();
    let seen = lane.finish(from, to, bed.pool.deadline())?;
    Bed::settle(std::slice::from_ref(bed), context)?;
    Ok(Kept { seen, changes: controller.changes, utilisation })
}

/// Our proxy, and an ingress before each server that tells of its control group's CPU.
fn ours(
    family: &Family,
    name: &str,
    servers: &Addresses,
    groups: &[PathBuf],
) -> Result<Lane, Failure> {
    let ingresses = free_addresses(servers.len())?;
    let proxy = Proxy::start_with(family, name, |socket, address| {
        configuration((socket, address), servers, &ingresses, groups)
    })?;
    Ok(Lane::behind_proxy(OURS, proxy))
}

fn configuration(
    (socket, address): (&Path, SocketAddr),
    servers: &Addresses,
    ingresses: &[SocketAddr],
    groups: &[PathBuf],
) -> Value {
    let section = ProxySection::default().socket(socket).egress(
        "clients",
        address,
        json!({ "timeouts": timeouts(PATIENCE) }),
    );
    let ways = || servers.iter().zip(ingresses);
    let section = ways().zip(groups).fold(section, |section, (((name, server), listen), group)| {
        let keys = json!({
            "trust": LOOPBACK,
            "capacity": { "static": ROOM },
            "cpu": { "cgroup": group },
            "timeouts": timeouts(PATIENCE),
        });
        section.ingress(name, *listen, *server, keys)
    });
    let backends = ways().map(|((name, _), listen)| (name.as_str(), *listen, 1));
    let keys = json!({
        "policy": "cpu_random",
        "cpu_threshold_percent": (100.0 * THRESHOLD).round() as u32,
        // All are asked twice in this time.
        "load_age": format!("{}ms", 2 * READ_EVERY.as_millis()),
    });
    section.pool("pool", backends, keys).file()
}

fn comparison(points: &[Point], pool: ServerPool, method: Method, tasks: f64) -> Comparison {
    let mean = |method: Method| mean_of(points, method.name, Task::Get, tasks, |seen| seen.mean_ms);
    let ratio =
        mean(method).zip(mean(PLAIN)).map_or(f64::NAN, |((aware, _), (plain, _))| aware / plain);
    let what = format!(
        "{}: mean of {} over random's, GET, {tasks:.0} tasks per 60 s",
        pool.title(),
        method.name
    );
    Comparison::silent(pool.provenance(), what, "it increases equality", ratio, "×")
        .why("The study describes the method and measures nothing of it.")
}

/// How far apart the servers' utilisations are, over the same under plain random, as far as the repetitions decide it.
fn equality(lanes: &[LaneCpu], pool: ServerPool, method: Method, tasks: f64) -> Comparison {
    let spreads = |method: Method| -> Vec<f64> {
        let those = lanes.iter().filter(|lane| lane.method == method && lane.tasks == tasks);
        those.map(LaneCpu::spread).collect()
    };
    let (own, plain) = (spreads(method), spreads(PLAIN));
    let all = over_random(pool, method, tasks, (&own, &plain));
    let alone = own.iter().zip(&plain);
    let alone: Vec<Comparison> =
        alone.map(|(own, plain)| over_random(pool, method, tasks, (&[*own], &[*plain]))).collect();
    all.decided_by(&alone.iter().collect::<Vec<_>>())
}

/// The same of the means of these.
fn over_random(
    pool: ServerPool,
    method: Method,
    tasks: f64,
    (own, plain): (&[f64], &[f64]),
) -> Comparison {
    let ratio = mean(own).zip(mean(plain)).map_or(f64::NAN, |(own, plain)| own / plain);
    let what = format!(
        "{}: difference between the most and the least used server under {}, over random's, {tasks:.0} tasks per 60 s",
        pool.title(),
        method.name
    );
    let paper = ("it increases the equality of resource partitioning", Bound::AtMost(1.0));
    Comparison::bound(pool.provenance(), what, paper, ratio, "×")
        .why("Below the threshold nothing is moved; a small server goes on and off around it.")
}

#[cfg(test)]
mod tests {
    use super::super::figure::verdicts;
    use super::super::method::named;
    use super::*;

    #[test]
    fn a_server_above_the_threshold_is_out_until_it_is_below_and_all_are_in_when_all_are_above() {
        assert_eq!(named("random"), PLAIN);
        let mut controller = Controller::new(&[1.0, 2.0]);
        let start = Instant::now();
        let at = |half_seconds: u32| start + half_seconds * READ_EVERY;
        assert_eq!(controller.step(at(0), vec![0.0, 0.0]), None);
        assert_eq!(controller.step(start, vec![9.0, 9.0]), None, "too early");
        // 0.4 of 0.5 s on one core; 0.6 of 0.5 s on two.
        assert_eq!(controller.step(at(1), vec![0.4, 0.6]), Some(vec![false, true]));
        assert_eq!(controller.step(at(2), vec![0.5, 0.7]), Some(vec![true, true]));
        assert_eq!(controller.step(at(3), vec![1.0, 1.7]), Some(vec![true, true]), "all above");
    }

    #[test]
    fn equality_is_the_distance_between_the_most_and_the_least_used_server() {
        let lane = |method, utilisation: &[f64]| LaneCpu {
            method,
            tasks: 1.0,
            round: 0,
            changes: 0,
            utilisation: utilisation.to_vec(),
        };
        let lanes = [lane(PLAIN, &[0.9, 0.5, 0.1]), lane(AWARE, &[0.6, 0.5, 0.4])];
        assert!((lanes[0].spread() - 0.8).abs() < 1e-9);
        let said =
            |lanes: &[LaneCpu]| verdicts(vec![equality(lanes, ServerPool::Real, AWARE, 1.0)]);
        assert_eq!(said(&lanes), ["agrees"]);
        let worse = [lane(PLAIN, &[0.5, 0.4]), lane(AWARE, &[0.5, 0.1])];
        assert_eq!(said(&worse), ["differs"]);
        let both: Vec<LaneCpu> = lanes.into_iter().chain(worse).collect();
        assert_eq!(said(&both), ["not comparable"], "one repetition says this, the other that");
    }

    #[test]
    fn our_ingresses_read_the_group_of_the_server_behind_them() {
        let server = |n: u16| (format!("s{n}"), SocketAddr::from(([127, 0, 0, 1], n)));
        let servers = vec![server(81), server(82)];
        let ingresses = [91, 92].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let groups = ["/g/1", "/g/2"].map(PathBuf::from);
        let text = configuration((Path::new("/x"), ingresses[0]), &servers, &ingresses, &groups);
        let (entry, pool) = (&text["proxy"]["ingress"][1], &text["proxy"]["pools"][0]);
        assert_eq!(entry["upstream"], "127.0.0.1:82");
        assert_eq!(entry["cpu"]["cgroup"], "/g/2");
        assert_eq!(pool["backends"][1]["address"], entry["listen"]);
        assert_eq!(
            (&pool["cpu_threshold_percent"], &pool["load_age"]),
            (&json!(70), &json!("1000ms"))
        );
    }
}
