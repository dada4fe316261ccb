//! `plimsoll-lab demo-l4` as people run it: Plimsoll breaks no connection, hashing does, and nothing stays
//! behind. What it measures is not judged here.

mod program;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_testbed::net::requirements;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use program::{LAB, build_plimsoll};

/// Far longer than anything waited for here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether it can run here; says so when not.
fn possible() -> bool {
    let met = requirements();
    if let Err(why) = &met {
        eprintln!("skipped: {why}");
    }
    met.is_ok()
}

/// A demonstration whose files, and so whose processes, can be distinguished from all others.
fn demo(tmp: &TempDir, arguments: &[&str]) -> Child {
    build_plimsoll();
    let mut command = Command::new(LAB);
    command.arg("demo-l4").args(arguments).env("TMPDIR", tmp.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Processes whose command line names this directory: nginx, daemons, guards.
fn processes(dir: &Path) -> usize {
    let names = |process: &fs::DirEntry| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&*dir.to_string_lossy())
    };
    fs::read_dir("/proc").unwrap().flatten().filter(names).count()
}

/// Namespaces and pins of a process.
fn networks(id: u32) -> usize {
    let prefix = format!("plt{id}-");
    let all = ["/run/netns", "/sys/fs/bpf"].map(|place| fs::read_dir(place).into_iter().flatten());
    let of_it = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&prefix);
    all.into_iter().flatten().flatten().filter(of_it).count()
}

fn nothing_is_left(tmp: &TempDir, id: u32) {
    let end = Instant::now() + PATIENCE;
    let files = || fs::read_dir(tmp.path()).unwrap().count();
    while processes(tmp.path()) + networks(id) + files() > 0 {
        let left = (processes(tmp.path()), networks(id), files());
        assert!(Instant::now() < end, "processes, networks and files are left: {left:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// One whose clients are at work.
fn running(tmp: &TempDir) -> Child {
    let mut child = demo(tmp, &["--seconds", "60"]);
    let stderr = BufReader::new(child.stderr.as_mut().unwrap());
    let said: Vec<String> = stderr
        .lines()
        .map_while(Result::ok)
        .scan(false, |begun, line| {
            let go = !*begun;
            *begun = line.contains("connections begin");
            go.then_some(line)
        })
        .collect();
    assert!(said.iter().any(|line| line.contains("connections begin")), "{said:?}");
    assert!(processes(tmp.path()) > 0 && networks(child.id()) > 0);
    child
}

#[test]
fn plimsoll_breaks_nothing_where_hashing_does() {
    if !possible() {
        return;
    }
    let (tmp, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let svg = out.path().join("broken.svg");
    let child = demo(&tmp, &["--seconds", "30", "-o", "json", "--svg", &svg.to_string_lossy()]);
    let id = child.id();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
    assert!(said.contains("connections begin; connections broken: Plimsoll 0 of"), "{said}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    for lane in ["plimsoll", "consistent_hash", "hash"] {
        let lane = &json[lane];
        for key in ["connections", "requests", "packets"] {
            assert!(lane[key].as_u64() > Some(50), "{key}: {json:#}");
        }
        for key in ["download_mb_per_s", "latency_p99_ms", "ns_per_packet"] {
            assert!(lane[key].as_f64() > Some(0.0), "{key}: {json:#}");
        }
    }
    assert_eq!(json["plimsoll"]["broken"], 0, "{json:#}");
    assert_eq!(json["plimsoll"]["fallbacks"], 0, "{json:#}");
    // All eight have served, those that left and those that came.
    assert_eq!(json["plimsoll"]["by_server"].as_object().unwrap().len(), 8, "{json:#}");
    for lane in ["consistent_hash", "hash"] {
        assert!(json[lane]["broken"].as_u64() > Some(0), "{json:#}");
    }
    assert_eq!(json["changes"].as_array().unwrap().len(), 10);
    assert!(fs::read_to_string(svg).unwrap().contains("Plimsoll (measured)"));
    nothing_is_left(&tmp, id);
}

#[test]
fn an_interrupt_ends_everything() {
    if !possible() {
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let mut child = running(&tmp);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    nothing_is_left(&tmp, child.id());
}

#[test]
fn nothing_outlives_it_even_when_it_is_killed() {
    if !possible() {
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let mut child = running(&tmp);
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_left(&tmp, child.id());
}
