//! Whole runs: lanes with the same requests, and nothing left behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_lanes::{Family, Front, FrontSpec, Server, haproxy_version};
use plimsoll_real::cgroup::{CgroupError, Cgroups};
use plimsoll_testbed::Service;

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

/// The command, as cargo builds it beside this test.
fn real(arguments: &[&str]) -> Command {
    let server = Path::new(env!("CARGO_BIN_EXE_plimsoll-real-server"));
    let mut command = Command::new(server.with_file_name("examples").join("real"));
    command.args(arguments).args(["--plimsoll", server.to_str().unwrap()]);
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
fn lanes_have_the_same_arrivals_and_every_request_the_same_work() {
    if !is_possible() {
        return;
    }
    let family = Family::start(Path::new("plimsoll")).unwrap();
    let seen = ["one", "two"].map(|name| {
        // A server that answers nothing and keeps what was asked.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server { name: "s1".into(), address, weight: 1 };
        let spec = FrontSpec {
            name: name.into(),
            balance: "roundrobin",
            servers: vec![server],
            is_steered: false,
            exploration: None,
            rate_rps: 50.0,
            work: Some(Service::exponential(Duration::from_micros(5500))),
            seed: 7,
        };
        let mut front = Front::start(&family, spec).unwrap();
        let reader = std::thread::spawn(move || {
            let mut asked = BTreeMap::new();
            for _ in 0..20 {
                let (mut stream, _) = listener.accept().unwrap();
                let target = first_line(&mut stream);
                *asked.entry(target).or_insert(0_u32) += 1;
                let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                std::io::Write::write_all(&mut stream, answer).unwrap();
            }
            asked
        });
        front.open(&family).unwrap();
        let asked = reader.join().unwrap();
        // What is still asked is refused: nobody listens any more.
        let (_, report) = front.finish().unwrap();
        let starts: Vec<u64> = report.records.iter().take(20).map(|r| r.start_ns).collect();
        (asked, starts)
    });
    assert_eq!(seen[0].1.len(), 20);
    assert_eq!(seen[0], seen[1]);
}

fn first_line(stream: &mut std::net::TcpStream) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        std::io::Read::read_exact(stream, &mut byte).unwrap();
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap().lines().next().unwrap().to_owned()
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
        assert!(capacity > ideal * 0.3 && capacity < ideal * 2.0, "{server}");
    }
    let events = report["events"].as_array().unwrap();
    for name in ["neighbour@1s+1s", "pause@3s+200ms", "kill@4s+500ms:s2", "errors@5s+500ms:s3"] {
        assert!(events.iter().any(|during| during["event"] == name), "{name}");
    }
}
