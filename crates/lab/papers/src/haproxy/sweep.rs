//! Methods over rates: every lane with the same arrivals, repetitions interleaved, finished lanes kept.
//!
//! **The scale.** The study's servers have 1.8 GHz cores whose work per page it does not give. Its homogeneous pool
//! shows differences from 40,000 tasks per 60 s on and is driven to 80,000; its unequal pool to 20,000, where
//! equal parts give the server of four cores what each core gets of 80,000 on the equal pool. So 80,000 on 5×16
//! cores is taken for [`FULL`] of a core's capacity, and every other rate follows.

use std::time::{Duration, Instant};

use plimsoll_lanes::{Family, mean, raise_descriptor_limit, standard_error};

use super::lane::{Asks, Lane, Seen, Task};
use super::method::{Method, installed};
use super::pool::{Sizes, asks};
use super::servers::{Bed, Scale};
use crate::cells::Cells;
use crate::lanes::wait;
use crate::{Context, Failure, ServerPool};

/// Of a core's capacity, what 80,000 tasks per 60 s on 5×16 cores are taken for.
pub const FULL: f64 = 0.95;
/// The rate of that, tasks per 60 s.
const FULL_TASKS: f64 = 80_000.0;
/// The cores that have it.
const FULL_CORES: f64 = 80.0;
/// Requests per second that two cores carry of emulated lanes side by side.
const AT_ONCE_RPS: f64 = 700.0;
/// The part of the cores that real servers have together that lanes side by side may use: with more they would wait
/// for each other.
const SIDE_BY_SIDE: f64 = 0.5;
/// Lanes side by side.
const MOST_AT_ONCE: usize = 4;

/// The part of a core's capacity that so many tasks per 60 s are for so many cores.
pub fn load(tasks: f64, cores: f64) -> f64 {
    FULL * tasks / FULL_TASKS * FULL_CORES / cores
}

/// Requests per second here for so many tasks per 60 s there, where a core of the smallest server serves so many: it is
/// what equal parts fill first.
pub fn rate_rps(pool: ServerPool, sizes: Sizes, core_rps: f64, tasks: f64) -> f64 {
    let cores = f64::from(sizes.cores().iter().sum::<u32>());
    load(tasks, cores) * pool.total_cores(sizes) * core_rps
}

/// What one task type saw of one method at one rate.
#[derive(Clone, Debug)]
pub struct Point {
    /// The servers.
    pub pool: ServerPool,
    /// The balancer.
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
    pub sizes: Sizes<'a>,
    /// The balancer.
    pub methods: &'a [Method],
    /// The paper's rates, tasks per 60 s.
    pub tasks: &'a [f64],
}

/// What came of a plan on one pool.
pub struct Measured {
    /// The servers.
    pub pool: ServerPool,
    /// How much a core of them does.
    pub scale: Scale,
    /// Every lane.
    pub points: Vec<Point>,
    /// Why methods are missing.
    pub left_out: Vec<String>,
}

/// How long a lane runs.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Before anything counts, where Plimsoll learns.
    pub learn: Duration,
    /// The same where none does.
    pub warm_up: Duration,
    /// What counts.
    pub measure: Duration,
}

impl Turn {
    /// On these servers. WordPress serves twenty pages a second: less would be no request at all.
    pub fn of(context: &Context, pool: ServerPool) -> Self {
        let of = |[learn, warm_up, measure]: [u64; 3]| {
            let ms = Duration::from_millis;
            Turn { learn: ms(learn), warm_up: ms(warm_up), measure: ms(measure) }
        };
        let (quick, full) = match pool {
            ServerPool::Emulated => ([700, 150, 500], [60_000, 3_000, 20_000]),
            ServerPool::Real => ([3_000, 300, 1_500], [120_000, 3_000, 30_000]),
            ServerPool::Wordpress => ([20_000, 1_000, 12_000], [120_000, 5_000, 60_000]),
        };
        let turn = of(context.pick(quick, full));
        Turn { measure: context.options.lane.unwrap_or(turn.measure), ..turn }
    }

    fn before(&self, methods: &[Method]) -> Duration {
        let steered = methods.iter().any(|method| method.is_steered);
        if steered { self.learn } else { self.warm_up }
    }
}

/// Runs the plan. Lanes have servers of their own, and several run at once as long as the machine carries them; real
/// servers stay for the next lanes. Progress goes from `part.0` to `part.1`.
///
/// # Errors
/// When a part does not run.
pub fn on(
    context: &Context,
    cells: &mut Cells,
    pool: ServerPool,
    plan: Plan,
    part: (f64, f64),
) -> Result<Measured, Failure> {
    raise_descriptor_limit();
    let family = Family::start()?;
    let (methods, left_out) = installed(plan.methods);
    let mut beds = Vec::new();
    if pool != ServerPool::Emulated {
        beds.push(Bed::start(context, &family, pool, plan.sizes, (&[], context.seed))?);
    }
    let scale = match beds.first() {
        Some(bed) => bed.scale(context, &family, cells)?,
        None => Scale::emulated(),
    };
    let rate_rps = |tasks| rate_rps(pool, plan.sizes, scale.smallest_rps, tasks);
    let at_once = |tasks| at_once(pool, plan.sizes, &scale, rate_rps(tasks));
    if let Some(first) = beds.first() {
        let most = plan.tasks.iter().map(|&tasks| at_once(tasks)).max().unwrap_or(1);
        let numbers = 2..=most.min(methods.len()) as u8;
        let others: Result<Vec<Bed>, Failure> =
            numbers.map(|number| first.beside(context, &family, number)).collect();
        beds.extend(others?);
    }
    let lanes = Lanes { context, family: &family, pool, sizes: plan.sizes, asks: asks(pool, &[]) };
    let (mut points, mut number) = (Vec::new(), 0);
    let rounds = context.repetitions(3);
    let all = f64::from(rounds) * plan.tasks.len() as f64 * methods.len() as f64;
    for round in 0..rounds {
        for &tasks in plan.tasks {
            for group in groups(&in_turn(&methods, round), at_once(tasks)) {
                let names: Vec<&str> = group.iter().map(|method| method.name).collect();
                let names = names.join("; ");
                let (pool_name, sizes) = (pool.name(), plan.sizes.name());
                let cell = format!("{pool_name}/{sizes}/{tasks:.0}/{round}/{names}");
                let at = |n: usize| part.0 + (part.1 - part.0) * n as f64 / all;
                let turn = Group {
                    methods: &group,
                    names: &names,
                    rate_rps: rate_rps(tasks),
                    seed: context.seed + 1_000 * u64::from(round),
                    number,
                    part: (at(number), at(number + group.len())),
                };
                number += group.len();
                let seen = cells.get_or(&cell, || lanes.measure(&turn, &mut beds))?;
                let seen = seen.into_iter();
                points.extend(seen.filter_map(|(name, task, seen)| {
                    let method = *group.iter().find(|method| method.name == name)?;
                    let rate_rps = rate_rps(tasks);
                    Some(Point { pool, method, tasks, rate_rps, round, task, seen })
                }));
            }
        }
    }
    Ok(Measured { pool, scale, points, left_out })
}

/// How many lanes of this rate the machine carries side by side.
fn at_once(pool: ServerPool, sizes: Sizes, scale: &Scale, rate_rps: f64) -> usize {
    let most_rps = match pool {
        ServerPool::Emulated => AT_ONCE_RPS,
        _ => SIDE_BY_SIDE * pool.total_cores(sizes) * scale.core_rps,
    };
    ((most_rps / rate_rps) as usize).clamp(1, MOST_AT_ONCE)
}

/// In odd repetitions the other way round: neither the order nor who runs beside whom shall look like an effect.
pub fn in_turn(methods: &[Method], round: u32) -> Vec<Method> {
    let mut methods = methods.to_vec();
    if round % 2 == 1 {
        methods.reverse();
    }
    methods
}

/// Lanes that run together: those that Plimsoll steers apart, as the others need not wait for it to learn.
fn groups(methods: &[Method], at_once: usize) -> Vec<Vec<Method>> {
    let (steered, plain): (Vec<Method>, Vec<Method>) =
        methods.iter().partition(|method| method.is_steered);
    [plain, steered].iter().flat_map(|those| those.chunks(at_once).map(<[_]>::to_vec)).collect()
}

/// What lanes of a run have in common.
struct Lanes<'a> {
    context: &'a Context,
    family: &'a Family,
    pool: ServerPool,
    sizes: Sizes<'a>,
    asks: Asks,
}

/// One group of lanes at one rate.
struct Group<'a> {
    methods: &'a [Method],
    names: &'a str,
    rate_rps: f64,
    seed: u64,
    number: usize,
    part: (f64, f64),
}

/// What each lane's clients saw, by the method's name: as it is kept.
type Kept = Vec<(String, Task, Seen)>;

impl Lanes<'_> {
    /// With a bed of `shared` for each lane, or, where it is empty, servers of the lane's own.
    fn measure(&self, group: &Group, shared: &mut [Bed]) -> Result<Kept, Failure> {
        let mut beds = Vec::new();
        let mut lanes = Vec::new();
        for (i, method) in group.methods.iter().enumerate() {
            let servers = match shared.get(i) {
                Some(bed) => bed.addresses(),
                None => {
                    let of = (&[][..], group.seed);
                    let bed = Bed::start(self.context, self.family, self.pool, self.sizes, of)?;
                    let addresses = bed.addresses();
                    beds.push(bed);
                    addresses
                }
            };
            // Tiers and rates of one experiment each count anew; files are called after lanes.
            let name = format!("{}-{}-{}", self.pool.name(), self.sizes.name(), group.number + i);
            let cores = self.sizes.cores();
            lanes.push(Lane::start(self.family, *method, &servers, cores, &name)?);
        }
        for lane in &mut lanes {
            lane.open(&self.asks, group.rate_rps, group.seed)?;
        }
        let turn = Turn::of(self.context, self.pool);
        let before = turn.before(group.methods);
        let what = format!("{}: {} at {:.1}/s", self.pool.title(), group.names, group.rate_rps);
        let passed = before.as_secs_f64() / (before + turn.measure).as_secs_f64();
        let middle = group.part.0 + (group.part.1 - group.part.0) * passed;
        let mut run = |time, part| {
            wait(self.context, time, part, &what, || {
                lanes.iter_mut().try_for_each(Lane::check)?;
                shared.iter_mut().try_for_each(Bed::check)
            })
        };
        run(before, (group.part.0, middle))?;
        let from = Instant::now();
        run(turn.measure, (middle, group.part.1))?;
        let to = Instant::now();
        let mut all = Vec::new();
        for lane in lanes {
            let name = lane.method.name;
            let seen = lane.finish(from, to, self.pool.deadline())?;
            all.extend(seen.into_iter().map(|(task, seen)| (name.to_owned(), task, seen)));
        }
        // The next lanes shall not find what these have left.
        Bed::settle(&shared[..group.methods.len().min(shared.len())], self.context)?;
        Ok(all)
    }
}

/// What `value` says of each repetition.
pub fn values(
    points: &[Point],
    method: &str,
    task: Task,
    tasks: f64,
    value: fn(&Seen) -> f64,
) -> Vec<f64> {
    let those =
        points.iter().filter(|p| p.method.name == method && p.task == task && p.tasks == tasks);
    those.map(|p| value(&p.seen)).collect()
}

/// Mean over the repetitions, and its standard error, of what `value` says.
pub fn mean_of(
    points: &[Point],
    method: &str,
    task: Task,
    tasks: f64,
    value: fn(&Seen) -> f64,
) -> Option<(f64, f64)> {
    mean_and_error(&values(points, method, task, tasks, value))
}

/// Mean and standard error, 0 of one value; nothing of nothing.
pub fn mean_and_error(values: &[f64]) -> Option<(f64, f64)> {
    Some((mean(values)?, standard_error(values).unwrap_or(0.0)))
}

#[cfg(test)]
mod tests {
    use super::super::method::{STUDY, all};
    use super::*;

    #[test]
    fn equal_parts_of_20_000_load_four_cores_as_80_000_load_sixteen() {
        assert!((load(80_000.0, 80.0) - FULL).abs() < 1e-12);
        // A fifth of 20,000 on 4 cores, against a fifth of 80,000 on 16.
        assert!((load(20_000.0 / 5.0, 4.0) - load(80_000.0 / 5.0, 16.0)).abs() < 1e-12);
        // 95 % of what 20 emulated cores do of 10 requests per second each.
        let rate = rate_rps(ServerPool::Emulated, Sizes::Homogeneous, 10.0, 80_000.0);
        assert!((rate - 190.0).abs() < 1e-9);
    }

    #[test]
    fn every_method_is_in_one_group_and_the_steered_are_apart() {
        for at_once in [1, 3, 4] {
            let groups = groups(&all(), at_once);
            assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), all().len());
            for group in groups {
                assert!(group.iter().all(|m| m.is_steered == group[0].is_steered));
                assert!(group.len() <= at_once);
            }
        }
    }

    #[test]
    fn lanes_side_by_side_use_half_of_what_the_servers_have() {
        let scale = Scale { core_rps: 20.0, smallest_rps: 15.0, costs: Vec::new() };
        let many = |pool, rate_rps| at_once(pool, Sizes::Heterogeneous, &scale, rate_rps);
        // 1.2 cores, half of which serve 12 a second.
        for (rate_rps, lanes) in [(1.0, 4), (4.0, 3), (5.0, 2), (6.1, 1), (30.0, 1)] {
            assert_eq!(many(ServerPool::Wordpress, rate_rps), lanes, "{rate_rps}");
        }
        assert_eq!(many(ServerPool::Emulated, 250.0), 2);
    }

    #[test]
    fn repetitions_have_a_mean_and_an_error() {
        let point = |round, mean_ms| Point {
            pool: ServerPool::Emulated,
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
