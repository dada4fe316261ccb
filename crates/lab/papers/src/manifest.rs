//! What a result must say of itself so that it can be judged and repeated.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_lanes::{find_program, haproxy_version, program_places};
use serde::{Deserialize, Serialize};

use crate::knapsack::cbc_version;
use crate::{Context, Experiment, Outcome, Provenance};

/// Where the numbers of its tables come from, but for the paper's own.
fn provenance_of(outcome: &Outcome) -> Vec<Provenance> {
    let rows = outcome.tables.iter().flat_map(|table| &table.rows);
    let mut all: Vec<Provenance> = rows.map(|row| row.provenance).collect();
    all.retain(|from| *from != Provenance::Reported);
    all.sort_unstable();
    all.dedup();
    all
}

/// Beside every result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The experiment.
    pub name: String,
    /// Where our numbers come from.
    pub provenance: Vec<Provenance>,
    /// The command that repeats it.
    pub command: String,
    /// The seed of everything random.
    pub seed: u64,
    /// Whether it was a quick run, whose numbers get no verdict.
    pub quick: bool,
    /// When it began, UTC.
    pub started: String,
    /// How long it took, seconds.
    pub duration_seconds: f64,
    /// Plimsoll's version.
    pub plimsoll: String,
    /// The commit it was built from, where known.
    pub commit: Option<String>,
    /// The compiler.
    pub rustc: Option<String>,
    /// The HAProxy of this machine, if there is one.
    pub haproxy: Option<String>,
    /// The other balancers and servers of this machine, each with what it says of its version.
    #[serde(default)]
    pub programs: BTreeMap<String, String>,
    /// The solver that KnapsackLB uses, CBC by PuLP, if python3 has it.
    pub cbc: Option<String>,
    /// Kernel and release.
    pub kernel: Option<String>,
    /// The processor.
    pub cpu: Option<String>,
    /// Cores that this process could use.
    pub cores: usize,
}

impl Manifest {
    /// Of a run that began then and is over.
    pub fn new(
        experiment: &Experiment,
        context: &Context,
        started: Timestamp,
        outcome: &Outcome,
    ) -> Self {
        let quick = if context.quick { " --quick" } else { "" };
        let took = Timestamp::now().duration_since(started);
        Manifest {
            name: experiment.name.to_owned(),
            provenance: provenance_of(outcome),
            command: format!(
                "plimsoll-lab run {} --seed {}{}{quick}",
                experiment.name,
                context.seed,
                context.options.text()
            ),
            seed: context.seed,
            quick: context.quick,
            started: format!("{started:.0}"),
            duration_seconds: Duration::try_from(took).unwrap_or_default().as_secs_f64(),
            plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit().map(str::to_owned),
            rustc: option_env!("PLIMSOLL_RUSTC").map(str::to_owned),
            haproxy: haproxy_version(),
            programs: programs(),
            cbc: cbc_version(),
            kernel: kernel(),
            cpu: cpu(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// The commit that this binary was built from, where known.
pub fn commit() -> Option<&'static str> {
    option_env!("PLIMSOLL_COMMIT")
}

fn programs() -> BTreeMap<String, String> {
    let known = [("nginx", "-v"), ("envoy", "--version"), ("php", "-v"), ("mariadbd", "--version")];
    let version = |(name, flag): (&str, &str)| {
        let mut command = Command::new(find_program(name, program_places())?);
        let said = command.arg(flag).stdin(Stdio::null()).output().ok()?;
        // nginx answers on standard error.
        let text = [said.stdout, said.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.lines().find(|line| !line.trim().is_empty())?;
        Some((name.to_owned(), line.trim().to_owned()))
    };
    known.into_iter().filter_map(version).collect()
}

fn kernel() -> Option<String> {
    let read = |what: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{what}")).ok();
    Some(format!("{} {}", read("ostype")?.trim(), read("osrelease")?.trim()))
}

fn cpu() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
