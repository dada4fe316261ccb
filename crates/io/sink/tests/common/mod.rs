//! A real HAProxy as a child process, in a directory of its own.
#![allow(dead_code, reason = "every test file uses another part")]

pub mod fake;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use plimsoll_model::{BackendId, Nanos, Plan, PlanEntry, PlanKind};
use plimsoll_sink::{HaproxyConfig, HaproxySink, SocketAddress};

/// Longest wait for anything that a healthy HAProxy does at once.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Haproxy {
    pub dir: PathBuf,
    child: Child,
    master_worker: bool,
}

/// Three sockets, one per level, and what every configuration needs.
const GLOBAL: &str = "
global
  maxconn 200
  stats socket DIR/admin.sock level admin
  stats socket DIR/operator.sock level operator
  stats socket DIR/user.sock level user
defaults
  mode http
  timeout connect 1s
  timeout client 5s
  timeout server 5s
";

impl Haproxy {
    /// Starts HAProxy with these proxies (`DIR` stands for its directory), and waits for its socket.
    pub fn start(proxies: &str) -> Self {
        Self::spawn(proxies, false)
    }

    /// The same as master and worker: reloads on SIGUSR2.
    pub fn start_master_worker(proxies: &str) -> Self {
        Self::spawn(proxies, true)
    }

    fn spawn(proxies: &str, master_worker: bool) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir =
            std::env::temp_dir().join(format!("plimsoll-sink-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for HAProxy");
        write_config(&dir, proxies);
        let child = launch(&dir, master_worker);
        let mut haproxy = Haproxy { dir, child, master_worker };
        haproxy.wait_until_it_answers();
        haproxy
    }

    pub fn socket(&self, level: &str) -> PathBuf {
        self.dir.join(format!("{level}.sock"))
    }

    /// Ends the process and starts another one with the same configuration.
    pub fn restart(&mut self) {
        self.stop();
        self.start_again();
    }

    /// Starts what [`Haproxy::stop`] ended.
    pub fn start_again(&mut self) {
        self.child = launch(&self.dir, self.master_worker);
        self.wait_until_it_answers();
    }

    pub fn stop(&mut self) {
        if self.child.try_wait().expect("wait for HAProxy").is_some() {
            return;
        }
        // The master ends its workers when asked, not when killed.
        signal(self.child.id(), "TERM");
        let ended = Instant::now() + Duration::from_secs(3);
        while self.child.try_wait().expect("wait for HAProxy").is_none() {
            if Instant::now() > ended {
                self.child.kill().expect("kill HAProxy");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Reloads with these proxies, and waits until the new worker answers.
    pub fn reload(&mut self, proxies: &str) {
        let pid = |socket: &Path| {
            let pid = try_ask(socket, "show info").map(|info| field(&info, "Pid"));
            // A connection that is cut has none to tell.
            pid.filter(|pid| !pid.is_empty())
        };
        let old = pid(&self.socket("admin")).expect("the old worker answers");
        self.wait_for_the_master();
        write_config(&self.dir, proxies);
        signal(self.child.id(), "USR2");
        let socket = self.socket("admin");
        until("a new worker", || pid(&socket).is_some_and(|new| new != old));
    }

    /// Runs one command on a connection of its own, as an administrator would.
    pub fn ask(&self, command: &str) -> String {
        try_ask(&self.socket("admin"), command).expect("HAProxy answers")
    }

    fn wait_until_it_answers(&mut self) {
        let socket = self.socket("user");
        let child = &mut self.child;
        until("HAProxy to answer", || {
            if let Some(status) = child.try_wait().expect("wait for HAProxy") {
                panic!("HAProxy ended at once ({status}): see its messages above");
            }
            try_ask(&socket, "show info").is_some()
        });
        if self.master_worker {
            self.wait_for_the_master();
        }
    }

    /// A worker answers before its master has learned to take signals.
    fn wait_for_the_master(&self) {
        let master = self.socket("master");
        until("the master", || try_ask(&master, "show proc").is_some_and(|a| a.contains("worker")));
    }

    pub fn sink(&self, servers: &[&str]) -> HaproxySink {
        self.sink_on("admin", servers)
    }

    pub fn sink_on(&self, level: &str, servers: &[&str]) -> HaproxySink {
        sink_at(SocketAddress::Unix(self.socket(level)), "shop", servers)
    }

    /// The weight HAProxy itself says a server has.
    pub fn weight(&self, server: &str) -> String {
        let answer = self.ask(&format!("get weight shop/{server}"));
        answer.split_whitespace().next().unwrap_or_default().to_owned()
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

pub fn sink_at(socket: SocketAddress, backend: &str, servers: &[&str]) -> HaproxySink {
    // None of these HAProxys hangs: that the machine has no time is no failure.
    let config = HaproxyConfig { timeout: PATIENCE, ..HaproxyConfig::new(socket, backend) };
    HaproxySink::new(config, named(servers)).expect("good names")
}

/// Servers with identities 1, 2, 3, …
pub fn named(servers: &[&str]) -> Vec<(BackendId, String)> {
    (1..).map(BackendId).zip(servers.iter().map(|name| (*name).to_owned())).collect()
}

/// A plan that gives these weights to identities 1, 2, 3, …
pub fn plan(weights: &[u32]) -> Plan {
    let total = f64::from(weights.iter().sum::<u32>().max(1));
    Plan {
        epoch: 7,
        at: Nanos::ZERO,
        kind: PlanKind::Packed,
        reason: "test".to_owned(),
        entries: (1..)
            .map(BackendId)
            .zip(weights)
            .map(|(backend, weight)| PlanEntry {
                backend,
                share: f64::from(*weight) / total,
                weight: *weight,
            })
            .collect(),
    }
}

pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port()
}

/// A TCP server that hands each connection to `serve`, in a thread, for the life of the test.
pub fn serve(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let serve = std::sync::Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    port
}

fn try_ask(socket: &Path, command: &str) -> Option<String> {
    let mut stream = UnixStream::connect(socket).ok()?;
    // Whoever asks again and again has time for another try.
    stream.set_read_timeout(Some(PATIENCE / 2)).ok()?;
    stream.write_all(format!("{command}\n").as_bytes()).ok()?;
    // The master ends its answer only for a client that has ended its questions.
    stream.shutdown(Shutdown::Write).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn field(info: &str, key: &str) -> String {
    let line = info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    line.unwrap_or_default().to_owned()
}

fn write_config(dir: &Path, proxies: &str) {
    let text = format!("{GLOBAL}{proxies}\n").replace("DIR", &dir.display().to_string());
    std::fs::write(dir.join("haproxy.cfg"), text).expect("write haproxy.cfg");
}

fn launch(dir: &Path, master_worker: bool) -> Child {
    let mut command = Command::new(program());
    if master_worker {
        command.args(["-W", "-S"]).arg(dir.join("master.sock"));
    }
    command.arg("-db").arg("-f").arg(dir.join("haproxy.cfg")).stdin(Stdio::null());
    let log = std::fs::File::create(dir.join("haproxy.log")).expect("a log");
    command.stderr(log).spawn().expect("start HAProxy")
}

/// These tests are about HAProxy: without it they fail, and say so.
fn program() -> PathBuf {
    let places = [std::env::var("HAPROXY").unwrap_or_default(), "/usr/sbin/haproxy".to_owned()];
    let found = places.iter().map(PathBuf::from).find(|path| path.is_file());
    found.expect("these tests need HAProxy: `apt-get install haproxy`, or name it in $HAPROXY")
}

fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
    assert!(status.expect("run kill").success(), "no process {pid} to signal");
}
