//! Figure 6 (§7): the number of HAProxy's threads over the rate, under roundrobin on servers that are alike.

use std::time::{Duration, Instant};

use plimsoll_lanes::{Family, raise_descriptor_limit};

use super::config::{self, Lines, PLAIN};
use super::figure::{DEADLINE, by_repetition, ends, has_rate, mean, scale_note};
use super::lane::{Lane, Task};
use super::method::{Balancer, Method, Weights};
use super::pool::{Sizes, asks, core_rps, emulated};
use super::show;
use super::sweep::{Point, in_turn, rate_rps};
use crate::comparison::Bound;
use crate::lanes::wait;
use crate::outcome::Outcome;
use crate::{Comparison, Context, Experiment, Failure, Provenance, ServerPool};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "haproxy-fig6",
    paper: &super::PAPER,
    figure: "Figure 6",
    title: "Response time over the rate by HAProxy's threads",
    claim: "The number of threads affects the response time marginally.",
    provenance: &[Provenance::Emulated],
    takes: Duration::from_secs(35 * 60),
    takes_quick: Duration::from_secs(5),
    run,
};

const THREADS: [Method; 4] =
    [called("nbthread 1"), called("nbthread 2"), called("nbthread 4"), called("nbthread 8")];
const TASKS: [f64; 5] = [1_000.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0];

const fn called(name: &'static str) -> Method {
    let balancer = Balancer::Haproxy("roundrobin");
    Method { name, balancer, weights: Weights::Equal, is_steered: false }
}

fn threads(method: Method) -> Lines {
    let at = THREADS.iter().position(|one| *one == method).expect("one of them");
    Lines { threads: 1 << at, name: method.name, ..PLAIN }
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    raise_descriptor_limit();
    let family = Family::start()?;
    let tasks = context.chosen(&context.options.tasks, &TASKS[2..3], &TASKS);
    let (warm_up, measure) = context.pick((150, 500), (3_000, 20_000));
    let rounds = context.repetitions(4);
    let steps = f64::from(rounds) * tasks.len() as f64 * THREADS.len() as f64;
    let mut points = Vec::new();
    for round in 0..rounds {
        for &tasks in tasks {
            for method in in_turn(&THREADS, round) {
                let at = points.len() as f64 / 2.0;
                let part = (at / steps, (at + 1.0) / steps);
                let bed = emulated(Sizes::Homogeneous, context.seed + u64::from(round), &[])?;
                let name = format!("lane{}", points.len());
                let haproxy =
                    config::start(&family, &name, threads(method), &bed.addresses().to_vec())?;
                let mut lane = Lane::behind(method, haproxy);
                let pool = ServerPool::Emulated;
                let rate_rps = rate_rps(pool, Sizes::Homogeneous, core_rps(), tasks);
                lane.open(&asks(pool, &[]), rate_rps, context.seed + 1_000 * u64::from(round))?;
                let mut look = |ms, part| {
                    wait(context, Duration::from_millis(ms), part, method.name, || lane.check())
                };
                look(warm_up, part)?;
                let from = Instant::now();
                look(measure, part)?;
                for (task, seen) in lane.finish(from, Instant::now(), DEADLINE)? {
                    points.push(Point { pool, method, tasks, rate_rps, round, task, seen });
                }
            }
        }
    }
    let plots = Task::ALL.iter().filter_map(|&task| {
        let (name, title) = (format!("fig6-{}", task.name().to_lowercase()), task.name());
        show::plot(&name, title, &points, &THREADS, task, DEADLINE, None)
    });
    Ok(Outcome {
        plots: plots.collect(),
        tables: vec![show::table("threads", "roundrobin by HAProxy's threads", &points)?],
        comparisons: by_repetition(&points, comparisons),
        notes: vec![
            format!(
                "Threads take turns at the cores of this machine, {} of them, which clients and servers share: \
                 more threads than cores cannot show what more cores would. The paper's default is 64.",
                std::thread::available_parallelism().map_or(1, usize::from)
            ),
            scale_note(ServerPool::Emulated, Sizes::Homogeneous, core_rps()),
            format!("The deadline is not stated: {} ms.", DEADLINE.as_millis()),
        ],
    })
}

fn comparisons(all: &[Point], points: &[Point]) -> Vec<Comparison> {
    let rates = TASKS.into_iter().filter(|tasks| has_rate(points, *tasks));
    rates.flat_map(|tasks| Task::ALL.map(|task| comparison(all, points, task, tasks))).collect()
}

fn comparison(all: &[Point], points: &[Point], task: Task, tasks: f64) -> Comparison {
    let (least, greatest) = ends(all, &THREADS.map(|method| method.name), task, tasks);
    let apart = mean(points, greatest, task, tasks) / mean(points, least, task, tasks);
    let what =
        format!("greatest over least mean by threads, {}, {tasks:.0} tasks per 60 s", task.name());
    let paper = ("threads affect it marginally", Bound::AtMost(1.1));
    Comparison::bound(Provenance::Emulated, what, paper, apart, "×").why(
        "A tenth apart is taken for marginal. One thread forwards thousands of requests per second: at these \
         rates it is nearly idle, and servers decide.",
    )
}

#[cfg(test)]
mod tests {
    use super::super::method::named;
    use super::*;

    #[test]
    fn names_say_how_many_threads() {
        for method in THREADS {
            assert_eq!(method.name, format!("nbthread {}", threads(method).threads));
        }
        assert_eq!(named("roundrobin").balancer, THREADS[0].balancer);
    }
}
