//! What a testbed is: the written form of its backends, and what makes it valid.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::mode::Mode;
use super::queue::Discipline;
use super::service::Service;

/// More cores than any machine has: a bound against slips of the pen.
const MOST_CORES: u32 = 4096;
/// Each connection that is slow to read has a copy of its answer.
const MOST_ANSWER: u32 = 1 << 20;

/// A set of emulated backends in one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestbedSpec {
    /// Where the admin API listens; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<SocketAddr>,
    /// At least one.
    pub backends: Vec<BackendSpec>,
}

/// One emulated backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendSpec {
    /// Unique; sent in every response as `x-backend`.
    pub name: String,
    /// Where it listens; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Requests that can be in service at once at full speed.
    #[serde(default = "one_core")]
    pub cores: u32,
    /// Work done per second and core; 2 halves every service time.
    #[serde(default = "unit_speed")]
    pub speed: f64,
    /// Service time on a core of speed 1.
    pub service: Service,
    /// How requests share the cores.
    #[serde(default)]
    pub discipline: Discipline,
    /// Requests that may wait beyond one per core; more are answered 503 at once. Unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_limit: Option<u32>,
    /// The share of the requests answered 500, 0…1.
    #[serde(default)]
    pub error_rate: f64,
    /// Whether such errors are answered at once, rather than after their service.
    #[serde(default = "yes")]
    pub fast_fail: bool,
    /// Seed of the service times and errors; the name is mixed in, so that backends differ.
    #[serde(default)]
    pub seed: u64,
    /// Paths answered at once with 200, without service.
    #[serde(default = "default_light_paths")]
    pub light_paths: Vec<String>,
    /// Paths whose requests take this multiple of the work of others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub costs: BTreeMap<String, f64>,
    /// How long its good answers are, bytes of text; a few by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_bytes: Option<u32>,
    /// How it behaves at the start.
    #[serde(default)]
    pub mode: Mode,
}

fn one_core() -> u32 {
    1
}

fn unit_speed() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

fn default_light_paths() -> Vec<String> {
    vec!["/health".into()]
}

impl BackendSpec {
    /// A backend of one core of speed 1 on a loopback port of the system's choosing, everything else
    /// as in a file that names no more.
    pub fn new(name: impl Into<String>, service: Service) -> Self {
        BackendSpec {
            name: name.into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            cores: one_core(),
            speed: unit_speed(),
            service,
            discipline: Discipline::default(),
            queue_limit: None,
            error_rate: 0.0,
            fast_fail: yes(),
            seed: 0,
            light_paths: default_light_paths(),
            costs: BTreeMap::new(),
            answer_bytes: None,
            mode: Mode::default(),
        }
    }

    /// Requests per second that it can serve: `cores · speed / mean`.
    pub fn capacity_rps(&self) -> f64 {
        f64::from(self.cores) * self.speed / self.service.mean.as_secs_f64()
    }

    /// The work of a request for this path, as a multiple of the usual; none for light paths.
    pub(super) fn cost(&self, path: &str) -> Option<f64> {
        let light = self.light_paths.iter().any(|light| light == path);
        (!light).then(|| self.costs.get(path).copied().unwrap_or(1.0))
    }

    fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        if let Err(problem) = check_name(&self.name) {
            found.push(format!("name: {problem}"));
        }
        let checks = [
            ("cores", check_cores(self.cores)),
            ("speed", check_speed(self.speed)),
            ("error_rate", check_share(self.error_rate)),
            ("answer_bytes", self.answer_bytes.map_or(Ok(()), check_answer)),
        ];
        for (key, check) in checks {
            if let Err(problem) = check {
                found.push(format!("{key}: {problem}"));
            }
        }
        if let Some(bad) = self.light_paths.iter().find(|p| !p.starts_with('/')) {
            found.push(format!("light_paths: expected paths that begin with /, found `{bad}`"));
        }
        for (path, cost) in &self.costs {
            if !path.starts_with('/') || !cost.is_finite() || *cost <= 0.0 {
                let what = "expected a path that begins with / and a number above 0";
                found.push(format!("costs: {what}, found `{path}: {cost}`"));
            }
        }
        found
    }
}

/// A rule that a specification breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecProblem {
    /// Position in [`TestbedSpec::backends`]; none when it is about the whole.
    pub backend: Option<usize>,
    /// The key, and what was expected.
    pub message: String,
}

impl std::fmt::Display for SpecProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.backend {
            Some(i) => write!(f, "backends[{i}]: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl TestbedSpec {
    /// Every rule that is broken, in order of the backends; empty when the specification is valid.
    pub fn problems(&self) -> Vec<SpecProblem> {
        let mut found = Vec::new();
        if self.backends.is_empty() {
            let message = "backends: expected at least one".into();
            found.push(SpecProblem { backend: None, message });
        }
        let mut names = BTreeSet::new();
        let mut addresses: BTreeSet<SocketAddr> = self.admin.into_iter().collect();
        for (i, backend) in self.backends.iter().enumerate() {
            let mut problems = backend.problems();
            if !names.insert(&backend.name) {
                problems.push(format!("name: `{}` is taken by another backend", backend.name));
            }
            if backend.listen.port() != 0 && !addresses.insert(backend.listen) {
                problems.push(format!("listen: {} is used twice", backend.listen));
            }
            let at = |message| SpecProblem { backend: Some(i), message };
            found.extend(problems.into_iter().map(at));
        }
        found
    }
}

/// A name goes into a header and a path: visible ASCII without separators.
fn check_name(name: &str) -> Result<(), String> {
    let fit = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if !name.is_empty() && name.len() <= 128 && name.bytes().all(fit) {
        return Ok(());
    }
    Err(format!("expected 1 to 128 letters, digits, `-`, `_` or `.`, found `{name}`"))
}

pub(super) fn check_cores(cores: u32) -> Result<(), String> {
    if (1..=MOST_CORES).contains(&cores) {
        return Ok(());
    }
    Err(format!("expected a whole number from 1 to {MOST_CORES}, found {cores}"))
}

pub(super) fn check_speed(speed: f64) -> Result<(), String> {
    if speed.is_finite() && speed > 0.0 {
        return Ok(());
    }
    Err(format!("expected a number above 0, found {speed}"))
}

fn check_answer(bytes: u32) -> Result<(), String> {
    if (1..=MOST_ANSWER).contains(&bytes) {
        return Ok(());
    }
    Err(format!("expected a whole number from 1 to {MOST_ANSWER}, found {bytes}"))
}

pub(super) fn check_share(share: f64) -> Result<(), String> {
    if (0.0..=1.0).contains(&share) {
        return Ok(());
    }
    Err(format!("expected a number from 0 to 1, found {share}"))
}
