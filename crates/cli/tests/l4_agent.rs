//! `plimsoll l4 agent` and `plimsoll doctor` end to end, in namespaces.

#[path = "../../io/l4/tests/rig/mod.rs"]
mod rig;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use plimsoll_l4::Keys;
use rig::privileged;
use rig::service::Service;
use serde_json::Value;

/// A service of two servers, the file that balancer and agents share, and what runs by it.
struct Bench {
    service: Service,
    dir: tempfile::TempDir,
    children: Vec<Child>,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().expect("a directory");
        let bench = Bench { service: Service::new(2, 1, false), dir, children: Vec::new() };
        Keys::load_or_create(&bench.dir.path().join("l4.key"), 0).expect("made");
        bench.write(true, &["s1", "s2"]);
        bench
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("l4.yaml")
    }

    fn write(&self, agent: bool, names: &[&str]) {
        let backends: Vec<String> = names
            .iter()
            .map(|name| {
                let id: u8 = name[1..].parse().expect("a number");
                let mac = format!("02:00:00:00:{:02x}:02", id + 1);
                let address = format!("10.0.{}.2", id + 1);
                format!(
                    "{{ name: {name}, id: {id}, agent: {agent}, address: {address}, mac: \"{mac}\" }}"
                )
            })
            .collect();
        let text = format!(
            "l4:\n  interfaces: [ {{ name: lbc }}, {{ name: lb1 }}, {{ name: lb2 }} ]\n  pin_dir: {}\n  \
             cookie: {{ key_file: {} }}\n  agent: {{ listen: \"127.0.0.1:7402\" }}\n  vips:\n    - name: \
             shop\n      address: \"10.0.9.9:80\"\n      backends: [ {} ]\n",
            self.service.net.pins().join("l4").display(),
            self.dir.path().join("l4.key").display(),
            backends.join(", ")
        );
        fs::write(self.file(), text).expect("written");
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(words).arg("--config").arg(self.file());
        command
    }

    fn ask(&self, place: &str, words: &[&str]) -> Output {
        self.service.net.output(place, &mut self.command(words)).expect("runs")
    }

    fn json(&self, place: &str, words: &[&str]) -> Value {
        let output = self.ask(place, &[words, &["-o", "json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{words:?}: {error}: {}", String::from_utf8_lossy(&output.stderr))
        })
    }

    fn start(&mut self, place: &str, words: &[&str]) {
        let mut command = self.command(words);
        command.stderr(Stdio::null()).stdout(Stdio::null());
        self.children.push(self.service.net.spawn(place, &mut command).expect("starts"));
    }

    fn stop_last(&mut self) {
        let mut child = self.children.pop().expect("one runs");
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The kernel's verifier takes seconds for a program on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn on(bench: &Bench, server: &str) -> bool {
    let output = bench.ask(server, &["l4", "agent", "status", "-o", "json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    status["interfaces"][0] == "e0" && status["vips"][0]["name"] == "shop"
}

fn http(bench: &Bench, server: &str) -> Option<String> {
    bench.service.net.enter(server);
    let connected = TcpStream::connect("127.0.0.1:7402");
    bench.service.net.leave();
    let mut stream = connected.ok()?;
    stream.write_all(b"GET /v1/load HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.starts_with("HTTP/1.0 200").then_some(text)
}

// Both servers' agents share one bpffs here, and so one directory: one server has an agent at a time.
#[test]
fn an_agent_runs_by_the_balancers_file_and_outlives_its_process() {
    if !privileged() {
        return;
    }
    let mut bench = Bench::new();
    bench.write(true, &["s1"]);
    bench.start("lb", &["l4", "run"]);
    bench.start("s1", &["l4", "agent", "run"]);
    until("the agent is on its interface", || on(&bench, "s1"));
    until("load is answered", || http(&bench, "s1").is_some());
    let text = http(&bench, "s1").expect("answered");
    let load: Value =
        serde_json::from_str(text.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON");
    assert!((0.0..=1.0).contains(&load["cpu"].as_f64().expect("a number")), "{load}");

    until("the balancer takes connections", || {
        bench.service.connect(1).into_iter().all(|one| one.is_ok())
    });
    let mut connections: Vec<_> =
        bench.service.connect(20).into_iter().map(|one| one.expect("connects")).collect();
    bench.stop_last();
    for connection in &mut connections {
        assert_eq!(connection.ask().as_deref(), Ok("s1"), "without the agent's process");
    }
    let counts = bench.json("s1", &["l4", "agent", "status"])["vips"][0]["counts"].clone();
    assert!(counts["restored"].as_u64() > Some(20) && counts["foreign_cookie"] == 0, "{counts}");
    let table = bench.ask("s1", &["l4", "agent", "status"]);
    assert!(String::from_utf8_lossy(&table.stdout).contains("10.0.9.9:80"));

    bench.start("s1", &["l4", "agent", "run"]);
    until("the next agent answers", || http(&bench, "s1").is_some());
    assert!(bench.ask("s1", &["l4", "agent", "detach"]).status.success());
    let mut agent = bench.children.pop().expect("runs");
    until("the agent has ended", || agent.try_wait().expect("waited").is_some());
    let gone = bench.ask("s1", &["l4", "agent", "status"]);
    assert!(String::from_utf8_lossy(&gone.stderr).contains("nothing is pinned"));
    plimsoll_l4::detach(&bench.service.net.pins().join("l4")).expect("removed");
}

#[test]
fn an_agent_on_no_backend_or_without_keys_is_refused_with_the_reason() {
    if !privileged() {
        return;
    }
    let bench = Bench::new();
    let says = |place: &str, words: &[&str]| {
        let output = bench.ask(place, words);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let run: &[&str] = &["l4", "agent", "run"];
    assert!(says("cli", run).contains("none of the backends is this machine"));
    bench.write(false, &["s1"]);
    assert!(says("s1", run).contains("shop/s1: expected `agent: true`"));
    bench.write(true, &["s1"]);
    fs::remove_file(bench.dir.path().join("l4.key")).expect("removed");
    assert!(says("s1", run).contains("expected a copy of the balancers' key file"));
    let text = fs::read_to_string(bench.file()).expect("read").replace("listen:", "lisen:");
    fs::write(bench.file(), text).expect("written");
    let output = bench.ask("s1", run);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("l4.agent.lisen"));
}

#[test]
fn the_doctor_fails_what_must_and_says_what_to_do() {
    if !privileged() {
        return;
    }
    let bench = Bench::new();
    bench.write(false, &["s1", "s2"]);
    let output = bench.ask("s1", &["doctor"]);
    assert_eq!(output.status.code(), Some(1), "tcp_timestamps is 1");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("fail   tcp_timestamps"), "{text}");
    assert!(text.contains("sysctl -w net.ipv4.tcp_timestamps=2"), "{text}");
    assert_eq!(bench.json("s1", &["doctor"])["ok"], false);

    bench.service.net.exec("s1", "sysctl -qw net.ipv4.tcp_timestamps=2");
    bench.service.net.exec("s1", "sysctl -qw net.ipv4.conf.all.rp_filter=0");
    bench.service.net.exec("s1", "sysctl -qw net.ipv4.conf.e0.rp_filter=0");
    let answer = bench.json("s1", &["doctor"]);
    assert_eq!(answer["ok"], true, "{answer:#}");
    assert_eq!(bench.ask("s1", &["doctor"]).status.code(), Some(0));

    fs::write(bench.file(), "l4: { interfaces: 7 }").expect("written");
    assert_eq!(bench.ask("s1", &["doctor"]).status.code(), Some(2));
}
