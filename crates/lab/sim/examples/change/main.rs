//! The controller in a world that changes: one backend slowed to 60 %, one half as fast again (the one that
//! gets the most, or the least), traffic ±20 %.
//! After each change the clients' mean is compared with that of the best static split of the new pool, which an oracle
//! sets at the moment of the change, and with unchanged weights; all three with the same arrivals. (At 95 % load means
//! of minutes scatter by tens of per cent, most of which all three share.) Under each change, the results of its runs
//! against the targets. `roundrobin` picks by HAProxy's own keys, `smooth` in smooth turns and by the new weights at
//! once.
//!
//! ```text
//! cargo run --release -p plimsoll-sim --example change -- paper|small roundrobin|smooth|leastconn LOAD SEEDS \
//!     [regular|bimodal] [smallest] [poll=MS] [verbose]
//! cargo run --release -p plimsoll-sim --example change -- bound LOAD ERROR
//! ```
//!
//! Service is exponential unless said otherwise, and the oracle knows how it scatters (the costs that `verbose` shows
//! are by the curves of exponential service). `bound`: what is lost by capacities that are off by a relative ERROR
//! (normal, one standard deviation), the small pool's largest slowed to 60 %, when they are packed for the best: the
//! mean by the true curves over the optimum.

mod summary;

use plimsoll_model::{Curve, Nanos};
use plimsoll_queueing::ServiceTime;
use plimsoll_sim::{
    Arena, BackendModel, Method, Verdict, World, WorldSpec, poll_asked, pool_named, service_named,
    small_pool, static_shares,
};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const SERVICE_US: f64 = 30_000.0;
const LEARNING_S: f64 = 300.0;
const SETTLING_S: f64 = 60.0;
const MEASURED_S: f64 = 600.0;
/// When beliefs are shown a second time.
const SETTLED_S: f64 = 300.0;
/// Draws of capacities.
const DRAWS: usize = 1_000;

/// Correlation of queues has mostly gone after this long: the differences of two worlds from one such span to the next
/// show the error of their mean. (At 95 % load it takes longer, and the printed error is too small.)
const BATCH_S: f64 = 20.0;

use summary::Row;

/// The change.
#[derive(Clone, Copy, Debug)]
enum Change {
    Slowed(f64),
    Traffic(f64),
}

impl Change {
    /// Whether weights made for this traffic can be the answer: to a change of traffic, if they were made for more than
    /// half of the difference.
    fn may_be_answered_by(self, planned_rps: f64, before_rps: f64) -> bool {
        match self {
            Change::Slowed(_) => true,
            Change::Traffic(part) => (planned_rps / before_rps - 1.0) / (part - 1.0) > 0.5,
        }
    }
}

/// Parameters of the change and of the output.
#[derive(Clone, Copy, Debug)]
struct How {
    /// The smallest serving backend changes, not the one with the most traffic.
    smallest: bool,
    verbose: bool,
}

fn main() {
    let (poll, args) = poll_asked(std::env::args().skip(1)).unwrap_or_else(|why| panic!("{why}"));
    if let [first, load, error] = args.as_slice()
        && first == "bound"
    {
        let number = |text: &str| text.parse().expect("LOAD and ERROR are numbers such as 0.8");
        bound(number(load), number(error));
        return;
    }
    let (words, args): (Vec<String>, Vec<String>) = args
        .into_iter()
        .partition(|word| ["smallest", "verbose", "regular", "bimodal"].contains(&word.as_str()));
    let [pool, method, load, seeds] = args.as_slice() else {
        eprintln!(
            "usage: change paper|small roundrobin|smooth|leastconn LOAD SEEDS [regular|bimodal] [smallest] [poll=MS] [verbose]"
        );
        eprintln!("       change bound LOAD ERROR");
        std::process::exit(2);
    };
    let pool = pool_named(pool).unwrap_or_else(|why| panic!("POOL {why}"));
    let smooth = method == "smooth";
    let picks = if smooth { Ok(Method::RoundRobin) } else { method.parse() };
    let method: Method = picks.unwrap_or_else(|why| panic!("METHOD {why}, or smooth"));
    let load: f64 = load.parse().expect("LOAD is a number such as 0.7");
    let seeds: u64 = seeds.parse().expect("SEEDS is how many runs to make");
    let how = How {
        smallest: words.iter().any(|word| word == "smallest"),
        verbose: words.iter().any(|word| word == "verbose"),
    };
    let mut spec = WorldSpec { smooth, ..WorldSpec::new(pool, method, load, 0) };
    if let Some(name) = words.iter().find(|word| ["regular", "bimodal"].contains(&word.as_str())) {
        spec.service = service_named(name).unwrap_or_else(|why| panic!("{why}"));
    }
    spec.poll = poll.unwrap_or(spec.poll);
    println!(
        "change         seen_s  requests  plan_s  false  mean/oracle  frozen/oracle  over_frozen"
    );
    for change in
        [Change::Slowed(0.6), Change::Slowed(1.5), Change::Traffic(1.2), Change::Traffic(0.8)]
    {
        let run = |seed| row(&WorldSpec { seed, ..spec.clone() }, change, how);
        let rows: Vec<Row> = (1..=seeds).map(run).collect();
        summary::print(&rows);
    }
}

fn bound(load: f64, error: f64) {
    let mut pool = small_pool();
    let rate_rps = load * pool.iter().map(|b| b.capacity_rps(SERVICE_US)).sum::<f64>();
    pool.last_mut().expect("a pool").speed *= 0.6;
    let full = rate_rps / pool.iter().map(|b| b.capacity_rps(SERVICE_US)).sum::<f64>();
    let truth = Truth { pool: &pool, rate_rps, service: ServiceTime::Exponential };
    let optimum_us = truth.mean_us(&best_shares(&pool, rate_rps, ServiceTime::Exponential));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut uniform = || ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    // Box and Muller.
    let mut normal = || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
    let mut costs: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let off =
                |b: &BackendModel| BackendModel { speed: b.speed * (1.0 + error * normal()), ..*b };
            let believed: Vec<BackendModel> = pool.iter().map(off).collect();
            truth.mean_us(&best_shares(&believed, rate_rps, ServiceTime::Exponential)) / optimum_us
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    println!(
        "{:.1} % full, capacities off by {:.1} %: median {:.3}, worst tenth {:.3} of the optimum",
        100.0 * full,
        100.0 * error,
        costs[DRAWS / 2],
        costs[DRAWS * 9 / 10]
    );
}

fn row(spec: &WorldSpec, change: Change, How { smallest, verbose }: How) -> Row {
    let (pool, before_rps) = (&spec.pool, spec.rate_rps);
    let mut world = World::new(spec.clone());
    let service = world.service_spec();
    world.attach(service, None);
    world.run_for(LEARNING_S);
    let weights = world.weights();
    let serving = (0..pool.len()).filter(|&i| weights[i] > 0);
    let changed = if smallest {
        serving.min_by_key(|&i| (pool[i].cores, weights[i]))
    } else {
        serving.max_by_key(|&i| weights[i])
    };
    let changed = changed.expect("a pool");
    let still = || {
        let mut world = World::new(WorldSpec { weights: weights.clone(), ..spec.clone() });
        world.run_for(LEARNING_S);
        world
    };
    let (mut frozen, mut oracle) = (still(), still());
    if verbose {
        Truth { pool, rate_rps: before_rps, service: spec.service }.print(&world, world.now());
    }
    let mut after = pool.to_vec();
    let mut rate = before_rps;
    for w in [&mut world, &mut frozen, &mut oracle] {
        match change {
            Change::Slowed(part) => {
                after[changed].speed = part * pool[changed].speed;
                w.set_speed(changed, after[changed].speed);
            }
            Change::Traffic(part) => {
                rate = part * before_rps;
                w.set_rate(rate);
            }
        }
    }
    let at = world.now();
    for (i, weight) in best_weights(&after, rate, spec.service).into_iter().enumerate() {
        oracle.set_foreign_weight(i, weight);
    }
    let truth = Truth { pool: &after, rate_rps: rate, service: spec.service };
    let [mean, alone, optimum] = [&mut world, &mut frozen, &mut oracle].map(|w| {
        w.run_for(SETTLING_S);
        let from = w.now();
        let mut left_s = MEASURED_S;
        if verbose && w.controller().is_some() {
            truth.print(w, at);
            w.run_for(SETTLED_S - SETTLING_S);
            truth.print(w, at);
            left_s -= SETTLED_S - SETTLING_S;
        }
        w.run_for(left_s);
        Waits::of(w, from)
    });
    let answers = |rps: f64| change.may_be_answered_by(rps, before_rps);
    let row = row_of(&world, (changed, at), answers, [&mean, &alone, &optimum]);
    println!("{:13}  {row}", format!("{change:?}"));
    if verbose {
        for (t, r) in &world.records {
            println!(
                "    {:7.1} {:?} {} {}",
                t.as_secs_f64() - at.as_secs_f64(),
                r.kind,
                r.backend.as_deref().unwrap_or("-"),
                r.reason
            );
        }
    }
    row
}

/// Response times of all clients, by when they had sent their requests.
struct Waits {
    batches_ms: Vec<f64>,
    mean_ms: f64,
}

impl Waits {
    fn of(world: &World, from: Nanos) -> Waits {
        let mut batches_ms = vec![0.0; (MEASURED_S / BATCH_S) as usize];
        for answer in world.answers.iter().filter(|a| a.sent >= from && a.ok) {
            let batch = (answer.sent.since(from).as_secs_f64() / BATCH_S) as usize;
            let last = batches_ms.len() - 1;
            batches_ms[batch.min(last)] += answer.latency_ms;
        }
        Waits { batches_ms, mean_ms: world.since(from).0 }
    }

    /// The relative difference of the sum to the other's, with its standard error. The arrivals are the same, so the
    /// differences scatter less than either.
    fn longer_than(&self, other: &Waits) -> (f64, f64) {
        let pairs = self.batches_ms.iter().zip(&other.batches_ms);
        let differences: Vec<f64> = pairs.map(|(mine, others)| mine - others).collect();
        let n = differences.len() as f64;
        let mean = differences.iter().sum::<f64>() / n;
        let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let whole: f64 = other.batches_ms.iter().sum();
        (n * mean / whole, (n * variance).sqrt() / whole)
    }
}

/// The result of a change of this backend at this time, and the response times: with the controller, with unchanged
/// weights, and with the oracle's.
fn row_of(
    world: &World,
    (changed, at): (usize, Nanos),
    answers: impl Fn(f64) -> bool,
    [mean, alone, optimum]: [&Waits; 3],
) -> Row {
    let drift = |mine: bool| {
        let name = format!("s{changed}");
        world.records.iter().filter(move |(t, r)| {
            let own = r.backend.as_deref() == Some(name.as_str());
            // With uncertain cores it is only relearned.
            let detected = [Some(Verdict::Changed), Some(Verdict::MayHaveChanged)];
            detected.contains(&Verdict::of(r)) && *t > at && own == mine
        })
    };
    let seen = drift(true).next().map(|(t, _)| *t);
    let served = |until: Nanos| {
        world
            .answers
            .iter()
            .filter(|a| a.backend == changed && a.sent > at && a.sent < until)
            .count()
    };
    let seconds = |t: Nanos| t.since(at).as_secs_f64();
    Row {
        seen: seen.map(|t| (seconds(t), served(t))),
        plan_s: world
            .planned_rps
            .iter()
            .find(|(t, rps)| *t > at && answers(*rps))
            .map(|(t, _)| seconds(*t)),
        false_alarms: drift(false).count(),
        mean: mean.mean_ms / optimum.mean_ms,
        frozen: alone.mean_ms / optimum.mean_ms,
        worse: mean.longer_than(alone),
    }
}

/// The world after the change, which no controller knows.
struct Truth<'a> {
    pool: &'a [BackendModel],
    rate_rps: f64,
    service: ServiceTime,
}

impl Truth<'_> {
    /// The estimates of each backend beside the truth, and what the weights cost by the true curves.
    fn print(&self, world: &World, at: Nanos) {
        let Some(controller) = world.controller() else { return };
        let best = best_shares(self.pool, self.rate_rps, self.service);
        let held: Vec<f64> = world.weights().iter().map(|&w| f64::from(w)).collect();
        let sum: f64 = held.iter().sum();
        let held: Vec<f64> = held.into_iter().map(|w| w / sum).collect();
        println!(
            "    {:.0} s later; mean of the weights over that of the best, by the true curves: {:.3}",
            world.now().since(at).as_secs_f64(),
            self.mean_us(&held) / self.mean_us(&best)
        );
        for (i, (model, belief)) in self.pool.iter().zip(controller.beliefs()).enumerate() {
            let capacity = model.capacity_rps(SERVICE_US);
            println!(
                "      s{i}: {capacity:6.1} req/s, believed {:.3} of it (error {:.3}{}); given {:.3} of its best share, {:.3} full",
                belief.capacity_rps.unwrap_or(f64::NAN) / capacity,
                belief.capacity_error,
                if belief.is_lower_bound { ", a lower bound" } else { "" },
                held[i] / best[i],
                held[i] * self.rate_rps / capacity
            );
        }
    }

    fn mean_us(&self, shares: &[f64]) -> f64 {
        let of = |(b, share): (&BackendModel, &f64)| {
            share * b.curve(SERVICE_US).latency_at(share * self.rate_rps)
        };
        self.pool.iter().zip(shares).filter(|(_, share)| **share > 0.0).map(of).sum()
    }
}

fn best_shares(pool: &[BackendModel], rate_rps: f64, service: ServiceTime) -> Vec<f64> {
    let arena = Arena { rate_rps, service, ..Arena::new(pool.to_vec(), 0.7, 0, 0) };
    static_shares(&arena).expect("a pool with room")
}

/// The best static split of a pool, as weights.
fn best_weights(pool: &[BackendModel], rate_rps: f64, service: ServiceTime) -> Vec<u32> {
    let shares = best_shares(pool, rate_rps, service);
    let most = shares.iter().copied().fold(0.0, f64::max);
    shares.iter().map(|share| (256.0 * share / most).round() as u32).collect()
}
