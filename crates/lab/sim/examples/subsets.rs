//! What several balancers that do not know of each other's requests cost under leastconn, with the whole pool for each
//! and with a subset of it: mean response times over those of one balancer with the same weights, which are the true
//! capacities. Nothing is learned; the same requests come to all.
//!
//! ```text
//! cargo run --release -p plimsoll-sim --example subsets -- [REQUESTS [SEEDS]]
//! ```

use plimsoll_model::GREATEST_WEIGHT;
use plimsoll_sim::{BackendModel, Method, World, WorldSpec, integer_weights, paper_pool};

const LOADS: [f64; 3] = [0.5, 0.7, 0.85];
const BALANCERS: [u32; 2] = [2, 3];

/// Backends of one core with these capacities in relation to each other, so many times.
fn single(capacities: &[f64], times: usize) -> Vec<BackendModel> {
    let backend = |&speed: &f64| BackendModel { cores: 1, speed };
    (0..times).flat_map(|_| capacities.iter().map(backend)).collect()
}

/// The mean response time in ms, without the first tenth of the requests.
fn mean_ms(spec: &WorldSpec, requests: f64, balancers: u32, subsets: bool) -> f64 {
    let mut world = World::new(WorldSpec { balancers, subsets, ..spec.clone() });
    let seconds = requests / spec.rate_rps;
    world.run_for(0.1 * seconds);
    let from = world.now();
    world.run_for(0.9 * seconds);
    world.since(from).0
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u32>().expect("a whole number"));
    let (requests, seeds) = (f64::from(args.next().unwrap_or(200_000)), args.next().unwrap_or(3));
    let quotas = [1.0, 1.0, 1.6, 2.4, 4.0, 7.0];
    let pools = [
        ("6 servers, 4 : 4 : 6.4 : 9.6 : 16 : 28", single(&quotas, 1)),
        ("12, two of each of these", single(&quotas, 2)),
        ("30, five of each", single(&quotas, 5)),
        ("the 30 of the KnapsackLB paper, 1 to 8 cores", paper_pool(11)),
        ("6 equal", single(&[1.0], 6)),
        ("16 equal", single(&[1.0], 16)),
        ("100 equal", single(&[1.0], 100)),
    ];
    let of = BALANCERS.map(|n| format!("{n} balancers | {n} with subsets"));
    println!(
        "| pool | load | {} |\n|---|---|{}",
        of.join(" | "),
        "---|".repeat(2 * BALANCERS.len())
    );
    for (name, pool) in pools {
        for load in LOADS {
            let mut cells = vec![Vec::new(); 2 * BALANCERS.len()];
            for seed in 0..seeds {
                let mut spec =
                    WorldSpec::new(pool.clone(), Method::LeastConn, load, u64::from(seed) + 1);
                let capacities: Vec<f64> =
                    pool.iter().map(|b| b.capacity_rps(spec.service_us)).collect();
                spec.weights = integer_weights(&capacities, GREATEST_WEIGHT);
                let one = mean_ms(&spec, requests, 1, false);
                let ways = BALANCERS.iter().flat_map(|&n| [(n, false), (n, true)]);
                for (cell, (balancers, subsets)) in cells.iter_mut().zip(ways) {
                    cell.push(mean_ms(&spec, requests, balancers, subsets) / one);
                }
            }
            let median = |cell: &mut Vec<f64>| {
                cell.sort_by(f64::total_cmp);
                format!("{:.2}", cell[cell.len() / 2])
            };
            let cells: Vec<String> = cells.iter_mut().map(median).collect();
            println!("| {name} | {:.0} % | {} |", load * 100.0, cells.join(" | "));
        }
    }
}
