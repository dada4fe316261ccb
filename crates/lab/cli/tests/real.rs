//! Whole runs of `plimsoll-lab real`: every lane and event is reported, and nothing is left behind.

mod program;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use plimsoll_lanes::haproxy_version;
use plimsoll_real::Make;
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
    for make in [Make::Own, Make::Php] {
        if let (Make::Php, Err(why)) = (make, make.find()) {
            eprintln!("skipped: {why}");
            continue;
        }
        for signal in ["TERM", "KILL"] {
            let lanes = ["--lanes", "roundrobin-equal", "--calibrate", "600s"];
            let mut command = real(&lanes);
            command.args(["--make", make.name(), "--threads", "2"]);
            let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let process = run.id();
            // A server of the lab's own is one process; nginx and php-fpm are two masters with theirs.
            let least = if make == Make::Php { 5 } else { 1 };
            wait_for("servers in their groups", || {
                groups_of(process).iter().any(|dir| {
                    let procs = dir.join("calibration/s6/server/cgroup.procs");
                    fs::read_to_string(procs).is_ok_and(|text| text.lines().count() >= least)
                })
            });
            let kill = ["-s", signal, &process.to_string()].map(str::to_owned);
            assert!(Command::new("kill").args(kill).status().unwrap().success());
            let status = run.wait().unwrap();
            assert_eq!(status.code(), (signal == "TERM").then_some(130), "{status}");
            // The kernel lets go of groups without processes alone.
            wait_for("no group is left", || groups_of(process).is_empty());
        }
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
        "--event",
        "unhealthy@1s+500ms:s4",
        "--event",
        "hang@2s+1s:largest",
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
        // How much it is below that is the machine's other work.
        assert!(capacity > 0.0 && capacity < ideal * 2.0, "{server}");
    }
    let events = report["events"].as_array().unwrap();
    let during = |event: &str| -> (u64, u64) {
        let own = events.iter().filter(|one| one["event"] == event && one["when"] == "during");
        let count = |one: &serde_json::Value, what: &str| one["measured"][what].as_u64().unwrap();
        let counts = own.map(|one| (count(one, "requests"), count(one, "errors")));
        counts.reduce(|a, b| (a.0 + b.0, a.1 + b.1)).expect("a report of the event")
    };
    for name in [
        "neighbour@1s+1s",
        "unhealthy@1s+500ms:s4",
        "pause@3s+200ms",
        "kill@4s+500ms:s2",
        "errors@5s+500ms:s3",
    ] {
        during(name);
    }
    // Both lanes send some of their requests to the largest, which answers none of them.
    let (requests, errors) = during("hang@2s+1s:largest");
    assert!(errors > 0 && errors < requests, "{errors} of {requests}");
}

#[test]
fn other_makes_are_measured_alike() {
    if !is_possible() {
        return;
    }
    for make in [Make::Node, Make::Php] {
        if let Err(why) = make.find() {
            eprintln!("skipped: {why}");
            continue;
        }
        let mut command = real(&["--lanes", "roundrobin-equal", "--loads", "0.3", "-o", "json"]);
        command.args(["--calibrate", "4s", "--learn", "1s", "--measure", "2s"]);
        let run = command.args(["--make", make.name()]).spawn().unwrap();
        let process = run.id();
        let output = run.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["make"], make.name());
        for server in report["servers"].as_array().unwrap() {
            let number = |what: &str| server[what].as_f64().unwrap();
            let ideal = number("cores") / 0.0055;
            let capacity = number("capacity_rps");
            assert!(capacity > ideal * 0.1 && capacity < ideal * 2.0, "{server}");
        }
        let cell = &report["cells"][0];
        assert!(cell["learning"]["requests"].as_u64().unwrap() > 0, "{cell}");
        assert_eq!(cell["learning"]["errors"], 0, "{cell}");
        assert_eq!(groups_of(process), [""; 0].map(PathBuf::from));
    }
}
