//! Methods over rates: every lane with the same arrivals, repetitions interleaved.
//!
//! **The scale.** The study's servers have 1.8 GHz cores whose work per page it does not give. Its homogeneous pool
//! shows differences from 40,000 tasks per 60 s on and is driven to 80,000; its unequal pool to 20,000, where
//! equal parts give the server of four cores what each core gets of 80,000 on the equal pool. So 80,000 on 5×16
//! cores is taken for [`FULL`] of a core's capacity, and every other rate follows.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use plimsoll_lanes::{Family, raise_descriptor_limit};
use plimsoll_real::RealError;
use plimsoll_real::cgroup::Cgroups;
use plimsoll_real::wordpress::{Cost, Instances, Site, WordPressError, costs};

use super::lane::{Lane, Seen, Task};
use super::method::Method;
use super::pool::{Addresses, Sizes, core_rps, emulated};
use crate::lanes::wait;
use crate::{Context, Failure, Provenance};

/// Of a core's capacity, what 80,000 tasks per 60 s on 5×16 cores are taken for.
pub const FULL: f64 = 0.95;
/// The rate of that, tasks per 60 s.
const FULL_TASKS: f64 = 80_000.0;
/// The cores that have it.
const FULL_CORES: f64 = 80.0;
/// Requests per second that two cores carry of emulated lanes side by side.
const AT_ONCE_RPS: f64 = 700.0;
/// Cores that all WordPress instances have together; the rest is for the database, balancer and clients.
pub const WORDPRESS_CORES: f64 = 1.2;
/// Where `plimsoll-lab wordpress up` has made a site.
pub const WORDPRESS: &str = "PLIMSOLL_WORDPRESS";

/// The part of a core's capacity that so many tasks per 60 s are for so many cores.
pub fn load(tasks: f64, cores: f64) -> f64 {
    FULL * tasks / FULL_TASKS * FULL_CORES / cores
}

/// What one task type saw of one method at one rate.
#[derive(Clone, Debug)]
pub struct Point {
    /// The servers, for people.
    pub tier: &'static str,
    /// Where the numbers come from.
    pub provenance: Provenance,
    /// Who balanced.
    pub method: Method,
    /// The paper's rate, tasks per 60 s.
    pub tasks: f64,
    /// Ours, requests per second.
    pub rate_rps: f64,
    /// Which repetition, from 0.
    pub round: u32,
    /// Of which type.
    pub task: Task,
    /// What they saw.
    pub seen: Seen,
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The servers.
    pub sizes: Sizes,
    /// Who balances.
    pub methods: &'a [Method],
    /// The paper's rates, tasks per 60 s.
    pub tasks: &'a [f64],
}

/// How long a lane runs.
#[derive(Clone, Copy, Debug)]
struct Turn {
    learn: Duration,
    warm_up: Duration,
    measure: Duration,
}

impl Turn {
    /// Of WordPress, which two cores serve twenty pages a second of: less would be no request at all.
    fn of_wordpress(context: &Context) -> Self {
        let s = Duration::from_secs;
        let quick = Turn { learn: s(20), warm_up: s(1), measure: s(12) };
        context.pick(quick, Turn { learn: s(120), warm_up: s(5), measure: s(60) })
    }

    fn of(context: &Context) -> Self {
        let ms = Duration::from_millis;
        context.pick(
            Turn { learn: ms(700), warm_up: ms(150), measure: ms(500) },
            Turn { learn: ms(60_000), warm_up: ms(3_000), measure: ms(20_000) },
        )
    }

    fn before(&self, lanes: &[Lane]) -> Duration {
        let steered = lanes.iter().any(|lane| lane.method.is_steered);
        if steered { self.learn } else { self.warm_up }
    }
}

/// Repetitions.
fn rounds(context: &Context) -> u32 {
    context.pick(1, 3)
}

/// Runs the plan on emulated servers, several lanes at once, each with servers of its own.
///
/// # Errors
/// When a part does not run.
pub fn on_emulated(
    context: &Context,
    plan: Plan,
    deadline: Duration,
    part: (f64, f64),
) -> Result<Vec<Point>, Failure> {
    raise_descriptor_limit();
    let family = Family::start()?;
    let mut all = Vec::new();
    let steps = f64::from(rounds(context)) * plan.tasks.len() as f64;
    let mut step = 0.0;
    let mut lanes_so_far = 0;
    let turn = Turn::of(context);
    for round in 0..rounds(context) {
        for &tasks in plan.tasks {
            let rate_rps = FULL * tasks / FULL_TASKS * 20.0 * core_rps();
            let groups = groups(plan.methods, rate_rps);
            for (i, group) in groups.iter().enumerate() {
                let (at, next) =
                    (i as f64 / groups.len() as f64, (i + 1) as f64 / groups.len() as f64);
                let within = |x: f64| part.0 + (part.1 - part.0) * (step + x) / steps;
                let mut beds = Vec::new();
                let mut lanes = Vec::new();
                for method in group {
                    lanes_so_far += 1;
                    let bed = emulated(plan.sizes, context.seed + u64::from(round))?;
                    let servers: Addresses = bed.addresses().to_vec();
                    let name = format!("lane{lanes_so_far}");
                    lanes.push(Lane::start(&family, *method, &servers, plan.sizes.cores(), &name)?);
                    beds.push(bed);
                }
                let seed = context.seed + 1_000 * u64::from(round);
                let run = Running {
                    context,
                    turn,
                    rate_rps,
                    seed,
                    deadline,
                    part: (within(at), within(next)),
                };
                for (method, task, seen) in run.measure(lanes)? {
                    all.push(Point {
                        tier: "emulated",
                        provenance: Provenance::Emulated,
                        method,
                        tasks,
                        rate_rps,
                        round,
                        task,
                        seen,
                    });
                }
            }
            step += 1.0;
        }
    }
    Ok(all)
}

/// Lanes that run together: those that Plimsoll steers apart, as the others need not wait for it to learn.
fn groups(methods: &[Method], rate_rps: f64) -> Vec<Vec<Method>> {
    let together = ((AT_ONCE_RPS / rate_rps) as usize).clamp(1, 4);
    let (steered, plain): (Vec<Method>, Vec<Method>) =
        methods.iter().partition(|method| method.is_steered);
    [plain, steered].iter().flat_map(|those| those.chunks(together).map(<[_]>::to_vec)).collect()
}

/// One group of lanes at one rate.
struct Running<'a> {
    context: &'a Context,
    turn: Turn,
    rate_rps: f64,
    seed: u64,
    deadline: Duration,
    part: (f64, f64),
}

impl Running<'_> {
    fn measure(&self, mut lanes: Vec<Lane>) -> Result<Vec<(Method, Task, Seen)>, Failure> {
        let turn = self.turn;
        let before = turn.before(&lanes);
        for lane in &mut lanes {
            lane.open(self.rate_rps, self.seed)?;
        }
        let names: Vec<&str> = lanes.iter().map(|lane| lane.method.name).collect();
        let what = format!("{} at {:.0}/s", names.join("; "), self.rate_rps);
        let passed = before.as_secs_f64() / (before + turn.measure).as_secs_f64();
        let middle = self.part.0 + (self.part.1 - self.part.0) * passed;
        let mut run = |time, part| {
            wait(self.context, time, part, &what, || lanes.iter_mut().try_for_each(Lane::check))
        };
        run(before, (self.part.0, middle))?;
        let from = Instant::now();
        run(turn.measure, (middle, self.part.1))?;
        let to = Instant::now();
        let mut all = Vec::new();
        for lane in lanes {
            let method = lane.method;
            let seen = lane.finish(from, to, self.deadline)?;
            all.extend(seen.into_iter().map(|(task, seen)| (method, task, seen)));
        }
        Ok(all)
    }
}

/// The directory of a WordPress site, where one is to be measured.
pub fn wordpress_dir() -> Option<PathBuf> {
    std::env::var_os(WORDPRESS).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// What WordPress told before it was measured.
pub struct WordPress {
    /// What each request costs.
    pub costs: Vec<Cost>,
    /// Requests per second that a core serves.
    pub core_rps: f64,
    /// What was measured.
    pub points: Vec<Point>,
}

/// Runs the plan on a WordPress site, one lane at a time.
///
/// # Errors
/// When the site does not run, or a part of it.
pub fn on_wordpress(
    context: &Context,
    dir: &std::path::Path,
    plan: Plan,
    deadline: Duration,
    part: (f64, f64),
) -> Result<WordPress, Failure> {
    let told = |error: WordPressError| Failure::Other(format!("wordpress: {error}"));
    let cgroups = Cgroups::open().map_err(|error| told(RealError::from(error).into()))?;
    let family = Family::start()?;
    let site = Site::start(&family, dir).map_err(told)?;
    let cores = plan.sizes.cores();
    let sum: u32 = cores.iter().sum();
    let quotas = cores.map(|cores| WORDPRESS_CORES * f64::from(cores) / f64::from(sum));
    let instances = Instances::start(&family, &cgroups, &site, &quotas, 1).map_err(told)?;
    let costs = costs(&instances, context.pick(1, 5)).map_err(told)?;
    let mean_ms = costs.iter().map(|cost| cost.cpu_ms).sum::<f64>() / costs.len() as f64;
    let core_rps = 1e3 / mean_ms;
    let servers = instances.addresses();
    let mut points = Vec::new();
    // A quick run has the last of the rates only.
    let rates = if context.quick { &plan.tasks[plan.tasks.len() - 1..] } else { plan.tasks };
    let steps = rounds(context) as usize * rates.len() * plan.methods.len();
    for round in 0..rounds(context) {
        for &tasks in rates {
            // As many cores here as `WORDPRESS_CORES` are for the paper's.
            let rate_rps = load(tasks, f64::from(sum)) * WORDPRESS_CORES * core_rps;
            for method in plan.methods {
                let at = points.len() as f64 / 2.0 / steps as f64;
                let within = |x: f64| part.0 + (part.1 - part.0) * (at + x / steps as f64);
                let name = format!("lane{}", points.len());
                let lane = Lane::start(&family, *method, &servers, cores, &name)?;
                let seed = context.seed + 1_000 * u64::from(round);
                let run = Running {
                    context,
                    turn: Turn::of_wordpress(context),
                    rate_rps,
                    seed,
                    deadline,
                    part: (within(0.0), within(1.0)),
                };
                points.extend(run.measure(vec![lane])?.into_iter().map(|(method, task, seen)| {
                    Point {
                        tier: "WordPress",
                        provenance: Provenance::Measured,
                        method,
                        tasks,
                        rate_rps,
                        round,
                        task,
                        seen,
                    }
                }));
            }
        }
    }
    Ok(WordPress { costs, core_rps, points })
}

/// Mean over the repetitions, and its standard error, of what `value` says.
pub fn mean_of(
    points: &[Point],
    method: &str,
    task: Task,
    tasks: f64,
    value: fn(&Seen) -> f64,
) -> Option<(f64, f64)> {
    let those =
        points.iter().filter(|p| p.method.name == method && p.task == task && p.tasks == tasks);
    let values: Vec<f64> = those.map(|p| value(&p.seen)).collect();
    let n = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0).max(1.0);
    Some((mean, (variance / n).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::super::method::{BESIDE, STUDY};
    use super::*;

    #[test]
    fn equal_parts_of_20_000_load_four_cores_as_80_000_load_sixteen() {
        assert!((load(80_000.0, 80.0) - FULL).abs() < 1e-12);
        // A fifth of 20,000 on 4 cores, against a fifth of 80,000 on 16.
        assert!((load(20_000.0 / 5.0, 4.0) - load(80_000.0 / 5.0, 16.0)).abs() < 1e-12);
    }

    #[test]
    fn every_method_is_in_one_group_and_the_steered_are_apart() {
        let all: Vec<Method> = STUDY.iter().chain(BESIDE).copied().collect();
        for rate_rps in [10.0, 200.0, 5_000.0] {
            let groups = groups(&all, rate_rps);
            assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), all.len());
            for group in groups {
                assert!(group.iter().all(|m| m.is_steered == group[0].is_steered));
            }
        }
    }

    #[test]
    fn repetitions_have_a_mean_and_an_error() {
        let point = |round, mean_ms| Point {
            tier: "emulated",
            provenance: Provenance::Emulated,
            method: STUDY[0],
            tasks: 1.0,
            rate_rps: 1.0,
            round,
            task: Task::Get,
            seen: Seen { mean_ms, ..Seen::default() },
        };
        let points = [point(0, 10.0), point(1, 14.0)];
        let mean = |name, task| mean_of(&points, name, task, 1.0, |seen| seen.mean_ms);
        assert_eq!(mean("random", Task::Get), Some((12.0, 2.0)));
        assert_eq!(mean("random", Task::Post), None);
    }
}
