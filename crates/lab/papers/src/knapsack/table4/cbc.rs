//! The paper's solver, CBC through PuLP, on our instances; where python3 and PuLP are installed.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use plimsoll_pack::Choice;
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::knapsack::instances::UNITS;

const SCRIPT: &str = include_str!("cbc.py");
/// Prints both versions: what CBC says of itself has its own in the second line. It ends by itself should either hang:
/// no result waits for it.
const VERSION: &str = "\
import signal, subprocess
signal.alarm(10)
import pulp
said = subprocess.run([pulp.PULP_CBC_CMD().path, '-exit'], capture_output=True, text=True).stdout
print('CBC', said.split('Version: ')[1].split()[0] + ', PuLP', pulp.__version__)
";
/// The script's word for "PuLP is not installed".
const NO_PULP: i32 = 3;
/// Weights in the paper's ILP are fractions; CBC gets whole millionths, which keep its tolerances out.
const PER_UNIT: i64 = UNITS / 1_000_000;

#[derive(Serialize)]
struct Question {
    target: i64,
    limit_seconds: f64,
    menus: Vec<Vec<(i64, f64)>>,
}

/// What CBC says.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Cbc {
    /// CPU time by its own log: without Python, without writing or reading the model.
    pub cpu_ms: f64,
    /// The cost of its choice.
    pub cost: f64,
    /// Whether it proved its answer before the limit.
    pub ended: bool,
}

/// `CBC 2.10.3, PuLP 3.3.2`, where both are installed.
pub fn version() -> Option<String> {
    static SAID: OnceLock<Option<String>> = OnceLock::new();
    SAID.get_or_init(ask_version).clone()
}

fn ask_version() -> Option<String> {
    let said = Command::new("python3").args(["-c", VERSION]).stdin(Stdio::null()).output().ok()?;
    let line = String::from_utf8(said.stdout).ok()?.trim().to_owned();
    (said.status.success() && !line.is_empty()).then_some(line)
}

/// Solves the menus within this time; nothing where python3 or PuLP is not installed.
///
/// # Errors
/// When it is installed and does not answer.
pub fn solve(menus: &[Vec<Choice>], limit: Duration) -> Result<Option<Cbc>, Failure> {
    let entry = |choice: &Choice| (choice.weight / PER_UNIT, choice.cost);
    let menus = menus.iter().map(|menu| menu.iter().map(entry).collect()).collect();
    // Weights were rounded down, by less than one each.
    let question = Question { target: UNITS / PER_UNIT, limit_seconds: limit.as_secs_f64(), menus };
    let child = Command::new("python3")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else { return Ok(None) };
    let text = serde_json::to_vec(&question).map_err(|e| Failure::Other(e.to_string()))?;
    if let Some(mut pipe) = child.stdin.take() {
        // A script that ends before it has read everything says why by its exit code.
        let _ = pipe.write_all(&text);
    }
    let answer = child.wait_with_output().map_err(Failure::file("run python3"))?;
    if answer.status.code() == Some(NO_PULP) {
        return Ok(None);
    }
    let wrong = |why: String| Failure::Other(format!("CBC through PuLP: {why}"));
    if !answer.status.success() {
        return Err(wrong(String::from_utf8_lossy(&answer.stderr).trim().to_owned()));
    }
    serde_json::from_slice(&answer.stdout).map(Some).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use plimsoll_model::Objective;
    use plimsoll_pack::{Effort, MenuProblem, pack_menus};

    use super::*;
    use crate::knapsack::instances::Instance;

    #[test]
    fn where_cbc_is_installed_it_agrees() {
        let menus = Instance::mixed(10, 4).menus(10);
        let answer = solve(&menus, Duration::from_secs(60)).unwrap();
        let said = version();
        assert_eq!(answer.is_some(), said.is_some(), "{said:?}");
        let (Some(cbc), Some(said)) = (answer, said) else { return };
        assert!(said.starts_with("CBC ") && said.contains(", PuLP "), "{said}");
        let problem = MenuProblem { menus: &menus, target: UNITS, theta: None };
        let ours = pack_menus(&problem, Objective::Sum, &Effort::default()).unwrap();
        // Millionths are coarser than our units: a nearly binding sum may need a neighbour.
        assert!(cbc.ended && cbc.cost >= ours.objective * (1.0 - 1e-9), "{cbc:?}");
        assert!(cbc.cost <= ours.objective * 1.01, "{cbc:?} {}", ours.objective);
    }
}
