//! What a result must say of itself so that it can be judged and repeated.

use std::time::Duration;

use jiff::Timestamp;
use plimsoll_lanes::haproxy_version;
use serde::{Deserialize, Serialize};

use crate::knapsack::cbc_version;
use crate::{Context, Experiment, Provenance};

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
    pub fn new(experiment: &Experiment, context: &Context, started: Timestamp) -> Self {
        let quick = if context.quick { " --quick" } else { "" };
        let window = context.window.map(|window| format!(" --window {}", window.as_secs_f64()));
        let window = window.unwrap_or_default();
        let took = Timestamp::now().duration_since(started);
        Manifest {
            name: experiment.name.to_owned(),
            provenance: experiment.provenance.to_vec(),
            command: format!(
                "plimsoll-lab run {} --seed {}{quick}{window}",
                experiment.name, context.seed
            ),
            seed: context.seed,
            quick: context.quick,
            started: format!("{started:.0}"),
            duration_seconds: Duration::try_from(took).unwrap_or_default().as_secs_f64(),
            plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("PLIMSOLL_COMMIT").map(str::to_owned),
            rustc: option_env!("PLIMSOLL_RUSTC").map(str::to_owned),
            haproxy: haproxy_version(),
            cbc: cbc_version(),
            kernel: kernel(),
            cpu: cpu(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
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
