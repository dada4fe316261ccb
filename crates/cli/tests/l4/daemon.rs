//! The daemon as a process in a balancer's namespace, with its configuration and its log.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::rig::Net;
use crate::rig::service::Service;

/// How long a daemon may take for anything: the kernel's verifier takes seconds for its program, and many of
/// them on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// It ends with this, and its directory with it.
pub struct Daemon<'a> {
    net: &'a Net,
    pub dir: tempfile::TempDir,
    child: Option<Child>,
    /// Of which the next one is started.
    pub binary: PathBuf,
}

impl<'a> Daemon<'a> {
    /// For the namespace `lb`; nothing runs yet, and its file is not written.
    pub fn new(net: &'a Net) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Daemon { net, dir, child: None, binary: env!("CARGO_BIN_EXE_plimsoll").into() }
    }

    /// With some of a service's servers in its file; nothing runs yet.
    pub fn of(service: &'a Service, names: &[&str]) -> Self {
        let daemon = Daemon::new(&service.net);
        daemon.name(service, names);
        daemon
    }

    /// The same, and it balances.
    pub fn started(service: &'a Service, names: &[&str]) -> Self {
        let mut daemon = Daemon::of(service, names);
        daemon.start();
        daemon
    }

    /// Names these servers of a service in its file.
    pub fn name(&self, service: &Service, names: &[&str]) {
        let interfaces: Vec<String> = (1..=service.servers.len())
            .map(|n| format!("{{ name: lb{n} }}"))
            .chain(["{ name: lbc, mode: native }".to_owned()])
            .collect();
        let backends: Vec<String> = service
            .backends(names)
            .iter()
            .map(|one| format!("{{ name: {}, address: \"{}\" }}", one.name, one.address))
            .collect();
        self.write(&interfaces, &service.vip.to_string(), &backends);
    }

    /// Its configuration.
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("l4.yaml")
    }

    /// Writes it: interfaces, the service's address and policy, and its servers, as in the file.
    pub fn write(&self, interfaces: &[String], vip: &str, backends: &[String]) {
        let text = format!(
            "l4:\n  interfaces: [ {} ]\n  pin_dir: {}\n  cookie: {{ key_file: {} }}\n  vips:\n    - \
             name: shop\n      address: \"{vip}\"\n      protocol: tcp\n      mode: stateless\n      \
             policy: round_robin\n      forwarding: direct\n      backends: [ {} ]\n",
            interfaces.join(", "),
            self.net.pins().display(),
            self.dir.path().join("l4.key").display(),
            backends.join(", ")
        );
        fs::write(self.file(), text).expect("written");
    }

    /// Says something else in its file, which must be there.
    pub fn change(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.file()).expect("read");
        assert!(text.contains(from), "{from:?} in:\n{text}");
        fs::write(self.file(), text.replace(from, to)).expect("written");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("l4").args(arguments).arg("--config").arg(self.file());
        command
    }

    /// What a command says in the balancer's namespace until it ends.
    pub fn output(&self, arguments: &[&str]) -> Output {
        self.net.output("lb", &mut self.command(arguments)).expect("runs")
    }

    /// Starts it, and waits until it balances.
    pub fn start(&mut self) {
        let log = fs::File::create(self.dir.path().join("log")).expect("a file");
        self.start_writing_to(log);
        self.wait_for("balancing");
        self.settle();
    }

    /// Starts it with this as standard error, and does not wait.
    pub fn start_writing_to(&mut self, log: impl Into<Stdio>) {
        let mut command = self.command(&["run"]);
        let child = self.net.spawn("lb", command.stderr(log).stdout(Stdio::null()));
        self.child = Some(child.expect("starts"));
    }

    /// Until the kernel balances, whatever the log says.
    pub fn wait_until_pinned(&self) {
        let began = Instant::now();
        while !self.output(&["status"]).status.success() {
            assert!(began.elapsed() < PATIENCE, "nothing is pinned");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The process that runs, which is the caller's from now on.
    pub fn hand_over(&mut self) -> Child {
        self.child.take().expect("runs")
    }

    /// Until every server that takes connections has been found on the network, and gets some.
    pub fn settle(&self) {
        let began = Instant::now();
        while self.status()["vips"][0]["backends"]
            .as_array()
            .is_none_or(|all| all.iter().any(|one| one["mac"] == "00:00:00:00:00:00"))
        {
            assert!(began.elapsed() < PATIENCE, "{:#}", self.status());
            std::thread::sleep(Duration::from_millis(50));
        }
        // Found is not yet listed: once it has reloaded, it has listed all that it found.
        let reloads = || self.log().matches("configuration reloaded").count();
        let before = reloads();
        self.signal(rustix::process::Signal::HUP);
        while reloads() == before {
            assert!(began.elapsed() < PATIENCE, "no reload in:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub fn wait_for(&self, text: &str) {
        let began = Instant::now();
        while !self.log().contains(text) {
            assert!(began.elapsed() < PATIENCE, "no {text:?} in:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let child = self.child.as_ref().expect("runs");
        let id = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(id, signal).expect("sent");
    }

    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("runs");
        child.kill().expect("killed");
        child.wait().expect("ended");
    }

    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.output(&[arguments, &["-o", "json"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    pub fn status(&self) -> serde_json::Value {
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
