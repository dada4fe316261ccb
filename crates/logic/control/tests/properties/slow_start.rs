//! A returned server gets its share gradually.

use std::time::Duration;

use plimsoll_control::{RecordKind, ServiceSpec};
use plimsoll_model::{MethodKind, Plan};

use super::bed::{Bed, spec};

/// Slow start, and the part of the share at its beginning.
const SLOW_START_S: f64 = 30.0;
const FOOT: f64 = 0.1;
/// Weights are whole numbers, capacities known to within some per cent, and shares may differ by this part of the traffic.
const ERRORS: f64 = 1.25;
const ROUNDING: f64 = 0.02;
const CORES: [u32; 4] = [2, 4, 4, 2];
const RATE_RPS: f64 = 240.0;

/// The part of the full share that this plan gives server 1, beside the settled servers' weights.
fn part_of_share(plan: &Plan, kind: MethodKind) -> f64 {
    let cores = |i: usize| f64::from(CORES[i]);
    let weight = |i: usize| f64::from(plan.entries[i].weight);
    let others = [0, 2, 3];
    match kind {
        // Weights give parts of the traffic: of its capacity it may use a part.
        MethodKind::Split => {
            let share = weight(1) / plan.entries.iter().map(|e| f64::from(e.weight)).sum::<f64>();
            (share - ROUNDING) * RATE_RPS / (50.0 * cores(1))
        }
        // Weights give parts of the capacity that is in use.
        _ => {
            let per_core: f64 =
                others.map(weight).iter().sum::<f64>() / others.map(cores).iter().sum::<f64>();
            (weight(1) - 1.0) / cores(1) / per_core
        }
    }
}

#[test]
fn returned_server_never_gets_more_than_its_part_of_the_ramp() {
    for kind in [MethodKind::Split, MethodKind::InFlight] {
        for seed in 0..4 {
            let slow_start = Duration::from_secs_f64(SLOW_START_S);
            let spec = ServiceSpec { slow_start, refresh: false, ..spec(CORES.len()) };
            let mut bed = Bed::new(spec, &CORES, kind, RATE_RPS, seed);
            bed.run_for(150.0);
            bed.set_alive(1, false);
            bed.run_for(20.0);
            assert_eq!(bed.weights()[1], 0, "{kind:?}, seed {seed}");
            let from = bed.now();
            bed.set_alive(1, true);
            bed.run_for(20.0 + 2.0 * SLOW_START_S);
            let back = bed.recorded(RecordKind::Returned, 1, from).expect("it returns");
            let mut last = None;
            for plan in bed.plans_since(back) {
                let passed = plan.at.since(back).as_secs_f64() / SLOW_START_S;
                let part = part_of_share(plan, kind);
                let most = ERRORS * (FOOT + (1.0 - FOOT) * passed).min(1.0);
                assert!(
                    passed > 1.0 || part <= most,
                    "{kind:?}, seed {seed}: {part:.2} of {most:.2} at {passed:.2}: {plan:?}"
                );
                last = Some(part);
            }
            let last = last.expect("a plan");
            assert!(last > 0.3, "{kind:?}, seed {seed}: {last} of its share in the end");
        }
    }
}
