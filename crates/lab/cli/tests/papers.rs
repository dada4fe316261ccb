//! The experiments of the papers, run as people run them.

mod program;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use program::{LAB, build_plimsoll};

fn lab(words: &[&str]) -> Command {
    let mut command = Command::new(LAB);
    command.args(words);
    command
}

fn run(words: &[&str]) -> Output {
    lab(words).output().unwrap()
}

fn names(dir: &Path) -> BTreeSet<String> {
    let places = fs::read_dir(dir).unwrap();
    places.map(|place| place.unwrap().file_name().into_string().unwrap()).collect()
}

/// What `--paper` takes.
const PAPERS: [&str; 5] = ["knapsack", "cheetah", "edge", "bloc", "haproxy"];

/// The names of all experiments.
fn listed() -> BTreeSet<String> {
    let answer = run(&["list", "-o", "json"]);
    let all: Vec<Value> = serde_json::from_slice(&answer.stdout).unwrap();
    let built = all.iter().filter(|one| one["missing"].is_null());
    built.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_experiment_runs_and_is_reported() {
    build_plimsoll();
    let out = tempfile::tempdir().unwrap();
    let place = out.path().to_str().unwrap();
    // Most of the time they wait: those of different papers can do so together.
    let of_paper = |paper: &&str| {
        let words = ["--quick", "--seed", "2", "--out", place, "-o", "json"];
        let mut command = lab(&["run", "--paper", paper]);
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let running: Vec<Child> = PAPERS.iter().map(of_paper).collect();
    let answers: Vec<Output> =
        running.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    let said: String =
        answers.iter().map(|answer| String::from_utf8_lossy(&answer.stderr)).collect();
    let mut listed = listed();
    if rustix::process::geteuid().is_root() {
        assert!(answers.iter().all(|answer| answer.status.success()), "{said}");
    } else {
        // What needs root says so; everything else runs.
        assert!(answers.iter().all(|answer| matches!(answer.status.code(), Some(0 | 1))), "{said}");
        let refused = |name: &str| {
            said.lines().any(|line| line.contains(name) && line.contains("needs root"))
        };
        let before = listed.len();
        listed.retain(|name| !refused(name));
        assert!(listed.len() < before, "{said}");
        eprintln!("skipped: what needs root");
    }
    let read = |answer: &Output| serde_json::from_slice::<Vec<Value>>(&answer.stdout).unwrap();
    let all: Vec<Value> = answers.iter().flat_map(read).collect();
    assert_eq!(names(out.path()), listed);
    assert_eq!(all.len(), listed.len());
    for one in &all {
        let name = one["experiment"]["name"].as_str().unwrap();
        check(name, one, &out.path().join(name));
    }
    let answer = run(&["report", "--from", place]);
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    let page = fs::read_to_string(out.path().join("index.html")).unwrap();
    for name in &listed {
        assert!(page.contains(&format!("<section id=\"{name}\">")), "{name}");
    }
}

/// A result shows something, compares it with the paper, and says why where they differ.
fn check(name: &str, one: &Value, dir: &Path) {
    let outcome = &one["outcome"];
    let list = |key: &str| outcome[key].as_array().unwrap().clone();
    assert!(!list("tables").is_empty() && !list("plots").is_empty(), "{name}");
    assert!(!list("comparisons").is_empty(), "{name}");
    for comparison in list("comparisons") {
        let (verdict, why) = (&comparison["verdict"], comparison["why"].as_str().unwrap());
        assert!(why.ends_with('.'), "{name}: {comparison}");
        let none = verdict == "quick-run" || verdict == "not-comparable";
        assert!(none, "a quick run gets no verdict: {name}: {comparison}");
    }
    for table in list("tables") {
        let file = dir.join(format!("{}.csv", table["name"].as_str().unwrap()));
        let lines = fs::read_to_string(file).unwrap().lines().count();
        assert!(lines > 1, "{name}: {}", table["name"]);
    }
    for plot in list("plots") {
        let file = dir.join(format!("{}.svg", plot["name"].as_str().unwrap()));
        assert!(fs::read_to_string(file).unwrap().contains("</svg>"), "{name}");
    }
    let sources = outcome["tables"].to_string();
    let promised = one["manifest"]["provenance"].as_array().unwrap();
    for provenance in promised {
        assert!(sources.contains(&format!("\"provenance\":{provenance}")), "{name}: {provenance}");
    }
}

/// The table in `docs/lab.md` is what `plimsoll-lab list` says.
#[test]
fn the_documentation_lists_every_experiment() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/lab.md");
    let docs = fs::read_to_string(docs).unwrap();
    let said = String::from_utf8(run(&["list", "-o", "json"]).stdout).unwrap();
    let all: Vec<Value> = serde_json::from_str(&said).unwrap();
    for one in all {
        let text = |key: &str| one[key].as_str().unwrap().to_owned();
        if !one["missing"].is_null() {
            let [name, figure, title, why] = ["name", "figure", "title", "missing"].map(text);
            let row = format!("| `{name}` | {figure} | {title} | {why} |");
            assert!(docs.contains(&row), "docs/lab.md lacks this row:\n{row}");
            continue;
        }
        let sources: Vec<&str> =
            one["provenance"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
        let takes = |key: &str| match one[key].as_f64().unwrap() {
            seconds if seconds < 120.0 => format!("{seconds} s"),
            seconds => format!("{} min", (seconds / 60.0).ceil()),
        };
        let (name, figure, sources) = (text("name"), text("figure"), sources.join(", "));
        let (full, quick) = (takes("seconds"), takes("quick_seconds"));
        let row = format!("| `{name}` | {figure} | {sources} | {full} | {quick} |");
        assert!(docs.contains(&row), "docs/lab.md lacks this row:\n{row}");
    }
}

#[test]
fn an_unknown_name_is_refused_with_near_ones_and_nothing_runs() {
    let out = tempfile::tempdir().unwrap();
    let place = out.path().to_str().unwrap();
    let answer = run(&["run", "knapsack-table4", "knapsack-fig88", "--out", place]);
    assert_eq!(answer.status.code(), Some(2));
    let said = String::from_utf8(answer.stderr).unwrap();
    assert!(said.contains("\"knapsack-fig88\"; did you mean knapsack-fig8"), "{said}");
    assert!(names(out.path()).is_empty());
}

#[test]
fn a_pool_that_cannot_run_is_refused_at_once_and_nothing_is_kept_of_the_run() {
    let (site, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(site.path().join("precious"), "x").unwrap();
    let [site, place] = [&site, &out].map(|dir| dir.path().to_str().unwrap());
    let pools = ["--pool", "emulated,wordpress", "--site", site, "--out", place];
    let answer = run(&[&["run", "haproxy-cpu"][..], &pools].concat());
    let said = String::from_utf8(answer.stderr).unwrap();
    assert_eq!(answer.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("{site}: no site is here")), "{said}");
    assert!(names(out.path()).is_empty(), "the corrected command is not another run's");
}

#[test]
fn a_report_of_nothing_is_a_failure() {
    let out = tempfile::tempdir().unwrap();
    let answer = run(&["report", "--from", out.path().to_str().unwrap()]);
    assert_eq!(answer.status.code(), Some(1));
    assert!(names(out.path()).is_empty());
}

#[test]
fn an_interrupt_leaves_only_whole_results() {
    let out = tempfile::tempdir().unwrap();
    let place = out.path().to_str().unwrap();
    let mut child = lab(&["run", "knapsack-fig8", "knapsack-table4", "--out", place])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The first result is there; the next experiment is under way, and takes seconds.
    let end = Instant::now() + Duration::from_secs(120);
    while names(out.path()).iter().all(|name| name.starts_with('.')) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    interrupt(&child);
    let status = child.wait().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(!names(out.path()).is_empty());
    for name in names(out.path()) {
        assert!(out.path().join(&name).join("result.json").is_file(), "{name}");
        assert!(out.path().join(&name).join("manifest.json").is_file(), "{name}");
    }
}

fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}
