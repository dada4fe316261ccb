//! Every policy on the pool of KnapsackLB's Table 3 at one load: mean latency against the best static
//! split and the central queue, then latency and CPU by type of backend.
//!
//! `cargo run --release -p plimsoll-sim --example arena -- LOAD exponential|bimodal REQUESTS`

use std::time::Instant;

use plimsoll_policy::{Draw, Policy, PolicyKind, Settings};
use plimsoll_queueing::ServiceTime;
use plimsoll_sim::{Arena, ArenaReport, Yardsticks, integer_weights, paper_pool, yardsticks};

struct Row {
    name: String,
    report: ArenaReport,
    millions_per_s: f64,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [load, service, requests] = args.as_slice() else {
        eprintln!("usage: arena LOAD exponential|bimodal REQUESTS");
        std::process::exit(2);
    };
    let load = load.parse().expect("LOAD is a number such as 0.7");
    let requests = requests.parse().expect("REQUESTS is a whole number such as 1000000");
    let mut arena = Arena::new(paper_pool(11), load, requests, 1);
    arena.service = match service.as_str() {
        "exponential" => ServiceTime::Exponential,
        "bimodal" => ServiceTime::Bimodal,
        other => panic!("{other}: expected exponential or bimodal"),
    };
    let yard = yardsticks(&arena).expect("a pool with room");
    let cores: Vec<f64> = arena.pool.iter().map(|b| f64::from(b.cores)).collect();
    let weightings = [
        ("equal", vec![1; arena.pool.len()]),
        ("cores", integer_weights(&cores, 8)),
        ("capacity", integer_weights(&arena.capacities_rps(), 256)),
        ("static", integer_weights(&yard.shares, 256)),
    ];
    let mut rows = Vec::new();
    for &kind in PolicyKind::ALL {
        for (name, weights) in &weightings {
            rows.push(run(&arena, kind, name, weights, Settings::default(), 1));
        }
    }
    let uniform = Settings { draw: Draw::Uniform, ..Settings::default() };
    let capacity = &weightings[2].1;
    rows.push(run(&arena, PolicyKind::PowerOfN, "capacity, uniform", capacity, uniform, 1));
    for balancers in [10, 40] {
        for kind in [PolicyKind::LeastConnections, PolicyKind::PowerOfN, PolicyKind::LeastTime] {
            let name = format!("capacity, {balancers} LBs");
            rows.push(run(&arena, kind, &name, capacity, Settings::default(), balancers));
        }
    }
    print(&arena, &yard, &rows);
}

fn run(
    arena: &Arena,
    kind: PolicyKind,
    weighting: &str,
    weights: &[u32],
    settings: Settings,
    balancers: usize,
) -> Row {
    let build = |_| kind.build(weights, &settings).expect("valid settings");
    let mut balancers: Vec<Box<dyn Policy>> = (0..balancers).map(build).collect();
    let from = Instant::now();
    let report = arena.run(&mut balancers);
    let millions_per_s = f64::from(arena.requests) / 1e6 / from.elapsed().as_secs_f64();
    Row { name: format!("{kind} ({weighting})"), report, millions_per_s }
}

fn print(arena: &Arena, yard: &Yardsticks, rows: &[Row]) {
    let (best_us, limit_us) = (yard.static_split.mean_us, yard.central_mean_us);
    println!("best static split {:.1} ms, central queue {:.1} ms", best_us / 1e3, limit_us / 1e3);
    println!("\nby cores 1, 2, 4, 8: mean ms | CPU %");
    println!(
        "{:40} {:>8} {:>8} {:>7} {:>8} {:>6}",
        "", "mean ms", "p99 ms", "/static", "/central", "M/s"
    );
    for row in rows {
        let r = &row.report;
        let types = r.by_cores(&arena.pool);
        let ms: Vec<String> = types.iter().map(|t| format!("{:6.1}", t.mean_us / 1e3)).collect();
        let cpu: Vec<String> =
            types.iter().map(|t| format!("{:3.0}", 100.0 * t.utilisation)).collect();
        println!(
            "{:40} {:8.1} {:8.1} {:7.3} {:8.3} {:6.2}  {} | {}",
            row.name,
            r.mean_us / 1e3,
            r.p99_us / 1e3,
            r.mean_us / best_us,
            r.mean_us / limit_us,
            row.millions_per_s,
            ms.join(" "),
            cpu.join(" ")
        );
    }
}
