//! Containers under CPU quotas in simulation, compared with weights in proportion to their quotas. Prints the ratios of
//! mean response times, per seed; lanes of one seed have the same arrivals and the same work.
//!
//! ```text
//! cargo run --release -p plimsoll-sim --example real -- [loads|pauses|shared|neighbour|steps|still|days] [seeds=N] [from=SEED] [hours=N] \
//!     [cpu=MS] [workers=N] [maxconn=N] [load=PERCENT] [method=roundrobin|leastconn] [verbose]
//! ```

use plimsoll_control::RecordKind;
use plimsoll_sim::{ContainerPool, ContainerPoolSpec, Method};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Quotas in cores: those of the six servers in real.md, two thirds of theirs.
const QUOTAS: [f64; 6] = [0.0267, 0.0267, 0.0427, 0.064, 0.1067, 0.1867];
/// After this many seconds a pool counts as learned.
const LEARNED_S: f64 = 180.0;

#[derive(Clone)]
struct Asked {
    seeds: std::ops::Range<u64>,
    hours: u64,
    /// CPU time of a request in the mean, seconds.
    cpu_s: f64,
    workers: Option<usize>,
    maxconn: Option<u32>,
    loads: Vec<f64>,
    methods: Vec<Method>,
    verbose: bool,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| words.iter().find_map(|w| w.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str, or: u64| {
        value(name).map_or(or, |n| n.parse().unwrap_or_else(|_| panic!("{name}=N, a number")))
    };
    let from = number("from", 0);
    let asked = Asked {
        seeds: from..from + number("seeds", 4),
        hours: number("hours", 24),
        cpu_s: value("cpu").map_or(5.5, |ms| ms.parse().expect("cpu=MS, a number")) / 1e3,
        workers: value("workers").map(|n| n.parse().expect("workers=N, a number")),
        maxconn: value("maxconn").map(|n| n.parse().expect("maxconn=N, a number")),
        loads: value("load").map_or(vec![0.5, 0.7, 0.85], |l| {
            vec![l.parse::<f64>().expect("load=PERCENT, a number") / 100.0]
        }),
        methods: match value("method") {
            Some("roundrobin") => vec![Method::RoundRobin],
            Some("leastconn") => vec![Method::LeastConn],
            None => vec![Method::RoundRobin, Method::LeastConn],
            Some(other) => panic!("method={other}: expected roundrobin or leastconn"),
        },
        verbose: words.iter().any(|w| w == "verbose"),
    };
    match words.first().map(String::as_str) {
        Some("pauses") => pauses(&asked),
        Some("neighbour") => neighbour(&asked),
        Some("steps") => steps(&asked),
        Some("still") => still(&asked),
        Some("shared") => shared(&asked),
        Some("days") => days(&asked),
        _ => loads(&asked),
    }
}

impl Asked {
    fn spec(&self, method: Method, load: f64, seed: u64, by_quota: bool) -> ContainerPoolSpec {
        let weight = |q: &f64| if by_quota { (q * 1_000.0).round() as u32 } else { 100 };
        let mut spec = ContainerPoolSpec {
            quotas: QUOTAS.to_vec(),
            cpu_s: self.cpu_s,
            workers: self.workers,
            maxconn: self.maxconn,
            method,
            weights: QUOTAS.iter().map(weight).collect(),
            rate_rps: 1.0,
            seed,
        };
        spec.rate_rps = load * spec.capacities().iter().sum::<f64>();
        spec
    }
}

/// Mean (ms) and errors of what was sent between these seconds; clients that gave up count with ten seconds.
fn mean(pool: &ContainerPool, from_s: f64, to_s: f64) -> (f64, usize) {
    let sent = pool.outcomes.iter().filter(|o| (from_s..to_s).contains(&o.sent_s));
    let (mut sum, mut n, mut errors) = (0.0, 0, 0);
    for outcome in sent {
        sum += outcome.latency_ms.unwrap_or(10_000.0);
        n += 1;
        errors += usize::from(outcome.latency_ms.is_none());
    }
    (sum / f64::from(n.max(1)), errors)
}

fn count(pool: &ContainerPool, kind: RecordKind) -> usize {
    pool.records.iter().filter(|(_, record)| record.kind == kind).count()
}

fn tell(pool: &ContainerPool, verbose: bool) {
    if !verbose {
        return;
    }
    for (at, record) in &pool.records {
        println!("    {at:8.2} {:?} {:?} {}", record.kind, record.backend, record.reason);
    }
    if let Some(controller) = pool.controller() {
        for b in controller.beliefs() {
            println!(
                "    {}: weight {}, believed {:?} ± {:.0} %, at least: {}, service {:?} us",
                b.backend,
                b.wanted,
                b.capacity_rps.map(|rps| rps.round()),
                b.capacity_error * 100.0,
                b.is_lower_bound,
                b.service_us.map(f64::round),
            );
        }
    }
}

fn geometric(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len().max(1) as f64).exp()
}

fn loads(asked: &Asked) {
    println!(
        "method      load   oracle ms  equal  plimsoll: learning, after  failed  aside  drift  errors"
    );
    for &method in &asked.methods {
        for &load in &asked.loads {
            let mut ratios = Vec::new();
            for seed in asked.seeds.clone() {
                let mut lanes = [true, false, false]
                    .map(|q| ContainerPool::new(asked.spec(method, load, seed, q)));
                lanes[2].attach();
                lanes.iter_mut().for_each(|lane| lane.run_for(480.0));
                let after = |lane: usize| mean(&lanes[lane], LEARNED_S, 470.0).0;
                let (oracle, equal, ours) = (after(0), after(1), after(2));
                let learning =
                    mean(&lanes[2], 0.0, LEARNED_S).0 / mean(&lanes[1], 0.0, LEARNED_S).0;
                println!(
                    "{:10} {load:5.2} {oracle:10.1} {:6.2} {learning:14.2} {:9.3} {:9} {:6} {:6} {:7}",
                    format!("{method:?}"),
                    equal / oracle,
                    ours / oracle,
                    count(&lanes[2], RecordKind::Failed),
                    count(&lanes[2], RecordKind::SetAside),
                    count(&lanes[2], RecordKind::Drift),
                    mean(&lanes[2], 0.0, 480.0).1,
                );
                ratios.push(ours / oracle);
                tell(&lanes[2], asked.verbose);
            }
            println!(
                "{:10} {load:5.2} geometric mean of the ratios {:.3}",
                format!("{method:?}"),
                geometric(&ratios)
            );
        }
    }
}

/// Half an hour of pauses, beside the weights that the controller had learned before.
fn pauses(asked: &Asked) {
    println!("method     pauses                     frozen ms  plimsoll/frozen  failed  drift");
    for &method in &asked.methods {
        for (what, every_s, long_s, all) in [
            ("0.2 s every 10 s", 10.0, 0.2, false),
            ("1 s every minute", 60.0, 1.0, false),
            ("all 0.5 s every minute", 60.0, 0.5, true),
        ] {
            for seed in asked.seeds.clone() {
                let mut ours = ContainerPool::new(asked.spec(method, 0.7, seed, false));
                ours.attach();
                ours.run_for(LEARNED_S);
                let mut frozen = ContainerPool::new(asked.spec(method, 0.7, seed, false));
                frozen.run_for(LEARNED_S);
                frozen.set_weights(ours.weights());
                let mut round = 0;
                while ours.now_s() < LEARNED_S + 1_800.0 {
                    for lane in [&mut ours, &mut frozen] {
                        let n = QUOTAS.len();
                        let which = if all { 0..n } else { round % n..round % n + 1 };
                        which.for_each(|i| lane.pause(i, long_s));
                        lane.run_for(every_s);
                    }
                    round += 1;
                }
                let of = |lane: &ContainerPool| mean(lane, LEARNED_S, LEARNED_S + 1_790.0).0;
                println!(
                    "{:10} {what:26} {:9.1} {:16.3} {:7} {:6}",
                    format!("{method:?}"),
                    of(&frozen),
                    of(&ours) / of(&frozen),
                    count(&ours, RecordKind::Failed),
                    count(&ours, RecordKind::Drift)
                );
                tell(&ours, asked.verbose);
            }
        }
    }
}

/// Half an hour in which all servers work at 60 % for 20 s every three minutes, as behind a database that they share,
/// beside the weights that the controller had learned before.
fn shared(asked: &Asked) {
    println!(
        "method     frozen ms  plimsoll/frozen  shared  changes called  capacity believed/true"
    );
    for &method in &asked.methods {
        for seed in asked.seeds.clone() {
            let mut ours = ContainerPool::new(asked.spec(method, 0.7, seed, false));
            ours.attach();
            ours.run_for(LEARNED_S);
            let mut frozen = ContainerPool::new(asked.spec(method, 0.7, seed, false));
            frozen.run_for(LEARNED_S);
            frozen.set_weights(ours.weights());
            for _ in 0..10 {
                for lane in [&mut ours, &mut frozen] {
                    QUOTAS.iter().enumerate().for_each(|(i, q)| lane.set_quota(i, 0.6 * q));
                    lane.run_for(20.0);
                    QUOTAS.iter().enumerate().for_each(|(i, q)| lane.set_quota(i, *q));
                    lane.run_for(160.0);
                }
            }
            let of = |lane: &ContainerPool| mean(lane, LEARNED_S, LEARNED_S + 1_790.0).0;
            let beliefs = ours.controller().expect("it is attached").beliefs();
            let believed = beliefs.zip(QUOTAS).map(|(b, quota)| {
                format!(" {:.2}", b.capacity_rps.unwrap_or(f64::NAN) * asked.cpu_s / quota)
            });
            println!(
                "{:10} {:9.1} {:16.3} {:7} {:15}  {}",
                format!("{method:?}"),
                of(&frozen),
                of(&ours) / of(&frozen),
                count(&ours, RecordKind::Doubted),
                count(&ours, RecordKind::Drift),
                believed.collect::<String>(),
            );
            tell(&ours, asked.verbose);
        }
    }
}

/// A neighbour takes half of the largest for 75 s.
fn neighbour(asked: &Asked) {
    println!(
        "method     frozen ms: during, after   plimsoll ms: during, errors, 30 to 120 s after   detected after s  failed"
    );
    for &method in &asked.methods {
        for seed in asked.seeds.clone() {
            let mut lanes =
                [true, false].map(|q| ContainerPool::new(asked.spec(method, 0.7, seed, q)));
            lanes[1].attach();
            for lane in &mut lanes {
                lane.run_for(LEARNED_S);
                lane.set_quota(5, 0.5 * QUOTAS[5]);
                lane.run_for(75.0);
                lane.set_quota(5, QUOTAS[5]);
                lane.run_for(140.0);
            }
            let end = LEARNED_S + 75.0;
            let of = |lane: usize, from: f64, to: f64| mean(&lanes[lane], from, to);
            let detected = lanes[1].records.iter().find(|(at, record)| {
                *at > LEARNED_S
                    && record.kind == RecordKind::Drift
                    && record.backend.as_deref() == Some("s5")
            });
            println!(
                "{:10} {:9.0} {:8.0} {:21.0} {:6} {:21.0} {:16.1} {:6}",
                format!("{method:?}"),
                of(0, LEARNED_S, end).0,
                of(0, end + 30.0, end + 120.0).0,
                of(1, LEARNED_S, end).0,
                of(1, LEARNED_S, end + 120.0).1,
                of(1, end + 30.0, end + 120.0).0,
                detected.map_or(f64::NAN, |(at, _)| at - LEARNED_S),
                count(&lanes[1], RecordKind::Failed),
            );
            tell(&lanes[1], asked.verbose);
        }
    }
}

/// The load in steps; from a minute after each the mean is compared with that of weights by quota.
fn steps(asked: &Asked) {
    println!("method      plimsoll/oracle at 60 %, 85 %, 50 % (after 8 %)   failed  drift  errors");
    for &method in &asked.methods {
        let mut all = [const { Vec::new() }; 3];
        for seed in asked.seeds.clone() {
            let mut lanes =
                [true, false].map(|q| ContainerPool::new(asked.spec(method, 0.08, seed, q)));
            lanes[1].attach();
            let full = asked.spec(method, 1.0, seed, true).rate_rps;
            lanes.iter_mut().for_each(|lane| lane.run_for(LEARNED_S));
            let ratios = [0.6, 0.85, 0.5].map(|load| {
                let from = lanes[0].now_s() + 60.0;
                for lane in &mut lanes {
                    lane.set_rate(load * full);
                    lane.run_for(300.0);
                }
                mean(&lanes[1], from, from + 230.0).0 / mean(&lanes[0], from, from + 230.0).0
            });
            println!(
                "{:10} {:14.3} {:6.3} {:6.3} {:31} {:6} {:7}",
                format!("{method:?}"),
                ratios[0],
                ratios[1],
                ratios[2],
                count(&lanes[1], RecordKind::Failed),
                count(&lanes[1], RecordKind::Drift),
                mean(&lanes[1], 0.0, f64::INFINITY).1,
            );
            tell(&lanes[1], asked.verbose);
            all.iter_mut().zip(ratios).for_each(|(all, ratio)| all.push(ratio));
        }
        let [a, b, c] = all.map(|ratios| geometric(&ratios));
        println!("{:10} geometric means {a:.3} {b:.3} {c:.3}", format!("{method:?}"));
    }
}

/// Four hours in which nothing changes: every change that is called, is false.
fn still(asked: &Asked) {
    println!("method      load   shared  changes called  failed  aside");
    for &method in &asked.methods {
        for &load in &asked.loads {
            for seed in asked.seeds.clone() {
                let mut pool = ContainerPool::new(asked.spec(method, load, seed, false));
                pool.attach();
                pool.run_for(4.0 * 3_600.0);
                println!(
                    "{:10} {load:5.2} {:8} {:15} {:7} {:6}",
                    format!("{method:?}"),
                    count(&pool, RecordKind::Doubted),
                    count(&pool, RecordKind::Drift),
                    count(&pool, RecordKind::Failed),
                    count(&pool, RecordKind::SetAside),
                );
                tell(&pool, asked.verbose);
            }
        }
    }
}

/// Days, or as many hours, of pauses (of one, up to 1.5 s; of all, up to 0.5 s), quotas that change and overload: `seeds` of them
/// per method. No server is ever dead.
fn days(asked: &Asked) {
    println!("method      day  requests  failed  aside  drift  given up");
    for &method in &asked.methods {
        for seed in asked.seeds.clone() {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut pool = ContainerPool::new(asked.spec(method, 0.5, seed, false));
            let full = asked.spec(method, 1.0, seed, true).rate_rps;
            pool.attach();
            let (mut requests, mut given_up) = (0, 0);
            while pool.now_s() < asked.hours as f64 * 3_600.0 {
                let i = rng.random_range(0..QUOTAS.len());
                match rng.random_range(0..12) {
                    0 => pool.set_rate(full * rng.random_range(0.05..0.95)),
                    1 => pool.set_rate(full * rng.random_range(0.9..1.3)),
                    2 => pool.set_quota(i, QUOTAS[i] * rng.random_range(0.5..1.0)),
                    3 => QUOTAS.iter().enumerate().for_each(|(i, q)| pool.set_quota(i, *q)),
                    4 => (0..QUOTAS.len()).for_each(|i| pool.pause(i, 0.5)),
                    _ => pool.pause(i, rng.random_range(0.05..1.5)),
                }
                pool.run_for(rng.random_range(5.0..60.0));
                requests += pool.outcomes.len();
                given_up += pool.outcomes.drain(..).filter(|o| o.latency_ms.is_none()).count();
            }
            println!(
                "{:10} {seed:4} {requests:9} {:7} {:6} {:6} {given_up:9}",
                format!("{method:?}"),
                count(&pool, RecordKind::Failed),
                count(&pool, RecordKind::SetAside),
                count(&pool, RecordKind::Drift),
            );
            tell(&pool, asked.verbose);
        }
    }
}
