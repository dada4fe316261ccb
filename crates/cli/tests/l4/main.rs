//! `plimsoll l4` end to end: the daemon in a namespace, real connections through it.

#[path = "../../../io/l4/tests/rig/mod.rs"]
mod rig;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rig::privileged;
use rig::service::{PATIENCE, Service, all_stay};

/// The daemon, its configuration, and where it runs.
struct Daemon<'a> {
    service: &'a Service,
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl<'a> Daemon<'a> {
    fn new(service: &'a Service, backends: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let daemon = Daemon { service, dir, child: None };
        daemon.write(backends);
        daemon
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("l4.yaml")
    }

    fn write(&self, backends: &[&str]) {
        let interfaces: Vec<String> = (1..=self.service.servers.len())
            .map(|n| format!("{{ name: lb{n} }}"))
            .chain(["{ name: lbc, mode: native }".to_owned()])
            .collect();
        let backends: Vec<String> = self
            .service
            .backends(backends)
            .iter()
            .map(|one| format!("{{ name: {}, address: \"{}\" }}", one.name, one.address))
            .collect();
        let text = format!(
            "l4:\n  interfaces: [ {} ]\n  pin_dir: {}\n  cookie: {{ key_file: {} }}\n  vips:\n    - \
             name: shop\n      address: \"{}\"\n      protocol: tcp\n      mode: stateless\n      \
             policy: round_robin\n      forwarding: direct\n      backends: [ {} ]\n",
            interfaces.join(", "),
            self.service.net.pins().display(),
            self.dir.path().join("l4.key").display(),
            self.service.vip,
            backends.join(", ")
        );
        fs::write(self.file(), text).expect("written");
    }

    /// A command in the balancer's namespace.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.service.net.full("lb")))
            .arg(env!("CARGO_BIN_EXE_plimsoll"))
            .arg("l4")
            .args(arguments)
            .arg("--config")
            .arg(self.file());
        command
    }

    fn start(&mut self) {
        let log = fs::File::create(self.dir.path().join("log")).expect("a file");
        let child = self.command(&["run"]).stderr(log).stdout(Stdio::null()).spawn();
        self.child = Some(child.expect("starts"));
        self.wait_for("balancing");
        self.settle();
    }

    /// Until every server that takes connections has been found on the network.
    fn settle(&self) {
        let began = Instant::now();
        while self.status()["vips"][0]["backends"]
            .as_array()
            .is_none_or(|all| all.iter().any(|one| one["mac"] == "00:00:00:00:00:00"))
        {
            assert!(began.elapsed() < PATIENCE, "{:#}", self.status());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn wait_for(&self, text: &str) {
        let began = Instant::now();
        while !self.log().contains(text) {
            assert!(began.elapsed() < PATIENCE, "no {text:?} in:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&mut self, signal: rustix::process::Signal) {
        let child = self.child.as_ref().expect("runs");
        let id = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(id, signal).expect("sent");
    }

    fn kill(&mut self) {
        let mut child = self.child.take().expect("runs");
        child.kill().expect("killed");
        child.wait().expect("ended");
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.command(arguments).args(["-o", "json"]).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn status(&self) -> serde_json::Value {
        self.json(&["status"])
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn total(status: &serde_json::Value, field: &str) -> u64 {
    let all = status["vips"][0]["backends"].as_array().expect("a list");
    all.iter().map(|one| one[field].as_u64().expect("a number")).sum()
}

#[test]
fn a_daemon_reloads_is_killed_and_starts_over_and_nobody_notices() {
    if !privileged() {
        return;
    }
    let service = Service::new(3, 2, false);
    let mut daemon = Daemon::new(&service, &["s1", "s2"]);
    daemon.start();
    let mut connections = service.opened(20);
    assert!(connections.iter().all(|one| one.server != "s3"));

    // A configuration that is wrong changes nothing and is told with its place.
    let good = fs::read_to_string(daemon.file()).expect("read");
    fs::write(daemon.file(), good.replace("round_robin", "round_about")).expect("written");
    daemon.signal(rustix::process::Signal::HUP);
    daemon.wait_for("l4.yaml:10:15: l4.vips[0].policy: expected round_robin or");
    assert!(daemon.log().contains("the configuration in force stays"));
    all_stay(&mut connections, "after a wrong configuration");

    // A change of the file is taken up without a signal.
    daemon.write(&["s2", "s3"]);
    daemon.wait_for("configuration reloaded");
    daemon.settle();
    let more = service.opened(10);
    assert!(more.iter().all(|one| one.server != "s1"));
    connections.extend(more);
    all_stay(&mut connections, "after a reload");

    let before = daemon.status();
    assert_eq!(total(&before, "new_connections"), 30);
    daemon.kill();
    all_stay(&mut connections, "without a daemon");
    connections.extend(service.opened(4));
    daemon.start();
    all_stay(&mut connections, "after a restart");
    let after = daemon.status();
    assert_eq!(total(&after, "new_connections"), 34);
    assert!(total(&after, "packets_in") > total(&before, "packets_in"));
    for (reason, count) in after["vips"][0]["fallbacks"].as_object().expect("a mapping") {
        assert_eq!(count.as_u64(), Some(0), "{reason}");
    }
}

#[test]
fn where_asks_the_program_and_takes_nobodys_turn() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let mut daemon = Daemon::new(&service, &["s1", "s2"]);
    daemon.start();
    let before = daemon.status();
    let ask = |more: &[&str]| {
        let mut arguments = vec!["where", "--vip", "10.0.9.9:80", "--client", "10.0.1.2:40000"];
        arguments.extend(more);
        daemon.json(&arguments)
    };
    let first = ask(&[]);
    assert_eq!((&first["verdict"], &first["service"]), (&"redirect".into(), &"shop".into()));
    assert_eq!(ask(&["--no-timestamps"]), ask(&["--no-timestamps"]), "by hash: always the same");
    assert_eq!(daemon.status(), before, "nothing was counted");
    let mut arguments = vec!["where", "--vip", "10.0.9.9:81", "--client", "10.0.1.2:40000"];
    assert_eq!(daemon.json(&arguments)["verdict"], "pass");
    arguments[2] = "[fd00::1]:80";
    let output = daemon.command(&arguments).output().expect("runs");
    assert!(String::from_utf8_lossy(&output.stderr).contains("one family"));
    let detach = daemon.command(&["detach"]).output().expect("runs");
    assert!(detach.status.success());
    let output = daemon.command(&["status"]).output().expect("runs");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no balancer is pinned here"));
}
