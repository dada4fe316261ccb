//! Whole runs of `plimsoll-lab real`: every lane and event is reported, and nothing is left behind.

mod program;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use plimsoll_lanes::haproxy_version;
use plimsoll_real::cgroup::{CgroupError, Cgroups};

/// Whether this machine can run lanes; says why not.
fn is_possible() -> bool {
    let why = match Cgroups::open() {
        Err(why @ (CgroupError::NoController | CgroupError::NotRoot(_))) => why.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) if haproxy_version().is_none() => "no haproxy".to_owned(),
        Ok(_) => return true,
    };
    eprintln!("skipped: {why}");
    false
}

fn real(arguments: &[&str]) -> Command {
    program::build_plimsoll();
    static SERVER: OnceLock<()> = OnceLock::new();
    SERVER.get_or_init(|| program::build("plimsoll-real", "plimsoll-real-server"));
    let mut command = Command::new(program::LAB);
    command.arg("real").args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Directories of this process's control groups that are there.
fn groups_of(process: u32) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let dirs = mounts.lines().filter(|line| line.contains("cgroup"));
    let prefix = format!("plimsoll-real-{process}-");
    let of = |line: &str| {
        let entries = fs::read_dir(line.split(' ').nth(1).unwrap()).into_iter().flatten().flatten();
        let own = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&prefix);
        entries.filter(own).map(|entry| entry.path()).collect::<Vec<_>>()
    };
    dirs.flat_map(of).collect()
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_run_that_is_asked_or_made_to_end_leaves_no_group() {
    if !is_possible() {
        return;
    }
    for signal in ["TERM", "KILL"] {
        let mut command = real(&["--lanes", "roundrobin-equal", "--calibrate", "600s"]);
        let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("servers in their groups", || {
            let server = |dir: &PathBuf| {
                let procs = dir.join("calibration/s6/server/cgroup.procs");
                fs::read_to_string(procs).is_ok_and(|text| !text.trim().is_empty())
            };
            groups_of(run.id()).iter().any(server)
        });
        let kill = ["-s", signal, &run.id().to_string()].map(str::to_owned);
        assert!(Command::new("kill").args(kill).status().unwrap().success());
        let status = run.wait().unwrap();
        assert_eq!(status.code(), (signal == "TERM").then_some(130), "{status}");
        let process = run.id();
        wait_for("no group is left", || groups_of(process).is_empty());
    }
}

#[test]
fn a_short_run_reports_every_lane_and_event() {
    if !is_possible() {
        return;
    }
    let output = real(&[
        "--lanes",
        "roundrobin-oracle,roundrobin-equal",
        "--loads",
        "0.3",
        "--calibrate",
        "2s",
        "--learn",
        "2s",
        "--measure",
        "4s",
        "--event",
        "neighbour@1s+1s",
        "--event",
        "pause@3s+200ms",
        "--event",
        "kill@4s+500ms:s2",
        "--event",
        "errors@5s+500ms:s3",
        "-o",
        "json",
    ])
    .output()
    .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2);
    let learned = |cell: &serde_json::Value| cell["learning"]["requests"].as_u64().unwrap();
    assert!(learned(&cells[0]) > 0);
    assert_eq!(learned(&cells[0]), learned(&cells[1]));
    assert_eq!(cells[1]["lane"], "roundrobin-equal");
    assert!(cells[1]["ratio"]["value"].as_f64().unwrap() > 0.0);
    assert_eq!(report["servers"].as_array().unwrap().len(), 6);
    for server in report["servers"].as_array().unwrap() {
        let (cores, capacity) =
            (server["cores"].as_f64().unwrap(), server["capacity_rps"].as_f64().unwrap());
        // Each request takes 5.5 ms of its quota, and something for HTTP.
        let ideal = cores / 0.0055;
        assert!(capacity > ideal * 0.1 && capacity < ideal * 2.0, "{server}");
    }
    let events = report["events"].as_array().unwrap();
    for name in ["neighbour@1s+1s", "pause@3s+200ms", "kill@4s+500ms:s2", "errors@5s+500ms:s3"] {
        assert!(events.iter().any(|during| during["event"] == name), "{name}");
    }
}
