//! How soon the death of a backend is reported: the time from its death to the first round of liveness
//! without a success, over many deaths. The watch is the default one: 3 checks every 100 ms, each
//! within 1 s.
//!
//! `cargo run --release -p plimsoll-probe --example liveness_delay [-- DEATHS]`

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll_model::BackendId;
use plimsoll_probe::{
    Clock, LivenessCheck, LivenessEvent, LivenessSpec, Probe, ProbeSpec, Scheduler, Target,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;

const INTERVAL: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(1);
const BACKEND: BackendId = BackendId(0);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How a backend dies.
#[derive(Clone, Copy, Debug)]
enum Death {
    /// Its process ends: connections are cut, new ones refused.
    Refusing,
    /// It stays connected and answers nothing.
    Silent,
}

fn main() -> Result<()> {
    let deaths = std::env::args().nth(1).map_or(Ok(20), |text| text.parse::<u32>())?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    println!("| death | reported after, least (ms) | median | worst of {deaths} |");
    println!("|---|---|---|---|");
    for death in [Death::Refusing, Death::Silent] {
        let mut delays = Vec::new();
        for number in 0..deaths {
            // Deaths at all phases of the watch.
            let life = INTERVAL * 3 + INTERVAL * number / deaths;
            delays.push(runtime.block_on(delay(death, life))?.as_secs_f64() * 1e3);
        }
        delays.sort_by(f64::total_cmp);
        let (least, median) = (delays[0], delays[delays.len() / 2]);
        let worst = delays[delays.len() - 1];
        println!("| {death:?} | {least:.1} | {median:.1} | {worst:.1} |");
    }
    Ok(())
}

async fn delay(death: Death, life: Duration) -> Result<Duration> {
    let silent = Arc::new(AtomicBool::new(false));
    let (server, addr) = start_server(silent.clone())?;
    let (probes, _results) = mpsc::channel(16);
    let (rounds_in, mut rounds) = mpsc::channel(16);
    let clock = Clock::new(Instant::now());
    let mut scheduler = Scheduler::new(Handle::current(), clock, 1, probes, rounds_in);
    let probe = Arc::new(Probe::new(ProbeSpec::default())?);
    let check = LivenessCheck::Http(probe.clone());
    let liveness = Some(LivenessSpec::new(check, 3, TIMEOUT)?);
    let target = Target { address: addr.into(), probe: Some(probe), liveness, max_in_flight: 1 };
    scheduler.set(BACKEND, target)?;
    scheduler.set_watch(BACKEND, Some(INTERVAL), false);
    watch_for(&mut rounds, |round| round.successes > 0).await?;
    tokio::time::sleep(life).await;
    let died = Instant::now();
    match death {
        Death::Refusing => server.shutdown_background(),
        Death::Silent => {
            silent.store(true, Ordering::SeqCst);
            // Its sockets must outlive the watch.
            std::mem::forget(server);
        }
    }
    watch_for(&mut rounds, |round| round.successes == 0).await?;
    Ok(died.elapsed())
}

async fn watch_for(
    rounds: &mut mpsc::Receiver<LivenessEvent>,
    wanted: impl Fn(&LivenessEvent) -> bool,
) -> Result<()> {
    loop {
        let round = rounds.recv().await.ok_or("the scheduler ended")?;
        if wanted(&round) {
            return Ok(());
        }
    }
}

fn start_server(silent: Arc<AtomicBool>) -> Result<(Runtime, SocketAddr)> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let addr = listener.local_addr()?;
    runtime.spawn(async move {
        let Ok(listener) = TcpListener::from_std(listener) else { return };
        while let Ok((mut stream, _)) = listener.accept().await {
            let silent = silent.clone();
            tokio::spawn(async move {
                let mut buf = [0; 4096];
                while let Ok(1..) = stream.read(&mut buf).await {
                    let answer = b"HTTP/1.1 204 Alive\r\n\r\n";
                    if !silent.load(Ordering::SeqCst) && stream.write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok((runtime, addr))
}
