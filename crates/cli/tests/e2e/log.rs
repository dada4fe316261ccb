//! The log: a daemon steers whether or not anybody can read what it says, and what others say cannot pass
//! for its own words.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use plimsoll_testbed::Mode;
use serde_json::Value;

use crate::rig::relay::{Meddle, Relay};
use crate::rig::{Daemon, Rig, arg, out, until};

/// Weights follow what happens, readiness stays, and lines that were dropped are counted.
fn steers(rig: &Rig, daemon: &mut Daemon) {
    until("the balancer to be read", || daemon.backend("s2")["programmed"] == 100);
    for round in 0..2 {
        rig.set_mode("s2", Mode::Refuse);
        until(&format!("its weight to be 0, round {round}"), || rig.weight("s2") == 0);
        rig.set_mode("s2", Mode::Normal);
        until(&format!("its weight to be more, round {round}"), || rig.weight("s2") > 0);
    }
    assert_eq!(daemon.http("/readyz").0, 200);
    assert!(!daemon.has_event("warning", "the service failed"));
    assert!(daemon.is_running());
}

fn lost_lines(daemon: &Daemon) -> f64 {
    let page = daemon.http("/metrics").1;
    let line = page.lines().find_map(|line| line.strip_prefix("plimsoll_log_lines_lost_total "));
    line.expect("the metric").parse().expect("a number")
}

#[test]
fn steering_survives_a_closed_log_pipe() {
    let rig = Rig::new("roundrobin", &[1.0, 1.0]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut daemon = rig.daemon_that_writes_to(&[], writer.try_clone().expect("a copy"), writer);
    // As `2>&1 | head -1` does.
    let mut first = String::new();
    let mut reader = BufReader::new(reader);
    reader.read_line(&mut first).expect("a line");
    assert!(first.contains("started"), "{first}");
    drop(reader);
    steers(&rig, &mut daemon);
    until("lost lines to be counted", || lost_lines(&daemon) > 0.0);
    daemon.signal("TERM");
    assert_eq!(daemon.end().code(), Some(0));
}

#[test]
fn steering_survives_a_full_disk_under_the_log() {
    let rig = Rig::new("roundrobin", &[1.0, 1.0]);
    let full = || File::options().write(true).open("/dev/full").expect("a full disk");
    let mut daemon = rig.daemon_that_writes_to(&["--log-format", "json"], full(), full());
    steers(&rig, &mut daemon);
    until("lost lines to be counted", || lost_lines(&daemon) > 0.0);
}

#[test]
fn steering_survives_closed_output_descriptors() {
    let rig = Rig::new("roundrobin", &[1.0, 1.0]);
    let mut command = Command::new("sh");
    let script = "exec \"$0\" run --config \"$1\" >&- 2>&-";
    command.args(["-c", script, env!("CARGO_BIN_EXE_plimsoll"), arg(&rig.write_config())]);
    let mut daemon = Daemon::start_as_it_is(&mut command, rig.api, &rig.path("log"));
    daemon.wait_until_it_answers();
    steers(&rig, &mut daemon);
}

#[test]
fn steering_survives_a_log_pipe_without_a_reader() {
    const PAGE: usize = 4096;
    let rig = Rig::new("roundrobin", &[1.0, 1.0]);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    // Full from the start: the first line would wait for a reader for ever.
    let room = rustix::pipe::fcntl_setpipe_size(&writer, PAGE).expect("a small pipe");
    writer.write_all(&vec![b'.'; room]).expect("filled");
    let mut daemon = rig.daemon_that_writes_to(&[], writer.try_clone().expect("a copy"), writer);
    steers(&rig, &mut daemon);
    daemon.signal("TERM");
    assert_eq!(daemon.end().code(), Some(0), "nor does the end wait for a reader");
    drop(reader);
}

#[test]
fn a_balancers_answer_cannot_forge_log_lines() {
    for format in ["text", "json"] {
        let mut rig = Rig::new("roundrobin", &[1.0, 1.0]);
        // What HAProxy answers then has many lines.
        let relay = Relay::start(&rig, Meddle::Replace("no\u{9b}such"));
        rig.socket = Some(relay.path.clone());
        let daemon = rig.daemon_with(&["--log-format", format]);
        rig.set_mode("s2", Mode::Refuse);
        until("the refusal to be logged", || daemon.log().contains("was not programmed"));
        let log = daemon.log();
        for line in log.lines() {
            let is_ours = match format {
                "json" => serde_json::from_str::<Value>(line).is_ok_and(|v| v["level"].is_string()),
                _ => ["INFO ", "WARN ", "ERROR "].iter().any(|level| line.contains(level)),
            };
            assert!(is_ours, "{format}: no line of ours: {line:?}\nin\n{log}");
        }
        let stray = log.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(stray, None, "{format}: {log:?}");
        // Nor the tables.
        let output = crate::rig::plimsoll(&["events", "--api", daemon.api()]);
        let table = out(&output);
        for line in table.lines().skip(1) {
            assert!(line.starts_with("20") && line.contains("  shop  "), "{line:?} in\n{table}");
        }
    }
}

#[test]
fn commands_survive_output_that_cannot_be_written() {
    let rig = Rig::new("roundrobin", &[1.0, 1.0]);
    let daemon = rig.daemon();
    let config = rig.path("plimsoll.yaml");
    let broken = rig.path("broken.yaml");
    std::fs::write(&broken, "services: []\n").expect("written");
    let problem = rig.path("problem.json");
    std::fs::write(
        &problem,
        r#"{"target": 1, "backends": [{"name": "a", "menu": [{"weight": 1, "cost": 1.5}]}]}"#,
    )
    .expect("written");
    let (config, broken, problem) = (arg(&config), arg(&broken), arg(&problem));
    let api = daemon.api();
    let commands: [(&[&str], i32); 12] = [
        (&["status", "--api", api], 0),
        (&["weights", "--api", api, "-o", "json"], 0),
        (&["curves", "--api", api], 0),
        (&["plan", "--api", api], 0),
        (&["events", "--api", api], 0),
        (&["check", "--config", config], 0),
        (&["solve", problem], 0),
        // What is said on standard error.
        (&["status", "--api", "http://127.0.0.1:1"], 4),
        (&["check", "--config", broken], 2),
        (&["run", "--config", broken], 2),
        (&["doctor", "--config", broken], 2),
        (&["l4", "run", "--config", broken], 2),
    ];
    for (arguments, code) in commands {
        let run = |stdout: Stdio, stderr: Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
            command.args(arguments).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
            command.status().expect("run plimsoll").code()
        };
        let closed = || std::io::pipe().expect("a pipe").1.into();
        let full = || File::options().write(true).open("/dev/full").expect("a full disk").into();
        assert_eq!(run(closed(), closed()), Some(code), "{arguments:?} into a closed pipe");
        let written = run(full(), full());
        assert!(
            written == Some(code) || written == Some(1),
            "{arguments:?}: {written:?} on a full disk"
        );
    }
}
