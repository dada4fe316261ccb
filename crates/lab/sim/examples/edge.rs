//! Scratch.
use plimsoll_feedback::{Ages, BalancerKind as B};
use plimsoll_sim::edge::*;
use std::time::Duration;
fn main() {
    let moving = Elephants::Moving { share: 0.3, load: 0.15, mean_ms: 300.0 };
    let cells = [
        ("N=2 47%", 2, Elephants::Fixed { share: 0.47 }, Mice::Packets(10)),
        ("N=8 moving", 8, moving, Mice::Packets(10)),
        ("N=16 moving", 16, moving, Mice::Packets(10)),
        ("N=8 1s", 8, moving, Mice::Exponential(1000.0)),
    ];
    let wf = |ms| Way::Policy(B::WaterFill, Duration::from_millis(ms));
    let old = |aging, old, heavy| Ages {
        aging: Duration::from_millis(aging),
        old: Duration::from_millis(old),
        heavy,
    };
    let page = old(20, 20, u32::MAX);
    let ways = [
        ("wrr", Way::policy(B::WeightedRoundRobin), page),
        ("least", Way::Least, page),
        ("wf10", wf(10), page),
        ("wf10 heavy32", wf(10), old(20, 20, 32)),
        ("wf10 heavy32 aging", wf(10), old(10, 20, 32)),
        ("wf5 heavy32 aging", wf(5), old(10, 20, 32)),
        ("wf2 heavy32 aging", wf(2), old(10, 20, 32)),
        ("wf1 heavy32 aging", wf(1), old(10, 20, 32)),
    ];
    let only = std::env::args().nth(1);
    for (name, cores, elephants, mice) in cells {
        println!("== {name}");
        for (label, way, ages) in ways {
            if only.as_ref().is_some_and(|o| !label.contains(o.as_str())) {
                continue;
            }
            let mut run = EdgeRun::new(cores, 0.85, way);
            run.traffic.elephants = elephants;
            run.traffic.mice = mice;
            run.ages = ages; if let Ok(c) = std::env::var("COST") { let c: f64 = c.parse().unwrap(); run.traffic.packets_per_ms *= run.cost / c; run.cost = c; }
            run.run_ms = 5_000;
            run.warm_ms = 1_000;
            let s = run.run();
            println!(
                "{label:22} gap {:6.1} p99 {:6.1} busy {:6.1} lost {:5.2} p50 {:6.1} p99 {:7.1}",
                s.gap, s.gap_p99, s.busy_gap, s.lost, s.delay_p50, s.delay_p99
            );
        }
    }
}
