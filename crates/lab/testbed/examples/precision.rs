//! How precise and how costly the lab is on this machine: a backend and a load of 2,000 requests
//! per second in one process, straight at each other.
//!
//! `cargo run --release -p plimsoll-testbed --example precision [REQUESTS_PER_SECOND [SECONDS]]`

use std::time::Duration;

use plimsoll_testbed::load::{self, LoadSpec, Target};
use plimsoll_testbed::{BackendSpec, Service, Testbed, TestbedSpec};

/// Ticks of `/proc/*/stat` per second: fixed by the kernel's interface to user space.
const TICKS: f64 = 100.0;

/// CPU seconds of this process's threads of that name.
fn cpu_seconds(name: &str) -> std::io::Result<f64> {
    let mut ticks = 0.0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let stat = std::fs::read_to_string(task?.path().join("stat"))?;
        let Some((head, tail)) = stat.rsplit_once(')') else { continue };
        if head.ends_with(&format!("({name}")) {
            // After the name: state is field 3, user time 14, system time 15.
            let fields: Vec<f64> =
                tail.split_whitespace().skip(1).filter_map(|f| f.parse().ok()).collect();
            ticks += fields[10] + fields[11];
        }
    }
    Ok(ticks / TICKS)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let rate_rps: f64 = args.next().map_or(Ok(2000.0), |a| a.parse())?;
    let seconds: u64 = args.next().map_or(Ok(10), |a| a.parse())?;
    let mut backend = BackendSpec::new("s1", Service::exponential(Duration::from_millis(30)));
    // At 70 % load.
    backend.cores = (rate_rps * 0.03 / 0.7).ceil() as u32;
    let bed = Testbed::start(TestbedSpec { admin: None, backends: vec![backend] })?;
    let address = bed.address("s1").ok_or("the backend has no address")?;
    let target = Target::resolve(&format!("http://{address}/work"))?;
    let handle =
        load::start(LoadSpec::poisson(target, rate_rps, Duration::from_secs(seconds + 1)))?;
    // The threads' CPU time must be read while they live.
    handle.wait(Duration::from_secs(seconds));
    let stats = bed.stats().ok_or("the testbed has stopped")?;
    let served: u64 = stats.backends.iter().map(|b| b.served).sum();
    let per_request = |name| Ok::<f64, std::io::Error>(cpu_seconds(name)? / served as f64 * 1e6);
    println!("{served} requests, {:.0} per second", served as f64 / stats.uptime_seconds);
    println!("testbed: {:.1} µs of CPU per request", per_request("testbed")?);
    println!("generator: {:.1} µs of CPU per request", per_request("load")?);
    println!("replies later than on the ideal schedule: {:?}", stats.lateness);
    let report = handle.snapshot().ok_or("the load has ended")?;
    let (p50, p99) = (report.start_lateness_p50_us, report.start_lateness_p99_us);
    println!("requests begun late by {p50} µs (median), {p99} µs (p99)");
    Ok(())
}
