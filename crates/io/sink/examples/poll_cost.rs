//! What a poll costs: processor time of HAProxy and of Plimsoll, and wall time, per poll.
//!
//! `cargo run --release -p plimsoll-sink --example poll_cost -- SOCKET BACKEND [POLLS]`

use std::error::Error;
use std::time::Instant;

use plimsoll_model::BackendId;
use plimsoll_sink::{HaproxyConfig, HaproxySink, ReportSource, WeightSink};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: poll_cost SOCKET BACKEND [POLLS]";
    let socket = arguments.next().ok_or(usage)?.parse()?;
    let config = HaproxyConfig::new(socket, &arguments.next().ok_or(usage)?);
    let polls: u32 = arguments.next().map_or(Ok(2000), |text| text.parse())?;
    let mut sink = HaproxySink::new(config, Vec::new())?;
    let found = sink.inspect().await?;
    let names = found.servers.iter().map(|server| server.name.clone());
    sink.set_servers((0..).map(BackendId).zip(names).collect())?;
    sink.read().await?;
    let ours = cpu_ns(std::process::id())?;
    let theirs = cpu_ns(found.pid)?;
    let start = Instant::now();
    for _ in 0..polls {
        sink.read().await?;
    }
    let per_poll = |nanoseconds: u64| nanoseconds as f64 / 1e3 / f64::from(polls);
    println!(
        "{} servers, {polls} polls: HAProxy {:.1} µs CPU, Plimsoll {:.1} µs CPU, {:.1} µs wall",
        found.servers.len(),
        per_poll(cpu_ns(found.pid)? - theirs),
        per_poll(cpu_ns(std::process::id())? - ours),
        per_poll(u64::try_from(start.elapsed().as_nanos())?),
    );
    Ok(())
}

/// Processor time of a process so far: the first number of each thread's schedstat, nanoseconds.
fn cpu_ns(pid: u32) -> Result<u64, Box<dyn Error>> {
    let mut total = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        total += text.split_whitespace().next().ok_or("empty schedstat")?.parse::<u64>()?;
    }
    Ok(total)
}
