//! Plimsoll on the unequal pool, or on one of a person's own sizes, at 50, 70 and 85 % of what it can do, learning
//! included: every method of the study with equal weights, turns and counting with weights in proportion to the quotas,
//! and Plimsoll over both.
//!
//! All lanes have the same arrivals; what Plimsoll's first minutes cost its clients counts. A lane whose weights nobody
//! changes ends early where servers are overloaded: at the same rate they stay so, and each request that gets no
//! answer counts with the same wait.

use std::time::{Duration, Instant};

use plimsoll_lanes::{Family, PATIENCE, mean, raise_descriptor_limit};
use plimsoll_real::{BATCHES, Pair, Ratio};
use plimsoll_testbed::format_duration;
use serde::{Deserialize, Serialize};

use super::lane::{Lane, Seen};
use super::method::{BY_CORES, Method, STEERED, STUDY};
use super::pool::{Sizes, asks};
use super::servers::{Bed, chosen};
use super::steering::Steering;
use crate::cells::Cells;
use crate::comparison::Bound;
use crate::lanes::wait;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, ServerPool};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "haproxy-plimsoll",
    paper: &super::PAPER,
    figure: "Table 4, §9",
    title: "Plimsoll on servers of 4, 8, 16, 32 and 48 cores, learning included",
    claim: "Which balance method serves best depends on the pool, and weights are an administrator's business.",
    provenance: &[Provenance::Emulated],
    takes: Duration::from_secs(45 * 60),
    takes_quick: Duration::from_secs(45),
    run,
};

/// Parts of what the pool can do.
const LOADS: [f64; 3] = [0.5, 0.7, 0.85];
/// How often a lane is looked at, whether it is overloaded.
const LOOK: Duration = Duration::from_secs(60);
/// It is, where this part of what was asked since the last look got no answer: five times what a p99 overlooks.
const OVERLOADED: f64 = 0.05;
/// Why a p99 may say nothing.
const GAVE_UP: &str = "Of either more than 1 % were given up after 10 s.";

/// Why there is no interval.
const ENDED: &str = "The servers of one of the lanes were overloaded, so that it ended early.";

/// What is kept of a lane.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    seen: Seen,
    /// How long it ran.
    seconds: f64,
    /// Part of the servers' CPU that was used.
    busy: f64,
    /// Means of equal parts of its time, milliseconds.
    batches_ms: Vec<Option<f64>>,
    /// What Plimsoll did, where it steers.
    steering: Steering,
}

/// One lane.
struct Point {
    load: f64,
    method: Method,
    kept: Kept,
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    raise_descriptor_limit();
    let pools = chosen(context)?;
    let mut cells = Cells::open(context, EXPERIMENT.name)?;
    let mut outcome = Outcome::default();
    for (i, &pool) in pools.iter().enumerate() {
        let part = (i as f64 / pools.len() as f64, (i as f64 + 1.0) / pools.len() as f64);
        let (points, core_rps) = sweep(context, &mut cells, pool, part)?;
        outcome.tables.push(table(pool, &points)?);
        outcome.tables.extend(steering(pool, &points)?);
        outcome.plots.extend([("mean", true), ("p99", false)].map(|(name, mean)| {
            plot(pool, &points, name, if mean { |s| s.mean_ms } else { |s| s.p99_ms })
        }));
        outcome.comparisons.extend(comparisons(pool, &points));
        let sizes = sizes(context);
        let cores: Vec<String> = sizes.cores().iter().map(u32::to_string).collect();
        outcome.notes.push(format!(
            "{}: a core serves {core_rps:.1} requests/s of the mix, all servers have {:.1} cores, as {}; {} a lane \
             from its first request on, Plimsoll's learning included; a lane without Plimsoll ends earlier where more than \
             {:.0} % of a minute's requests got no answer. A request that is refused, answered wrongly or not \
             within 10 s counts with 10 s.",
            pool.title(),
            pool.total_cores(sizes),
            cores.join(" : "),
            format_duration(length(context, pool)),
            100.0 * OVERLOADED
        ));
    }
    Ok(outcome)
}

/// How long a lane lasts.
fn length(context: &Context, pool: ServerPool) -> Duration {
    let ms = Duration::from_millis;
    let default = match pool {
        ServerPool::Emulated => context.pick(ms(500), ms(60_000)),
        ServerPool::Real => context.pick(ms(2_000), ms(600_000)),
        ServerPool::Wordpress => context.pick(ms(12_000), ms(600_000)),
    };
    context.options.lane.unwrap_or(default)
}

/// The study's, or a person's own.
fn sizes(context: &Context) -> Sizes<'_> {
    match &context.options.sizes[..] {
        [] => Sizes::Heterogeneous,
        own => Sizes::Own(own),
    }
}

/// Plimsoll's run between those that they are held against, so that a drift of the machine touches both sides.
fn methods() -> Vec<Method> {
    [STUDY, STEERED, BY_CORES].concat()
}

fn sweep(
    context: &Context,
    cells: &mut Cells,
    pool: ServerPool,
    part: (f64, f64),
) -> Result<(Vec<Point>, f64), Failure> {
    let family = Family::start()?;
    let sizes = sizes(context);
    let mut bed = Bed::start(context, &family, pool, sizes, (&[], context.seed))?;
    let core_rps = bed.scale(context, &family, cells)?.core_rps;
    let loads = context.chosen(&context.options.loads, &LOADS[1..2], &LOADS);
    let all = (loads.len() * methods().len()) as f64;
    let mut points = Vec::new();
    for &load in loads {
        let rate_rps = load * pool.total_cores(sizes) * core_rps;
        for method in methods() {
            let at = |n: usize| part.0 + (part.1 - part.0) * n as f64 / all;
            let number = points.len();
            let turn = Turn { method, rate_rps, number, part: (at(number), at(number + 1)) };
            let cell = format!("{}/{load}/{}", pool.name(), method.name);
            let kept = cells.get_or(&cell, || one(context, &family, &mut bed, &turn))?;
            points.push(Point { load, method, kept });
        }
    }
    Ok((points, core_rps))
}

struct Turn {
    method: Method,
    rate_rps: f64,
    number: usize,
    part: (f64, f64),
}

fn one(context: &Context, family: &Family, bed: &mut Bed, turn: &Turn) -> Result<Kept, Failure> {
    let name = format!("steered-{}-{}", bed.pool.name(), turn.number);
    let (servers, cores) = (bed.addresses(), bed.sizes.cores());
    let mut lane = Lane::start(family, turn.method, &servers, cores, &name)?;
    let from = Instant::now();
    let used = |bed: &Bed| bed.cpu_used().map(|all| all.iter().sum::<f64>());
    let used_s = used(bed)?;
    lane.open(&asks(bed.pool, &[]), turn.rate_rps, context.seed)?;
    let what = format!("{}: {} at {:.1}/s", bed.pool.title(), turn.method.name, turn.rate_rps);
    let (length, mut passed, mut before) = (length(context, bed.pool), Duration::ZERO, (0, 0));
    let at = |passed: Duration| {
        turn.part.0 + (turn.part.1 - turn.part.0) * passed.as_secs_f64() / length.as_secs_f64()
    };
    let mut steering = Steering::begin();
    while passed < length {
        let until = length.min(passed + LOOK);
        wait(context, until - passed, (at(passed), at(until)), &what, || {
            bed.check()?;
            if let Some(daemon) = lane.daemon() {
                steering.look(daemon);
            }
            lane.check()
        })?;
        passed = until;
        let now = lane.answered()?;
        if !turn.method.is_steered && is_overloaded(before, now) {
            break;
        }
        before = now;
    }
    let (to, deadline) = (Instant::now(), bed.pool.deadline());
    let seconds = (to - from).as_secs_f64();
    let busy = (used(bed)? - used_s) / (seconds * bed.cores().iter().sum::<f64>());
    if let Some(daemon) = lane.daemon() {
        steering.end(daemon);
    }
    let (seen, batches_ms) = lane.finish_together(from, to, deadline, BATCHES)?;
    Bed::settle(std::slice::from_ref(bed), context)?;
    Ok(Kept { seen, seconds, busy, batches_ms, steering })
}

impl Kept {
    /// Mean response time from one part of the lane's time to another, milliseconds: what learning costs, and what
    /// comes after it. All batches count alike.
    fn mean_of(&self, from: f64, to: f64) -> f64 {
        let place = |part: f64| (part * self.batches_ms.len() as f64) as usize;
        let of = self.batches_ms[place(from)..place(to)].iter().flatten().copied();
        mean(&of.collect::<Vec<f64>>()).unwrap_or(f64::NAN)
    }
}

/// Whether between two looks, each of requests that have ended and of those without an answer, too few were answered.
fn is_overloaded(before: (u64, u64), now: (u64, u64)) -> bool {
    let (ended, unanswered) = (now.0 - before.0, now.1 - before.1);
    unanswered as f64 > OVERLOADED * ended as f64
}

fn table(pool: ServerPool, points: &[Point]) -> Result<Table, Failure> {
    let title = format!("GETs and POSTs together, {}", pool.title());
    let mut table = Table::empty(pool.name(), &title);
    for Point { load, method, kept: kept @ Kept { seen, seconds, busy, .. } } in points {
        row!(table, pool.provenance(), {
            load: *load, "part of the capacity";
            method: method.name;
            seconds: *seconds, "s";
            busy: *busy, "part of the servers' CPU";
            requests: seen.requests as f64;
            unanswered: seen.errors as f64;
            mean_ms: seen.mean_ms, "ms";
            first_tenth_ms: kept.mean_of(0.0, 0.1), "ms, mean of that part of the lane's time";
            last_half_ms: kept.mean_of(0.5, 1.0), "ms, mean of that part of the lane's time";
            p99_ms: seen.p99_ms, "ms";
            late: seen.late, "part after the deadline";
        })?;
    }
    Ok(table)
}

/// The weights over time, and the decisions.
fn steering(pool: ServerPool, points: &[Point]) -> Result<[Table; 2], Failure> {
    let mut tables = [
        ("weights", "The weights that HAProxy held under Plimsoll"),
        ("decisions", "What Plimsoll decided, and why"),
    ]
    .map(|(name, title)| {
        let (name, title) =
            (format!("{}-{name}", pool.name()), format!("{title}, {}", pool.title()));
        Table::empty(&name, &title)
    });
    for Point { load, method, kept } in points {
        kept.steering.write(&mut tables, (*load, method.name), pool.provenance())?;
    }
    Ok(tables)
}

fn plot(pool: ServerPool, points: &[Point], name: &str, value: fn(&Seen) -> f64) -> Plot {
    let line = |method: &Method| {
        let those = points.iter().filter(|p| p.method == *method);
        let those = those.map(|p| (100.0 * p.load, value(&p.kept.seen)));
        let those = those.filter(|(_, ms)| ms.is_finite() && *ms > 0.0).collect();
        Lines::new(method.name, pool.provenance(), those)
    };
    let lines = methods().iter().map(line).filter(|line| !line.points.is_empty()).collect();
    let (x, y) = (Axis::linear("load (% of capacity)"), Axis::log(&format!("{name} (ms)")));
    let title = format!("Unequal {}: {name}", pool.title());
    Plot::lines(&format!("plimsoll-{}-{name}", pool.name()), &title, x, y, lines)
}

/// The loads that were run, the lowest first.
fn loads_of(points: &[Point]) -> Vec<f64> {
    let mut loads: Vec<f64> = points.iter().map(|p| p.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    loads
}

/// One of Plimsoll's lanes over one of the others, with its interval; nothing where either is missing or ended early.
fn ratio(points: &[Point], load: f64, own: &str, other: &str) -> Option<Ratio> {
    let find = |name| points.iter().find(|p| p.load == load && p.method.name == name);
    let (own, other) = (find(own)?, find(other)?);
    // Batches of a lane that ended early are of other moments.
    if (own.kept.seconds / other.kept.seconds - 1.0).abs() > 0.01 {
        return None;
    }
    let both = own.kept.batches_ms.iter().zip(&other.kept.batches_ms);
    let pairs: Vec<Pair> = both.filter_map(|(a, b)| Some(((*a)?, (*b)?))).collect();
    Ratio::of(&pairs)
}

fn value(points: &[Point], load: f64, name: &str, value: fn(&Seen) -> f64) -> f64 {
    let found = points.iter().find(|p| p.load == load && p.method.name == name);
    found.map_or(f64::NAN, |p| value(&p.kept.seen))
}

fn comparisons(pool: ServerPool, points: &[Point]) -> Vec<Comparison> {
    let mut all = Vec::new();
    let loads = loads_of(points);
    for method in STEERED {
        for &load in &loads {
            for (what, of) in [("mean", (|s| s.mean_ms) as fn(&Seen) -> f64), ("p99", |s| s.p99_ms)]
            {
                all.push(against_equal(pool, points, method, load, what, of));
            }
        }
        all.extend(highest_over_equal(pool, points, method));
        all.extend(against_cores(pool, points, method));
    }
    all
}

/// Of all methods with equal weights and all loads, the highest upper end of the interval; nothing where all of those
/// lanes ended early.
fn highest_over_equal(pool: ServerPool, points: &[Point], method: &Method) -> Option<Comparison> {
    let loads = loads_of(points);
    let pairs = loads.iter().flat_map(|load| STUDY.iter().map(move |other| (*load, other.name)));
    let high = |(load, other)| Some((ratio(points, load, method.name, other)?.high?, load, other));
    let (high, load, other) = pairs.filter_map(high).max_by(|a, b| a.0.total_cmp(&b.0))?;
    let what = format!(
        "{}: the highest upper end of the mean's 95 % interval, {} over a method with equal weights",
        pool.title(),
        method.name
    );
    let target = ("surely faster: the whole interval is below 1", Bound::AtMost(1.0));
    let comparison = Comparison::bound(pool.provenance(), what, target, high, "×");
    Some(comparison.target().why(format!(
        "It is that over {other} at {:.0} %, by batches of time. Lanes that ended early have no interval: more than \
         {:.0} % of a minute's requests got no answer.",
        100.0 * load,
        100.0 * OVERLOADED
    )))
}

/// Against the best of the study's methods, all with equal weights.
fn against_equal(
    pool: ServerPool,
    points: &[Point],
    method: &Method,
    load: f64,
    what: &str,
    of: fn(&Seen) -> f64,
) -> Comparison {
    let others = STUDY.iter().map(|other| (value(points, load, other.name, of), other.name));
    let best = others.filter(|(ms, _)| ms.is_finite()).min_by(|a, b| a.0.total_cmp(&b.0));
    let (ms, name) = best.unwrap_or((f64::NAN, "none"));
    let what = format!(
        "{}, {:.0} %: {what} of {} over that of the best method with equal weights ({name})",
        pool.title(),
        100.0 * load,
        method.name
    );
    let target = ("below every method with equal weights, learning included", Bound::AtMost(1.0));
    let own = value(points, load, method.name, of);
    let comparison = Comparison::bound(pool.provenance(), what, target, own / ms, "×");
    if gave_up(own) && gave_up(ms) {
        return comparison.incomparable(GAVE_UP);
    }
    comparison.target().why(
        "It is a target of Plimsoll's, not a statement of the study. Lanes that ended early count as far as they went. \
         Where uri or source is best, its names or the \
         one address of the clients happen to suit the large servers.",
    )
}

/// Whether so many milliseconds are what a client is willing to wait.
fn gave_up(ms: f64) -> bool {
    ms >= PATIENCE.as_secs_f64() * 1e3
}

/// Against weights in proportion to the quotas, which an administrator knows.
fn against_cores(pool: ServerPool, points: &[Point], method: &Method) -> Vec<Comparison> {
    let (other, most) = if method.name.ends_with("roundrobin") {
        (BY_CORES[0].name, 1.00)
    } else {
        (BY_CORES[1].name, 1.03)
    };
    let title = pool.title();
    let loads = loads_of(points);
    // A lane that ended early counts as far as it went, without an interval.
    let whole = |load| {
        let of = |name| value(points, load, name, |seen| seen.mean_ms);
        Ratio::of(&[(of(method.name), of(other))]).filter(|ratio| ratio.value.is_finite())
    };
    let of = |&load: &f64| ratio(points, load, method.name, other).or_else(|| whole(load));
    let ratios: Vec<Ratio> = loads.iter().filter_map(of).collect();
    let mean = Ratio::geometric_mean(&ratios);
    let interval = mean.as_ref().and_then(|r| Some((r.low?, r.high?)));
    let interval = interval.map_or(String::new(), |(low, high)| {
        format!(" 95 % interval {low:.2} to {high:.2}, by batches of time.")
    });
    let bound = |what: String, text: &str, most: f64, ours: f64| {
        let why = format!(
            "The bound is that of the lab's real servers; learning is included here.{interval}"
        );
        let target = (text, Bound::AtMost(most));
        Comparison::bound(pool.provenance(), what, target, ours, "×").target().why(why)
    };
    let nan = |r: Option<f64>| r.unwrap_or(f64::NAN);
    let p99 = |&load: &f64| {
        let of = |name| value(points, load, name, |seen| seen.p99_ms);
        let (own, other) = (of(method.name), of(other));
        // Where more than 1 % of either were given up, that is no difference.
        (!(gave_up(own) && gave_up(other))).then(|| (own / other).ln())
    };
    let p99: Vec<f64> = loads.iter().filter_map(p99).collect();
    let lowest = ratios.iter().filter_map(|r| r.low).fold(f64::NAN, f64::max);
    let name = method.name;
    let highest = bound(
        format!("{title}: the highest lower end of a load's 95 % interval, {name} over {other}"),
        "no interval wholly above 1.10",
        1.10,
        lowest,
    );
    let mut all = vec![
        bound(
            format!("{title}: mean of {name} over {other}, geometric mean over the loads"),
            &format!("≤ {most:.2}"),
            most,
            nan(mean.map(|r| r.value)),
        ),
        if lowest.is_nan() { highest.incomparable(ENDED) } else { highest },
    ];
    let tail = bound(
        format!("{title}: p99 of {name} over {other}, geometric mean over the loads"),
        "≤ 1.10",
        1.10,
        nan(plimsoll_lanes::mean(&p99)).exp(),
    );
    all.push(if p99.is_empty() { tail.incomparable(GAVE_UP) } else { tail });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(load: f64, method: Method, mean_ms: f64) -> Point {
        let seen = Seen { requests: 100, mean_ms, p99_ms: 3.0 * mean_ms, ..Seen::default() };
        Point {
            load,
            method,
            kept: Kept {
                seen,
                seconds: 600.0,
                busy: load,
                batches_ms: vec![Some(mean_ms); 20],
                steering: Steering::default(),
            },
        }
    }

    #[test]
    fn learning_is_told_apart_by_the_time_of_the_lane() {
        let mut kept = point(0.7, STEERED[0], 100.0).kept;
        kept.batches_ms[..2].copy_from_slice(&[Some(900.0), None]);
        assert_eq!((kept.mean_of(0.0, 0.1), kept.mean_of(0.5, 1.0)), (900.0, 100.0));
    }

    #[test]
    fn a_lane_is_overloaded_where_too_many_of_the_last_minute_got_no_answer() {
        assert!(is_overloaded((0, 0), (100, 6)) && !is_overloaded((0, 0), (100, 5)));
        assert!(!is_overloaded((900, 400), (1_000, 405)));
        assert!(!is_overloaded((5, 0), (5, 0)));
    }

    #[test]
    fn two_lanes_that_gave_up_on_one_in_a_hundred_are_not_compared_by_that() {
        let slow = |method: &Method| point(0.7, *method, 4_000.0);
        let points: Vec<Point> = methods().iter().map(slow).collect();
        let mut all = comparisons(ServerPool::Wordpress, &points);
        all.iter_mut().for_each(|one| one.judge(false));
        let p99 = all.iter().find(|one| one.what.contains("p99 of Plimsoll, leastconn over that"));
        assert_eq!(p99.map(|one| one.verdict().name()), Some("not comparable"));
    }

    #[test]
    fn lanes_of_different_lengths_have_no_ratio() {
        let short = |mut point: Point| {
            point.kept.seconds = 60.0;
            point
        };
        let (own, other) = (STEERED[0], BY_CORES[0]);
        let pair = [point(0.7, own, 50.0), short(point(0.7, other, 100.0))];
        assert!(ratio(&pair, 0.7, own.name, other.name).is_none());
    }

    #[test]
    fn a_lane_by_quota_that_ended_early_is_held_against_by_its_mean_alone() {
        let (own, other) = (STEERED.iter(), BY_CORES[0]);
        let mut points: Vec<Point> = own.map(|method| point(0.7, *method, 50.0)).collect();
        points.push(point(0.7, other, 100.0));
        points[STEERED.len()].kept.seconds = 60.0;
        let method = STEERED.iter().find(|method| method.name.ends_with("roundrobin"));
        let mut all = against_cores(ServerPool::Wordpress, &points, method.expect("there"));
        all.iter_mut().for_each(|one| one.judge(false));
        let verdicts: Vec<&str> = all.iter().map(|one| one.verdict().name()).collect();
        assert_eq!(verdicts, ["target reached", "not comparable", "target reached"]);
    }

    #[test]
    fn plimsoll_is_held_against_the_best_and_against_its_own_method_by_quota() {
        let points: Vec<Point> = LOADS
            .iter()
            .flat_map(|&load| {
                let lane = |method: &Method| {
                    let mean = match method.name {
                        "Plimsoll, roundrobin" => 90.0,
                        "Plimsoll, leastconn" => 60.0,
                        "uri" => 80.0,
                        name if name.ends_with("cores") => 75.0,
                        _ => 200.0,
                    };
                    point(load, *method, mean)
                };
                methods().iter().map(lane).collect::<Vec<_>>()
            })
            .collect();
        let mut all = comparisons(ServerPool::Emulated, &points);
        all.iter_mut().for_each(|one| one.judge(false));
        let verdicts = |part: &str| -> Vec<&str> {
            let those = all.iter().filter(|one| one.what.contains(part));
            those.map(|one| one.verdict().name()).collect()
        };
        assert_eq!(
            verdicts("mean of Plimsoll, roundrobin over that of the best"),
            ["target missed"; 3]
        );
        assert_eq!(
            verdicts("p99 of Plimsoll, leastconn over that of the best"),
            ["target reached"; 3]
        );
        assert_eq!(
            verdicts("95 % interval, Plimsoll, leastconn over a method"),
            ["target reached"]
        );
        assert_eq!(
            verdicts("95 % interval, Plimsoll, roundrobin over a method"),
            ["target missed"]
        );
        assert_eq!(
            verdicts("mean of Plimsoll, leastconn over leastconn, cores"),
            ["target reached"]
        );
        assert_eq!(
            verdicts("mean of Plimsoll, roundrobin over roundrobin, cores"),
            ["target missed"]
        );
    }
}
