//! How quickly a backend that does not answer gets nothing, and what a crash of the controller costs.
//!
//! `cargo bench -p plimsoll --bench failover [WORD…]`: a real HAProxy, twenty backends, open-loop clients and `plimsoll
//! run`; with words only the rows whose names contain one of them. Half of the backends are processes of their own. Ways
//! to die, each of ten backends in turn at a random moment: killed, resetting every connection, a silent host (its address
//! vanishes and packets to it are lost; as root), stopped (SIGSTOP), and work that hangs behind an open port whose
//! `/health` answers. All of them with README's configuration (no probes, and no checks by request) and with checks by
//! request every 100 ms, once the backends have been known for a minute; stopped ones in their first minute as well. Then
//! the controller is killed (SIGKILL) while it explores and when it has learned, a weight is changed behind its back, and
//! it is started again.

#[path = "../../crates/cli/tests/e2e/rig/mod.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod rig;

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_testbed::load::LoadHandle;
use plimsoll_testbed::{Change, Mode};
use rig::{Daemon, Rig, emulated, process, until};

/// Backends of each make, and deaths of each kind.
const OF_EACH: usize = 10;
/// Restarts in each phase.
const RESTARTS: usize = 10;
/// What clients ask of the pool, requests per second: a fifth of what it can do.
const RATE_RPS: f64 = 800.0;
/// Between two checks, where they are asked for.
const INTERVAL_MS: u64 = 100;
/// A backend's past counts once it has answered for a minute.
const PAST: Duration = Duration::from_secs(62);
/// A server that gets no traffic for so long is parked.
const PATIENCE: Duration = Duration::from_secs(20);
/// Set in the process that runs in a network of its own.
const INSIDE: &str = "PLIMSOLL_BENCH_INSIDE";

/// How a backend ends.
#[derive(Clone, Copy, PartialEq)]
enum Death {
    Killed,
    Resets,
    SilentHost,
    Stopped,
    Hangs,
}

impl Death {
    const ALL: [Death; 5] =
        [Death::Killed, Death::Resets, Death::SilentHost, Death::Stopped, Death::Hangs];

    fn name(self) -> &'static str {
        match self {
            Death::Killed => "killed",
            Death::Resets => "resets every request",
            Death::SilentHost => "silent host",
            Death::Stopped => "stopped (SIGSTOP)",
            Death::Hangs => "port open, work hangs",
        }
    }

    /// What dies at once to everybody, milliseconds; silence takes longer to tell.
    fn target_ms(self) -> u64 {
        if matches!(self, Death::Killed | Death::Resets) { 250 } else { 2_000 }
    }

    /// Processes come after the emulated backends.
    fn is_of_processes(self) -> bool {
        matches!(self, Death::Killed | Death::Stopped)
    }

    fn begin(self, rig: &mut Rig, i: usize) {
        let emulated = format!("s{}", i + 1);
        match self {
            Death::Killed => rig.processes[i].kill(),
            Death::Stopped => rig.processes[i].signal("STOP"),
            Death::Resets => rig.set_mode(&emulated, Mode::Reset),
            Death::Hangs => rig.bed.set(&emulated, Change::speed(1e-9)).expect("the testbed runs"),
            Death::SilentHost => ip(&format!("addr del {}/32 dev lo", host(i))),
        }
    }

    fn end(self, rig: &mut Rig, i: usize) {
        let emulated = format!("s{}", i + 1);
        match self {
            Death::Killed => rig.processes[i].start_again(),
            Death::Stopped => rig.processes[i].signal("CONT"),
            Death::Resets => rig.set_mode(&emulated, Mode::Normal),
            Death::Hangs => rig.bed.set(&emulated, Change::speed(1.0)).expect("the testbed runs"),
            Death::SilentHost => ip(&format!("addr add {}/32 dev lo", host(i))),
        }
    }
}

fn main() {
    process::serve_if_asked();
    if enter_a_network_of_its_own() {
        return;
    }
    println!("{} backends, {RATE_RPS} req/s; times in ms\n", 2 * OF_EACH);
    println!(
        "| what | runs | no weight: median | worst | target | failed: median | worst | target | \
         client errors |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for death in Death::ALL {
        deaths("README's configuration", death, false, PAST);
    }
    deaths("README's configuration, first minute", Death::Stopped, false, Duration::from_secs(5));
    for death in Death::ALL {
        deaths("checks every 100 ms", death, true, PAST);
    }
    restarts("controller killed while exploring, until it steers", Duration::from_secs(4));
    restarts("controller killed when steady, until it steers", Duration::from_secs(30));
}

fn is_wanted(name: &str) -> bool {
    let words: Vec<String> = std::env::args().skip(1).filter(|w| !w.starts_with('-')).collect();
    words.is_empty() || words.iter().any(|word| name.contains(word.as_str()))
}

/// As root all of it runs once more in a network where hosts can vanish; true when that is done.
fn enter_a_network_of_its_own() -> bool {
    if std::env::var_os(INSIDE).is_some() {
        ip("link set lo up");
        ip("link add d0 type veth peer name d1");
        // Packets to a host that has vanished are lost there without a word.
        ["link set d0 arp off", "link set d0 up", "link set d1 up"].into_iter().for_each(ip);
        ip("addr add 10.9.0.254/24 dev d0");
        (0..OF_EACH).for_each(|i| ip(&format!("addr add {}/32 dev lo", host(i))));
        return false;
    }
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let this = std::env::current_exe().expect("this program");
    let mut again = Command::new("unshare");
    again.arg("--net").arg(this).args(std::env::args().skip(1)).env(INSIDE, "1");
    assert!(again.status().is_ok_and(|status| status.success()), "in a network of its own");
    true
}

fn host(i: usize) -> String {
    format!("10.9.0.{}", i + 1)
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("run ip");
    assert!(status.success(), "ip {arguments}");
}

fn rig(checks: bool) -> Rig {
    let mut backends = emulated(&[1.0; OF_EACH]);
    if std::env::var_os(INSIDE).is_some() {
        for (i, backend) in backends.iter_mut().enumerate() {
            backend.listen = SocketAddr::new(host(i).parse().expect("an address"), 0);
        }
    }
    let rig = Rig::of("leastconn", backends, OF_EACH).without_checks();
    if !checks {
        return rig;
    }
    let service = format!(
        "    probe: {{ path: /work }}\n    liveness: {{ path: /health, interval: {INTERVAL_MS}ms, \
         requests: 3, timeout: 1s }}\n"
    );
    Rig { service, ..rig }
}

/// Ten backends die once each; the time from its death to a weight of 0 in HAProxy, and to its being declared failed.
fn deaths(configuration: &str, death: Death, checks: bool, past: Duration) {
    let name = format!("{}; {configuration}", death.name());
    if !is_wanted(&name) {
        return;
    }
    if death == Death::SilentHost && std::env::var_os(INSIDE).is_none() {
        println!("| {name} | needs root | | | | | | | |");
        return;
    }
    let mut rig = rig(checks);
    let daemon = rig.daemon();
    let clients = rig.clients(RATE_RPS);
    until("the balancer to be read", || daemon.backend("s1")["programmed"].is_u64());
    let known = past >= PAST;
    std::thread::sleep(past);
    let (mut without, mut failed) = (Vec::new(), Vec::new());
    // Nothing is in its first minute for longer than that.
    for i in 0..if known { OF_EACH } else { OF_EACH / 2 } {
        let server = format!("s{}", if death.is_of_processes() { OF_EACH } else { 0 } + i + 1);
        // At a fifth of the pool's load a plan may have no use for a server.
        if !within(PATIENCE, || rig.weight(&server) > 0) {
            eprintln!("{name}: {server} gets no traffic and is left out");
            continue;
        }
        std::thread::sleep(Duration::from_millis(500 + phase_ms(i)));
        let died = Instant::now();
        death.begin(&mut rig, i);
        watch(|| rig.weight(&server) == 0);
        without.push(died.elapsed());
        watch(|| state(&daemon, &server) == "failed");
        failed.push(died.elapsed());
        death.end(&mut rig, i);
    }
    let no_weight = spread(&mut without, death.target_ms());
    let at_most = if !known { 10_000 } else { death.target_ms() };
    let target = if death.target_ms() > 250 { at_most } else { 250 };
    let failed = spread(&mut failed, target);
    println!("| {name} | {} | {no_weight} | {failed} | {} |", without.len(), errors(&clients));
}

/// Asks the daemon itself: starting a command takes longer than what is measured.
fn state(daemon: &Daemon, server: &str) -> String {
    let body = daemon.http("/v1/services/shop/weights").1;
    let weights: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    let mut backends = weights["backends"].as_array().into_iter().flatten();
    let backend = backends.find(|b| b["backend"] == server);
    backend.and_then(|b| b["state"].as_str()).unwrap_or_default().to_owned()
}

/// The time from the start of a new controller until it holds again what it held before.
fn restarts(name: &str, after: Duration) {
    if !is_wanted(name) {
        return;
    }
    let rig = rig(true);
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
    let steers = spread(&mut times, 2_000);
    println!("| {name} | {} | {steers} | | | | {} |", times.len(), errors(&clients));
}

fn start(rig: &Rig) -> Daemon {
    Daemon::spawn(&rig.write_config(), rig.api, &rig.path("log"), &[])
}

fn watch(happened: impl FnMut() -> bool) {
    assert!(within(Duration::from_secs(40), happened), "waited 40 s in vain");
}

/// Looks every millisecond, each time on a connection of its own: about 0.3 ms. False when it does not happen in time.
fn within(time: Duration, mut happened: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + time;
    while !happened() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Spreads the deaths over the phases of the checks.
fn phase_ms(i: usize) -> u64 {
    (i as u64 * 37) % INTERVAL_MS
}

fn spread(times: &mut [Duration], target_ms: u64) -> String {
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (median, worst) = (ms(times[times.len() / 2]), ms(times[times.len() - 1]));
    format!("{median:.0} | {worst:.0} | ≤ {target_ms}")
}

fn errors(clients: &LoadHandle) -> String {
    let total = clients.snapshot().expect("clients").total;
    format!("{} of {}", total.errors, total.requests)
}
