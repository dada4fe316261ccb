//! How many probes one core carries: probes per second of CPU time of the probing thread, against a
//! light HTTP server in a process of its own.
//!
//! `cargo run --release -p plimsoll-probe --example probe_rate [-- SECONDS]`

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_model::{BackendId, Outcome};
use plimsoll_probe::{
    Clock, LivenessCheck, LivenessSpec, Probe, ProbePlan, ProbeSpec, Prober, Scheduler, Target,
};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n";

/// Probes under way at once, and backends of the scheduler: the size of a large service.
const BACKENDS: u32 = 100;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("serve") {
        return runtime()?.block_on(serve());
    }
    let seconds = argument.map_or(Ok(5), |text| text.parse::<u64>())?;
    let span = Duration::from_secs(seconds);
    let (mut server, addr) = start_server()?;
    let measured = measure(addr, span);
    server.kill()?;
    server.wait()?;
    measured
}

fn measure(addr: SocketAddr, span: Duration) -> Result<()> {
    let probe = Arc::new(Probe::new(ProbeSpec::default())?);
    println!("| what | probes/s of wall time | probes/s per CPU second of the probing thread |");
    println!("|---|---|---|");
    runtime()?.block_on(probers(addr, &probe, span))?;
    runtime()?.block_on(scheduler(addr, &probe, span, 200, false))?;
    runtime()?.block_on(scheduler(addr, &probe, span, 20, true))
}

/// Every connection as fast as it goes.
async fn probers(addr: SocketAddr, probe: &Arc<Probe>, span: Duration) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    let (wall, cpu) = (Instant::now(), cpu_time());
    for _ in 0..BACKENDS {
        let prober = Prober::new(addr.into(), probe.clone(), 1)?;
        tasks.spawn(async move {
            let mut done = 0u64;
            while wall.elapsed() < span {
                let result = prober.probe().await.expect("this machine can probe");
                assert_eq!(result.outcome, Outcome::Success, "{}", result.detail);
                done += 1;
            }
            done
        });
    }
    let done: u64 = tasks.join_all().await.iter().sum();
    report("probers alone, 100 connections, as fast as they go", done, wall, cpu);
    Ok(())
}

/// A scheduler that probes every backend `rate` times a second, with or without the liveness watch
/// (3 checks every 100 ms) on top.
async fn scheduler(
    addr: SocketAddr,
    probe: &Arc<Probe>,
    span: Duration,
    rate: u32,
    watch: bool,
) -> Result<()> {
    let (probes, mut results) = mpsc::channel(1024);
    let (rounds, mut watched) = mpsc::channel(1024);
    let clock = Clock::new(Instant::now());
    let mut scheduler = Scheduler::new(Handle::current(), clock, 1, probes, rounds);
    let check = LivenessCheck::Http(probe.clone());
    let liveness = LivenessSpec::new(check, 3, Duration::from_secs(1))?;
    for id in 0..BACKENDS {
        let target = Target {
            address: addr.into(),
            probe: Some(probe.clone()),
            liveness: watch.then(|| liveness.clone()),
            max_in_flight: Target::DEFAULT_MAX_IN_FLIGHT,
        };
        scheduler.set(BackendId(id), target)?;
        scheduler.set_watch(BackendId(id), Some(Duration::from_millis(100)), false);
        scheduler.set_plan(BackendId(id), ProbePlan::new(Duration::from_secs(1), rate, 0.5)?);
    }
    let (wall, cpu) = (Instant::now(), cpu_time());
    let end = tokio::time::Instant::from_std(wall + span);
    let mut done = 0u64;
    loop {
        tokio::select! {
            Some(event) = results.recv() => done += u64::from(event.result.outcome == Outcome::Success),
            Some(event) = watched.recv() => done += u64::from(event.successes),
            () = tokio::time::sleep_until(end) => break,
        }
    }
    let watch = if watch { " and 3 liveness checks every 100 ms" } else { "" };
    let skipped = scheduler.skipped();
    let what = format!("scheduler, 100 backends × {rate}/s{watch}, {skipped} skipped");
    report(&what, done, wall, cpu);
    Ok(())
}

fn report(what: &str, done: u64, wall: Instant, cpu: Duration) {
    let per = |span: Duration| (done as f64 / span.as_secs_f64()).round();
    println!("| {what} | {} | {} |", per(wall.elapsed()), per(cpu_time() - cpu));
}

/// CPU time of this thread so far: user and system.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

fn start_server() -> Result<(Child, SocketAddr)> {
    let mut child =
        Command::new(std::env::current_exe()?).arg("serve").stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let output = child.stdout.take().ok_or("the server has no output")?;
    BufReader::new(output).read_line(&mut line)?;
    Ok((child, line.trim().parse()?))
}

/// Answers whatever ends with an empty line; requests are not pipelined.
async fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let mut buf = [0; 4096];
            let mut held = 0;
            while let Ok(read @ 1..) = stream.read(&mut buf[held..]).await {
                held += read;
                if buf[..held].ends_with(b"\r\n\r\n") {
                    held = 0;
                    if stream.write_all(ANSWER).await.is_err() {
                        return;
                    }
                }
            }
        });
    }
}
