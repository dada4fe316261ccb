//! The best static split of a pool whose curves are known, by the paper's objective and by ours.

use plimsoll_model::{Curve, Objective};
use plimsoll_pack::{CurveBackend, CurveProblem, PackError, pack_curves};
use plimsoll_queueing::{MmcCurve, Run, ServiceTime, SmoothRoundRobin, Station, simulate};
use plimsoll_sim::BackendModel;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Disturbance, LOAD, SERVICE_US, capacity_rps, table3};

/// No backend of a packing is used beyond this part of its capacity.
const USABLE: f64 = 0.995;

/// The shares of the thirty backends in the best split.
pub fn before(objective: Objective) -> Result<Vec<f64>, PackError> {
    let pool: Vec<(usize, BackendModel)> = table3().into_iter().enumerate().collect();
    shares(&pool, LOAD * capacity_rps(&table3()), objective)
}

/// The same after this; a dead backend gets nothing.
pub fn after(what: Disturbance, objective: Objective) -> Result<Vec<f64>, PackError> {
    shares(&what.pool_after(), what.rate_after(), objective)
}

fn shares(
    pool: &[(usize, BackendModel)],
    rate_rps: f64,
    objective: Objective,
) -> Result<Vec<f64>, PackError> {
    let curves: Vec<MmcCurve> = pool.iter().map(|(_, b)| b.curve(SERVICE_US)).collect();
    let backends: Vec<CurveBackend<'_>> =
        curves.iter().map(|c| CurveBackend { curve: c, max_load: USABLE * c.capacity() }).collect();
    let problem = CurveProblem { backends: &backends, total: rate_rps, theta: None };
    let loads = pack_curves(&problem, objective)?.weights;
    let sum: f64 = loads.iter().sum();
    let mut shares = vec![0.0; table3().len()];
    for ((i, _), load) in pool.iter().zip(loads) {
        shares[*i] = load / sum;
    }
    Ok(shares)
}

/// What the mean client waits under round robin in the best split after this, milliseconds, simulated.
pub fn mean_after_ms(what: Disturbance, requests: u32, seed: u64) -> Result<f64, PackError> {
    let pool = what.pool_after();
    let best = after(what, Objective::Traffic)?;
    let weights: Vec<f64> = pool.iter().map(|(i, _)| best[*i]).collect();
    let station = |(_, b): &(usize, BackendModel)| Station {
        cores: b.cores,
        service_us: SERVICE_US / b.speed,
    };
    let stations: Vec<Station> = pool.iter().map(station).collect();
    let run = Run {
        rate_rps: what.rate_after(),
        requests,
        warm_up: requests / 10,
        service: ServiceTime::Exponential,
    };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    Ok(simulate(&stations, &mut SmoothRoundRobin::new(&weights), &run, &mut rng).mean_us / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_get_nothing_and_a_large_one_takes_more_than_a_small_one() {
        let (before, after) = (
            before(Objective::Traffic).unwrap(),
            after(Disturbance::Failure, Objective::Traffic).unwrap(),
        );
        assert!(after[24] == 0.0 && after[25] == 0.0 && before[24] > 0.05);
        assert!((after.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let more = |range: std::ops::Range<usize>| -> f64 {
            let count = range.len() as f64;
            range.map(|i| after[i] - before[i]).sum::<f64>() / count
        };
        assert!(more(0..16) > 0.0 && more(26..30) > more(0..16));
    }
}
