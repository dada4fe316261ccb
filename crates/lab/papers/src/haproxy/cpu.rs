//! CPU-aware random (§10) on a stock HAProxy: `balance random`, and weight 0 for servers whose CPU is above a
//! threshold.
//!
//! The study patches HAProxy's C code to ask libvirt. Here a controller outside reads the CPU of each server, of
//! control groups where servers are real, twice a second, and sets weights over the admin socket. A server is in
//! again once it is below; when all are above, all are in, as our policy `cpu_random` does it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_lanes::{Family, raise_descriptor_limit};
use plimsoll_real::RealError;
use plimsoll_real::cgroup::Cgroups;
use plimsoll_real::wordpress::{Instances, Site, WordPressError};

use super::fig7::{DEADLINE, WORDPRESS_DEADLINE};
use super::lane::{Lane, Task};
use super::method::{Balancer, Method, Weights};
use super::pool::{Addresses, Sizes, core_rps, emulated};
use super::show;
use super::sweep::{Point, WORDPRESS_CORES, load, mean_of, wordpress_dir};
use crate::lanes::wait;
use crate::outcome::{Outcome, Table, row};
use crate::{Comparison, Context, Experiment, Failure, Provenance};

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
const TASKS: [f64; 3] = [10_000.0, 20_000.0, 40_000.0];
const AWARE: Method = Method { name: "random, CPU-aware", ..PLAIN };
const PLAIN: Method = Method {
    name: "random",
    balancer: Balancer::Haproxy("random"),
    weights: Weights::Equal,
    is_steered: false,
};

/// CPU time that each server has used so far, seconds.
type ReadCpu<'a> = dyn FnMut() -> Result<Vec<f64>, Failure> + 'a;

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

    /// Who is in, by the CPU used since the last reading; nothing while it is too early.
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

/// Servers that are there, and how their CPU is read.
struct Tier<'a> {
    name: &'static str,
    provenance: Provenance,
    servers: Addresses,
    cores: Vec<f64>,
    deadline: Duration,
    read: &'a mut ReadCpu<'a>,
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    raise_descriptor_limit();
    let family = Family::start()?;
    let tasks: &[f64] = context.pick(&TASKS[1..2], &TASKS);
    let sizes = Sizes::Heterogeneous;
    let bed = emulated(sizes, context.seed)?;
    let stopped = || Failure::Other("the emulated servers have stopped".to_owned());
    let mut read = || {
        let stats = bed.stats().ok_or_else(stopped)?;
        Ok(stats.backends.iter().map(|backend| backend.busy_core_seconds).collect())
    };
    let mut tier = Tier {
        name: "emulated",
        provenance: Provenance::Emulated,
        servers: bed.addresses().to_vec(),
        cores: sizes.emulated().map(f64::from).to_vec(),
        deadline: DEADLINE,
        read: &mut read,
    };
    let mut table = Table::empty("weights", "How often a server was taken out or put in");
    let rate = |tasks: f64| load(tasks, 80.0) * 20.0 * core_rps();
    let mut points = sweep(context, &family, &mut tier, tasks, rate, &mut table)?;
    if let Some(dir) = wordpress_dir() {
        points.extend(on_wordpress(context, &family, &dir, tasks, &mut table)?);
    }
    let of = |from| points.iter().filter(|p| p.provenance == from).cloned().collect::<Vec<Point>>();
    let (mut plots, mut comparisons) = (Vec::new(), Vec::new());
    for (from, deadline) in
        [(Provenance::Emulated, DEADLINE), (Provenance::Measured, WORDPRESS_DEADLINE)]
    {
        let those = of(from);
        let Some(tier) = those.first().map(|p| p.tier) else { continue };
        for task in Task::ALL {
            let name = format!("cpu-{}-{}", tier.to_lowercase(), task.name().to_lowercase());
            let title = format!("{}, {tier}", task.name());
            let drawn = show::plot(&name, &title, &those, &[PLAIN, AWARE], task, deadline, None);
            plots.extend(drawn);
        }
        comparisons.extend(tasks.iter().map(|&tasks| comparison(&those, tier, from, tasks)));
    }
    Ok(Outcome {
        plots,
        tables: vec![show::table("lanes", "random with and without CPU readings", &points)?, table],
        comparisons,
        notes: vec![format!(
            "Servers of Table 4, equal weights; weight 0 above {:.0} % of the CPU of the last {} ms; all are in \
             when all are above. Emulated servers tell the busy part of their cores; with {} set, real ones are \
             read from their control groups.",
            100.0 * THRESHOLD,
            READ_EVERY.as_millis(),
            super::sweep::WORDPRESS,
        )],
    })
}

fn on_wordpress(
    context: &Context,
    family: &Family,
    dir: &Path,
    tasks: &[f64],
    table: &mut Table,
) -> Result<Vec<Point>, Failure> {
    let told = |error: WordPressError| Failure::Other(format!("wordpress: {error}"));
    let cgroups = Cgroups::open().map_err(|error| told(RealError::from(error).into()))?;
    let site = Site::start(family, dir).map_err(told)?;
    let cores = Sizes::Heterogeneous.cores().map(f64::from);
    let sum: f64 = cores.iter().sum();
    let quotas = cores.map(|cores| WORDPRESS_CORES * cores / sum);
    let instances = Instances::start(family, &cgroups, &site, &quotas, 2).map_err(told)?;
    let costs = plimsoll_real::wordpress::costs(&instances, 1).map_err(told)?;
    let mean_ms = costs.iter().map(|cost| cost.cpu_ms).sum::<f64>() / costs.len() as f64;
    let mut read = || Ok(instances.cpu_used().iter().map(Duration::as_secs_f64).collect());
    let mut tier = Tier {
        name: "WordPress",
        provenance: Provenance::Measured,
        servers: instances.addresses(),
        cores: quotas.to_vec(),
        deadline: WORDPRESS_DEADLINE,
        read: &mut read,
    };
    let rate = |tasks: f64| load(tasks, sum) * WORDPRESS_CORES * 1e3 / mean_ms;
    sweep(context, family, &mut tier, tasks, rate, table)
}

fn sweep(
    context: &Context,
    family: &Family,
    tier: &mut Tier,
    tasks: &[f64],
    rate: impl Fn(f64) -> f64,
    table: &mut Table,
) -> Result<Vec<Point>, Failure> {
    // WordPress serves twenty pages a second: within one there would be nothing to see.
    let quick =
        if tier.provenance == Provenance::Measured { (2_000, 15_000) } else { (700, 1_000) };
    let (warm_up, measure) = context.pick(quick, (5_000, 30_000));
    let rounds = context.pick(1, 4);
    let mut points: Vec<Point> = Vec::new();
    for round in 0..rounds {
        for &tasks in tasks {
            let rate_rps = rate(tasks);
            // The order alternates, as the first of two finds what the last run has left.
            let both = if round % 2 == 0 { [PLAIN, AWARE] } else { [AWARE, PLAIN] };
            for method in both {
                let seed = context.seed + 1_000 * u64::from(round);
                let lane_name = format!("cpu-{}-{}", tier.name, points.len());
                let cores = Sizes::Heterogeneous.cores();
                let mut lane = Lane::start(family, method, &tier.servers, cores, &lane_name)?;
                let socket = lane.socket().map(Path::to_owned);
                let mut controller = Controller::new(&tier.cores);
                lane.open(rate_rps, seed)?;
                let mut look = |ms| {
                    wait(context, Duration::from_millis(ms), (0.5, 0.5), method.name, || {
                        let Some(socket) = socket.as_ref().filter(|_| method == AWARE) else {
                            return lane.check();
                        };
                        if let Some(inside) = controller.step(Instant::now(), (tier.read)()?) {
                            controller.set(socket, &tier.servers, inside)?;
                        }
                        lane.check()
                    })
                };
                look(warm_up)?;
                let from = Instant::now();
                look(measure)?;
                let seen = lane.finish(from, Instant::now(), tier.deadline)?;
                row!(table, tier.provenance, {
                    servers: tier.name;
                    method: method.name;
                    tasks_per_60_s: tasks, "the paper's rate";
                    repetition: round + 1;
                    changes: controller.changes;
                })?;
                points.extend(seen.into_iter().map(|(task, seen)| Point {
                    tier: tier.name,
                    provenance: tier.provenance,
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
    Ok(points)
}

fn comparison(points: &[Point], tier: &str, from: Provenance, tasks: f64) -> Comparison {
    let mean = |method: Method| mean_of(points, method.name, Task::Get, tasks, |seen| seen.mean_ms);
    let ratio =
        mean(AWARE).zip(mean(PLAIN)).map_or(f64::NAN, |((aware, _), (plain, _))| aware / plain);
    let what =
        format!("{tier}: mean of CPU-aware random over random's, GET, {tasks:.0} tasks per 60 s");
    Comparison::silent(from, what, "it increases equality", ratio, "×")
        .why("The study describes the method and measures nothing of it.")
}

#[cfg(test)]
mod tests {
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
}
