//! What this machine adds to every response time, whoever balances.
//!
//! As many lanes as will run at the same time, under the same traffic, each with a single backend that
//! has more cores than there will ever be requests and always takes the same time: nothing waits, so
//! whatever is beyond that time is the machine's own.

use std::time::{Duration, Instant};

use plimsoll_sim::BackendModel;
use serde::Serialize;

use plimsoll_lanes::{
    CpuClock, Distribution, Family, Finished, Interrupt, Lane, LaneError, LaneKind, Measured, Pool,
};

/// Cores for all processes.
const CORES: u32 = 4096;
/// Load that is left out of the numbers: connections are made in it.
const WARM_UP: Duration = Duration::from_secs(2);
/// What is measured.
const MEASURE: Duration = Duration::from_secs(6);
/// How often to look for an interrupt.
const BLINK: Duration = Duration::from_millis(100);

/// The machine's own part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Overhead {
    /// Mean response time beyond the ideal one, milliseconds.
    pub mean_ms: f64,
    /// The same of the 99th percentile.
    pub p99_ms: f64,
    /// How late backends sent replies, median and 99th percentile, microseconds; the worst lane.
    pub backends_late_p50_us: u64,
    /// 99th percentile of the same.
    pub backends_late_p99_us: u64,
    /// How late clients sent requests, 99th percentile, microseconds; the worst lane.
    pub clients_late_p99_us: u64,
    /// Part of all cores that was busy, 0…1.
    pub busy: Option<f64>,
}

/// Measures it under the traffic of so many lanes of this pool; nothing when interrupted.
///
/// # Errors
/// When the lanes do not run.
pub fn measure(
    pool: &Pool,
    lanes: usize,
    interrupt: &Interrupt,
) -> Result<Option<Overhead>, LaneError> {
    let family = Family::start()?;
    let model = BackendModel { cores: CORES, speed: 1.0 };
    let capacity = f64::from(CORES) / pool.service.as_secs_f64();
    let load = pool.rate_rps / capacity;
    let idle = Pool::new(&[model], pool.service, Distribution::Deterministic, load, pool.seed);
    let mut running = Vec::with_capacity(lanes);
    for i in 0..lanes {
        running.push(Lane::start(&family, &idle, LaneKind::Roundrobin, &format!("idle{i}"))?);
    }
    for lane in &mut running {
        lane.open(&family)?;
    }
    let from = Instant::now() + WARM_UP;
    let mut cpu = None;
    while from.elapsed() < MEASURE {
        if interrupt.came() {
            return Ok(None);
        }
        if cpu.is_none() && Instant::now() >= from {
            cpu = CpuClock::now();
        }
        std::thread::sleep(BLINK);
    }
    let to = Instant::now();
    let busy = cpu.and_then(|cpu| cpu.busy_share());
    let finished: Vec<Finished> =
        running.into_iter().map(Lane::finish).collect::<Result<_, _>>()?;
    Ok(Some(sum_up(&finished, from, to, pool.service, busy)))
}

fn sum_up(
    finished: &[Finished],
    from: Instant,
    to: Instant,
    ideal: Duration,
    busy: Option<f64>,
) -> Overhead {
    let measured = |lane: &Finished| {
        let stretch = from - lane.started..to - lane.started;
        Measured::over(&lane.report.records, &[stretch])
    };
    let all: Vec<Measured> = finished.iter().map(measured).collect();
    let ideal_ms = ideal.as_secs_f64() * 1e3;
    let mean = |value: fn(&Measured) -> Option<f64>| {
        let values: Vec<f64> = all.iter().filter_map(value).collect();
        values.iter().sum::<f64>() / values.len().max(1) as f64 - ideal_ms
    };
    let worst = |late: fn(&Finished) -> u64| finished.iter().map(late).max().unwrap_or_default();
    Overhead {
        mean_ms: mean(|m| m.mean_ms),
        p99_ms: mean(|m| m.p99_ms),
        backends_late_p50_us: worst(|lane| lane.lateness.p50_us),
        backends_late_p99_us: worst(|lane| lane.lateness.p99_us),
        clients_late_p99_us: worst(|lane| lane.report.start_lateness_p99_us),
        busy,
    }
}
