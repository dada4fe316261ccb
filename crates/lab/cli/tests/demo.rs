//! `plimsoll-lab demo` as people run it: what it prints, and that nothing of it stays behind. What it
//! measures is not judged here.

mod program;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use program::{LAB, build_plimsoll};

/// Far longer than anything waited for here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A demonstration whose files, and so whose processes, can be distinguished from all others.
fn demo(tmp: &TempDir, arguments: &[&str]) -> Command {
    build_plimsoll();
    let mut command = Command::new(LAB);
    command.arg("demo").args(arguments).env("TMPDIR", tmp.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Processes whose command line names this directory: HAProxys, daemons and their guard.
fn processes(dir: &Path) -> usize {
    let names = |process: &fs::DirEntry| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&*dir.to_string_lossy())
    };
    fs::read_dir("/proc").unwrap().flatten().filter(names).count()
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn nothing_is_left(tmp: &TempDir) {
    wait_until("its processes to end", || processes(tmp.path()) == 0);
    wait_until("its files to go", || fs::read_dir(tmp.path()).unwrap().next().is_none());
}

/// A demonstration that has all its processes: five HAProxys, two daemons and the guard.
fn running(tmp: &TempDir) -> Child {
    let child = demo(tmp, &[]).spawn().unwrap();
    wait_until("its processes", || processes(tmp.path()) == 8);
    child
}

#[test]
fn it_ends_by_itself_with_every_number_it_promises() {
    let tmp = tempfile::tempdir().unwrap();
    let output = demo(&tmp, &["--seconds", "40", "-o", "json"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("emulated backends") && said.contains(" measuring; "), "{said}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    for lane in
        ["roundrobin", "leastconn", "plimsoll_roundrobin", "plimsoll_leastconn", "static_oracle"]
    {
        for key in ["mean_ms", "p50_ms", "p99_ms"] {
            assert!(json[lane][key].as_f64().is_some_and(|ms| ms > 0.0), "{lane} {key}: {json:#}");
        }
        assert!(json[lane]["errors"].is_u64() && json[lane]["requests"].as_u64() > Some(500));
    }
    assert!(json["limit"]["mean_ms"].as_f64().is_some_and(|ms| ms > 0.0));
    for lane in ["plimsoll_roundrobin", "plimsoll_leastconn", "static_oracle"] {
        let weights = json["weights"][lane].as_object().unwrap();
        assert!(weights.len() == 6 && weights.values().any(|w| w.as_u64() > Some(0)), "{json:#}");
    }
    let learning = &json["learning"];
    assert!(learning["seconds"].as_f64().is_some_and(|s| s > 0.0 && s < 40.0), "{learning}");
    assert!(learning["slow_requests"].is_u64() && learning["lost_requests"].is_u64());
    nothing_is_left(&tmp);
}

#[test]
fn an_interrupt_ends_everything() {
    let tmp = tempfile::tempdir().unwrap();
    let mut child = running(&tmp);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    nothing_is_left(&tmp);
}

#[test]
fn nothing_outlives_it_even_when_it_is_killed() {
    let tmp = tempfile::tempdir().unwrap();
    let mut child = running(&tmp);
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_left(&tmp);
}

#[test]
fn a_budget_too_small_to_measure_anything_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let output = demo(&tmp, &["--seconds", "5"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("40..=3600"));
}
