//! The true capacity of each server: what it serves while a request always waits.

use std::time::Duration;

use plimsoll_lanes::{Family, Interrupt, LaneError};
use plimsoll_testbed::Service;
use plimsoll_testbed::load::{self, Arrivals, LoadSpec, Record, Target};

use crate::cgroup::Cgroups;
use crate::servers::Servers;
use crate::{Pool, RealError};

/// Clients of each server, each with its next request at once: one is always waiting.
const CLIENTS: usize = 4;
/// What a server does at first does not count: it starts with a full allowance.
const WARM_UP: Duration = Duration::from_secs(1);
/// A capacity from fewer completions would be a guess.
const LEAST_COMPLETIONS: usize = 5;

/// Requests per second of each server, in the order of the pool. All are asked at once, which takes the
/// CPU of one lane; every request is of the mean work, so that the draw of work does not matter.
///
/// # Errors
/// When servers or clients do not run, or it was interrupted.
pub fn calibrate(
    family: &Family,
    cgroups: &Cgroups,
    pool: &Pool,
    span: Duration,
    interrupt: &Interrupt,
) -> Result<Vec<f64>, RealError> {
    let servers = Servers::start(family, cgroups, pool, "calibration", 0)?;
    let mut loads = Vec::new();
    for (name, address) in servers.addresses() {
        let target = Target::resolve(&format!("http://{address}/work"))
            .map_err(|problem| LaneError::from(load::LoadError::Invalid(vec![problem])))?;
        let mut spec = LoadSpec::poisson(target, 1.0, WARM_UP + span);
        (spec.arrivals, spec.concurrency) = (Arrivals::Closed, Some(CLIENTS));
        (spec.keep_records, spec.work) = (true, Some(Service::deterministic(pool.work.mean)));
        loads.push((name, load::start(spec).map_err(LaneError::from)?));
    }
    let mut capacities = Vec::new();
    for (name, load) in loads {
        while !load.wait(Duration::from_millis(100)) {
            if interrupt.came() {
                return Err(RealError::Interrupted);
            }
        }
        let report = load.join().map_err(LaneError::from)?;
        capacities.push(rate_rps(&report.records).ok_or(RealError::TooFew(name))?);
    }
    Ok(capacities)
}

/// Completions per second after the warm-up, from one completion to another: requests under way at
/// either end do not matter.
fn rate_rps(records: &[Record]) -> Option<f64> {
    let end_us = |r: &Record| r.start_ns / 1000 + u64::from(r.latency_us);
    let mut ends: Vec<u64> = records
        .iter()
        .filter(|r| r.ok)
        .map(end_us)
        .filter(|end| *end >= WARM_UP.as_micros() as u64)
        .collect();
    ends.sort_unstable();
    let (first, last) = (ends.first()?, ends.last()?);
    let enough = ends.len() > LEAST_COMPLETIONS && last > first;
    enough.then(|| (ends.len() - 1) as f64 / ((last - first) as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_completions_over_the_time_between_them() {
        // One every 100 ms from 0.05 s on, each 40 ms long; those that end in the first second are
        // warm-up, and errors are no work.
        let record = |i: u64| Record {
            start_ns: (i * 100 + 10) * 1_000_000,
            latency_us: 40_000,
            ok: i != 20,
        };
        let mut records: Vec<Record> = (0..50).map(record).collect();
        let rate = rate_rps(&records).unwrap();
        assert!((rate - 38.0 / 3.9).abs() < 1e-9, "{rate}");
        records.truncate(12);
        assert_eq!(rate_rps(&records), None);
    }
}
