//! What every test stands on.

mod daemon;
pub mod guide;
mod haproxy;
mod ports;
pub mod process;
pub mod relay;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use plimsoll_testbed::load::{LoadHandle, LoadSpec, Target, start};
use plimsoll_testbed::{BackendSpec, Change, Mode, Service, Testbed, TestbedSpec};

pub use daemon::Daemon;
pub use haproxy::Haproxy;
pub use ports::free_address;
pub use process::ServerProcess;

/// The longest wait for what should take a second or two: these tests share a small machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until something has happened.
pub fn until(what: &str, happened: impl FnMut() -> bool) {
    until_within(PATIENCE, what, happened);
}

/// The same for what takes longer.
pub fn until_within(patience: Duration, what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !happened() {
        assert!(Instant::now() < deadline, "waited {patience:?} for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal to a process of ours.
pub fn signal(pid: u32, name: &str) {
    let arguments = [format!("-{name}"), pid.to_string()];
    let status = Command::new("kill").args(arguments).status().expect("run kill");
    assert!(status.success(), "cannot signal {pid}");
}

/// Runs the binary to its end.
pub fn plimsoll(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(arguments).output().expect("run plimsoll")
}

/// Its standard output.
pub fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Its standard error.
pub fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A pool of emulated backends, an HAProxy in front of it, and a directory.
pub struct Rig {
    pub dir: tempfile::TempDir,
    pub bed: Testbed,
    /// More backends, each in a process of its own.
    pub processes: Vec<ServerProcess>,
    pub haproxy: Haproxy,
    /// Names of the backends that the configuration names.
    pub configured: Vec<String>,
    pub api: SocketAddr,
    /// Lines of the service's configuration beyond backends and sink.
    pub service: String,
    /// The socket's level.
    pub level: &'static str,
    /// The socket, where it is not HAProxy's own.
    pub socket: Option<PathBuf>,
}

impl Rig {
    /// Backends s1, s2, … of these speeds, each of one core that takes 5 ms for a request at speed 1,
    /// and an HAProxy that balances so.
    pub fn new(balance: &str, speeds: &[f64]) -> Self {
        Self::of(balance, emulated(speeds), 0)
    }

    /// These backends, and after them so many of speed 1 in processes of their own.
    pub fn of(balance: &str, backends: Vec<BackendSpec>, processes: usize) -> Self {
        let names = (backends.len() + 1..).map(|i| format!("s{i}"));
        let processes: Vec<_> = names.take(processes).map(ServerProcess::start).collect();
        let bed = Testbed::start(TestbedSpec { admin: None, backends }).expect("backends");
        let dir = tempfile::tempdir().expect("a directory");
        let mut servers = bed.addresses().to_vec();
        servers.extend(processes.iter().map(|server| (server.name.clone(), server.address)));
        let haproxy = Haproxy::start(dir.path(), balance, &servers);
        let configured = servers.into_iter().map(|(name, _)| name).collect();
        let service = "    probe: { path: /work, timeout: 2s }\n    liveness: { path: /health, \
                       interval: 100ms, requests: 3, timeout: 1s }\n"
            .to_owned();
        Rig {
            dir,
            bed,
            processes,
            haproxy,
            configured,
            api: free_address(),
            service,
            level: "admin",
            socket: None,
        }
    }

    /// README's configuration: no probes, and no checks by request.
    pub fn without_checks(mut self) -> Self {
        self.service = String::new();
        self
    }

    fn address(&self, name: &str) -> Option<SocketAddr> {
        let process = self.processes.iter().find(|server| server.name == name);
        self.bed.address(name).or(process.map(|server| server.address))
    }

    /// A file in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The configuration as a text.
    pub fn config(&self) -> String {
        let backends: String = self
            .configured
            .iter()
            .map(|name| {
                let address = self.address(name).unwrap_or_else(free_address);
                format!("      - {{ name: {name}, address: \"{address}\" }}\n")
            })
            .collect();
        format!(
            "services:\n  - name: shop\n    backends:\n{backends}{}    sink: {{ haproxy: {{ socket: \
             {}, backend: shop }} }}\nstore: {{ path: {} }}\napi: {{ listen: \"{}\" }}\n",
            self.service,
            self.socket.clone().unwrap_or_else(|| self.haproxy.socket(self.level)).display(),
            self.path("state").display(),
            self.api,
        )
    }

    /// Writes the configuration, and gives its path.
    pub fn write_config(&self) -> PathBuf {
        let path = self.path("plimsoll.yaml");
        std::fs::write(&path, self.config()).expect("written");
        path
    }

    /// Starts the daemon on this configuration and waits until it answers.
    pub fn daemon(&self) -> Daemon {
        self.daemon_with(&[])
    }

    /// The same with more arguments.
    pub fn daemon_with(&self, arguments: &[&str]) -> Daemon {
        let config = self.write_config();
        let mut daemon = Daemon::spawn(&config, self.api, &self.path("log"), arguments);
        daemon.wait_until_it_answers();
        daemon
    }

    /// Starts it with these streams as standard output and standard error, and waits until it answers.
    pub fn daemon_that_writes_to(
        &self,
        arguments: &[&str],
        stdout: impl Into<Stdio>,
        stderr: impl Into<Stdio>,
    ) -> Daemon {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["run", "--config", arg(&self.write_config())]).args(arguments);
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        let mut daemon = Daemon::start_as_it_is(&mut command, self.api, &self.path("log"));
        // The command holds the caller's ends of pipes until it is dropped.
        drop(command);
        daemon.wait_until_it_answers();
        daemon
    }

    /// Starts the daemon on nothing but HAProxy's socket, and waits until it answers.
    pub fn daemon_without_a_file(&self, arguments: &[&str]) -> Daemon {
        let mut daemon = self.spawn_without_a_file(arguments);
        daemon.wait_until_it_answers();
        daemon
    }

    fn spawn_without_a_file(&self, arguments: &[&str]) -> Daemon {
        let socket = self.haproxy.socket(self.level);
        let (store, listen) = (self.path("state"), self.api.to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args([
            "run",
            "--haproxy",
            arg(&socket),
            "--store",
            arg(&store),
            "--listen",
            &listen,
        ]);
        let log = std::fs::File::create(self.path("log")).expect("a log");
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Daemon::start_as_it_is(&mut command, self.api, &self.path("log"))
    }

    /// The same, unable to make any file longer than so many blocks of 512 bytes: a full disk. None
    /// when that is too little to start with.
    pub fn daemon_limited_to(&self, blocks: u64) -> Option<Daemon> {
        let config = self.write_config();
        let mut daemon = Daemon::spawn_limited(&config, self.api, &self.path("log"), blocks);
        daemon.answers_before_it_ends().then_some(daemon)
    }

    /// Open-loop clients of HAProxy for as long as the handle lives.
    pub fn clients(&self, rate_rps: f64) -> LoadHandle {
        let url = format!("http://{}/work", self.haproxy.address);
        let target = Target::resolve(&url).expect("a URL");
        start(LoadSpec::poisson(target, rate_rps, Duration::from_secs(600))).expect("clients")
    }

    /// Has a backend behave so from now on.
    pub fn set_mode(&self, backend: &str, mode: Mode) {
        self.bed.set(backend, Change::mode(mode)).expect("the testbed runs");
    }

    /// The weight that HAProxy holds.
    pub fn weight(&self, server: &str) -> u32 {
        self.haproxy.weight(server)
    }
}

/// Backends s1, s2, … of these speeds, each of one core that takes 5 ms for a request at speed 1.
pub fn emulated(speeds: &[f64]) -> Vec<BackendSpec> {
    let service = Service::exponential(Duration::from_millis(5));
    let named = (1..).zip(speeds);
    named
        .map(|(i, &speed)| BackendSpec { speed, ..BackendSpec::new(format!("s{i}"), service) })
        .collect()
}

/// A path as an argument.
pub fn arg(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}
