//! Where it happens: clients, a balancer and servers in namespaces, and processes of the binary in them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use plimsoll_testbed::net::{Site, SiteSpec, requirements};
use serde_json::Value;

/// The longest wait for what should take a second or two.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so; returns how long that took.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    began.elapsed()
}

/// A process that is killed when dropped.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The binary, with this file as its configuration.
pub fn binary(words: &[&str], file: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(words).arg("--config").arg(file);
    command
}

/// A site, and the files of what runs there.
pub struct Place {
    pub site: Site,
}

impl Place {
    /// So many servers; `None`, and says so, where that cannot be.
    pub fn new(spec: &SiteSpec) -> Option<Self> {
        match requirements() {
            Ok(()) => Some(Place { site: Site::new(spec).expect("a site") }),
            Err(why) => {
                eprintln!("skipped: {why}");
                None
            }
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.site.net.dir().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("l4.sock")
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("written");
        path
    }

    /// The balancer's file: `backend` is what stands beside name and address of each server, `rest` lines
    /// of the section.
    pub fn l4(&self, policy: &str, backend: impl Fn(usize) -> String, rest: &str) -> String {
        let interfaces = self.site.balancer_interfaces().join(" }, { name: ");
        let backends: Vec<String> = (0..self.site.servers.len())
            .map(|i| {
                let (name, address) = (&self.site.servers[i], self.site.address_of(i));
                format!("{{ name: {name}, address: \"{address}\"{} }}", backend(i))
            })
            .collect();
        format!(
            "l4:\n  interfaces: [ {{ name: {interfaces} }} ]\n  pin_dir: {}\n  cookie: {{ key_file: {} \
             }}\n  socket: {{ path: {} }}\n{rest}  vips:\n    - name: web\n      address: \"{}\"\n      \
             policy: {policy}\n      backends: [ {} ]\n",
            self.site.net.pins().join("l4").display(),
            self.path("l4.key").display(),
            self.socket().display(),
            self.site.vip,
            backends.join(", ")
        )
    }

    /// Runs the binary in a namespace, with this file as its configuration.
    pub fn run(&self, place: &str, words: &[&str], file: &str) -> Output {
        let command = &mut binary(words, &self.path(file));
        self.site.net.output(place, command).expect("runs")
    }

    /// Starts a program in a namespace for good, its standard error in a file of this name.
    pub fn start(&self, place: &str, command: &mut Command, log: &str) -> Process {
        let log = File::options().create(true).append(true).open(self.path(log)).expect("a log");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Process(self.site.net.spawn(place, command).expect("starts"))
    }

    /// Starts the balancer on `l4.yaml`, and waits until it is asked and knows its servers.
    pub fn balance(&self) -> Process {
        let command = &mut binary(&["l4", "run"], &self.path("l4.yaml"));
        let process = self.start("lb", command, "l4.log");
        until("the balancer", || {
            let backends = self.try_status().map(|s| s["vips"][0]["backends"].clone());
            let found = |b: &Value| b["mac"] != "00:00:00:00:00:00";
            std::os::unix::net::UnixStream::connect(self.socket()).is_ok()
                && backends.as_ref().and_then(Value::as_array).is_some_and(|b| b.iter().all(found))
        });
        process
    }

    fn try_status(&self) -> Option<Value> {
        let output = self.run("lb", &["l4", "status", "-o", "json"], "l4.yaml");
        serde_json::from_slice(&output.stdout).ok()
    }

    /// The service as `l4 status` tells it.
    pub fn status(&self) -> Value {
        self.try_status().expect("a status")["vips"][0].clone()
    }

    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

/// A number of each server, in order.
pub fn each(status: &Value, field: &str) -> Vec<u64> {
    let backends = status["backends"].as_array().expect("a list");
    backends.iter().map(|one| one[field].as_u64().expect("a number")).collect()
}
