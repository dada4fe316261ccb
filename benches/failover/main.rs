//! How quickly the balancer is told that a backend is gone, and what a crash of the controller costs.
//!
//! `cargo bench -p plimsoll --bench failover`: a real HAProxy, twenty emulated backends, open-loop
//! clients and `plimsoll run`. Three deaths, each of every backend in turn at a random moment: killed
//! (connections cut, new ones refused), gone silent with a liveness time-out of 300 ms, and of 1 s.
//! Then the controller is killed (SIGKILL) while it explores and when it has learned, a weight is
//! changed behind its back, and it is started again.

#[path = "../../crates/cli/tests/e2e/rig/mod.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod rig;

use std::time::{Duration, Instant};

use plimsoll_testbed::Mode;
use plimsoll_testbed::load::LoadHandle;
use rig::{Daemon, Rig, until};

/// Backends, and deaths of each kind.
const BACKENDS: usize = 20;
/// Restarts in each phase.
const RESTARTS: usize = 10;
/// What clients ask of the pool, requests per second: a fifth of what it can do.
const RATE_RPS: f64 = 800.0;
/// Between two rounds of liveness.
const INTERVAL_MS: u64 = 100;

fn main() {
    println!(
        "{BACKENDS} backends, {RATE_RPS} req/s, liveness every {INTERVAL_MS} ms, 3 requests; times \
         in ms\n"
    );
    println!("| what | runs | median | worst | target | client errors |");
    println!("|---|---|---|---|---|---|");
    deaths("killed (refuses)", Mode::Refuse, 1_000, 250);
    for timeout in [300, 1_000] {
        let name = format!("gone silent, liveness time-out {timeout} ms");
        deaths(&name, Mode::Silent, timeout, INTERVAL_MS + timeout + 150);
    }
    restarts("controller killed while exploring, until it steers", Duration::from_secs(4));
    restarts("controller killed when steady, until it steers", Duration::from_secs(30));
}

fn rig(timeout_ms: u64) -> Rig {
    let mut rig = Rig::new("leastconn", &[1.0; BACKENDS]);
    rig.service = format!(
        "    probe: {{ path: /work }}\n    liveness: {{ path: /health, interval: {INTERVAL_MS}ms, \
         requests: 3, timeout: {timeout_ms}ms }}\n"
    );
    rig
}

/// Every backend dies once; the time from its death to a weight of 0 in HAProxy.
fn deaths(name: &str, mode: Mode, timeout_ms: u64, target_ms: u64) {
    let rig = rig(timeout_ms);
    let daemon = rig.daemon();
    let clients = rig.clients(RATE_RPS);
    until("the balancer to be read", || daemon.backend("s1")["programmed"].is_u64());
    let mut times = Vec::new();
    for i in 1..=BACKENDS {
        let server = format!("s{i}");
        until("it to serve", || rig.weight(&server) > 0);
        std::thread::sleep(Duration::from_millis(500 + phase_ms(i)));
        rig.set_mode(&server, mode);
        let died = Instant::now();
        watch(|| rig.weight(&server) == 0);
        times.push(died.elapsed());
        rig.set_mode(&server, Mode::Normal);
    }
    row(name, times, target_ms, &clients);
}

/// The time from the start of a new controller until it holds again what it held before.
fn restarts(name: &str, after: Duration) {
    let rig = rig(1_000);
    let mut daemon = rig.daemon();
    let clients = rig.clients(RATE_RPS);
    std::thread::sleep(after);
    let mut times = Vec::new();
    for i in 1..=RESTARTS {
        std::thread::sleep(Duration::from_millis(1_500 + phase_ms(i)));
        daemon.kill();
        let held = rig.weight("s1");
        let other = if held == 77 { 78 } else { 77 };
        rig.haproxy.ask(&format!("set server shop/s1 weight {other}"));
        let started = Instant::now();
        daemon = start(&rig);
        watch(|| rig.weight("s1") != other);
        times.push(started.elapsed());
        daemon.wait_until_it_answers();
    }
    row(name, times, 2_000, &clients);
}

fn start(rig: &Rig) -> Daemon {
    Daemon::spawn(&rig.write_config(), rig.api, &rig.path("log"), &[])
}

/// Looks every millisecond, each time on a connection of its own: about 0.3 ms.
fn watch(mut happened: impl FnMut() -> bool) {
    let began = Instant::now();
    while !happened() {
        assert!(began.elapsed() < Duration::from_secs(20), "waited 20 s in vain");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Spreads the deaths over the phases of the liveness rounds.
fn phase_ms(i: usize) -> u64 {
    (i as u64 * 37) % INTERVAL_MS
}

fn row(name: &str, mut times: Vec<Duration>, target_ms: u64, clients: &LoadHandle) {
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let report = clients.snapshot().expect("clients");
    println!(
        "| {name} | {} | {:.0} | {:.0} | ≤ {target_ms} | {} of {} |",
        times.len(),
        ms(times[times.len() / 2]),
        ms(times[times.len() - 1]),
        report.total.errors,
        report.total.requests,
    );
}
