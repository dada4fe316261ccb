//! Lets the controller learn the pool of KnapsackLB's Table 3 in simulated time, and compares the result with the best
//! static split and the central queue.
//!
//! `cargo run --release -p plimsoll-sim --example learn -- LOAD roundrobin|leastconn \
//!  plimsoll|bisect|literal SEEDS` (the last two: KnapsackLB's own controller)

use plimsoll_model::Nanos;
use plimsoll_sim::knapsack::ExploreMode;
use plimsoll_sim::{Arena, Method, World, WorldSpec, paper_pool, yardsticks};

const LEARNING_S: f64 = 180.0;
const MEASURED_S: f64 = 300.0;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [load, method, steered, seeds] = args.as_slice() else {
        eprintln!("usage: learn LOAD roundrobin|leastconn plimsoll|bisect|literal SEEDS");
        std::process::exit(2);
    };
    let load: f64 = load.parse().expect("LOAD is a number such as 0.7");
    let seeds: u64 = seeds.parse().expect("SEEDS is how many runs to make");
    let method: Method = method.parse().unwrap_or_else(|why| panic!("{why}"));
    let knapsack = match steered.as_str() {
        "plimsoll" => None,
        "bisect" => Some(ExploreMode::Bisect),
        "literal" => Some(ExploreMode::Literal),
        other => panic!("{other}: expected plimsoll, bisect or literal"),
    };
    let ends =
        yardsticks(&Arena::new(paper_pool(11), load, 1_000_000, 5)).expect("a pool with room");
    let (oracle_ms, limit_ms) = (ends.static_split.mean_us / 1e3, ends.central_mean_us / 1e3);
    println!("best static split {oracle_ms:.1} ms, central queue {limit_ms:.1} ms");
    println!("seed  mean_ms  /static  /central  harm  plans");
    let mut ratios = Vec::new();
    for seed in 1..=seeds {
        let mut world = World::new(WorldSpec::new(paper_pool(11), method, load, seed));
        match knapsack {
            Some(mode) => world.attach_knapsack(mode),
            None => world.attach(world.service_spec(), None),
        }
        world.run_for(LEARNING_S);
        let from = world.now();
        world.run_for(MEASURED_S);
        let (mean, p99, _) = world.since(from);
        let early = || world.answers.iter().filter(|a| a.sent < from && a.sent > Nanos::ZERO);
        let slow = early().filter(|a| !a.ok || a.latency_ms > p99).count() as f64;
        let harm = slow - 0.01 * early().count() as f64;
        let (of_static, of_limit) = (mean / oracle_ms, mean / limit_ms);
        let plans = world.plans.len();
        println!("{seed:4}  {mean:7.1}  {of_static:7.3}  {of_limit:8.3}  {harm:.0}  {plans}");
        ratios.push(of_static);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median of the best static split: {:.3}", ratios[ratios.len() / 2]);
}
