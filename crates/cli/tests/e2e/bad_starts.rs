//! What cannot start says so in one clear line, with the exit code that was promised.

use std::net::TcpListener;

use crate::rig::{Rig, arg, err, free_address, out, plimsoll};

#[test]
fn a_wrong_configuration_exits_2_with_every_problem_and_its_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("f.yaml");
    std::fs::write(&file, "services: []\nextra: 1\n").expect("written");
    for command in ["check", "run", "doctor", "status"] {
        let output = plimsoll(&[command, "--config", arg(&file)]);
        assert_eq!(output.status.code(), Some(2), "{command}: {output:?}");
        let lines = err(&output);
        assert_eq!(lines.lines().count(), 2, "{command}: {lines}");
        assert!(lines.lines().all(|line| line.starts_with(&format!("{}:", file.display()))));
    }
    let missing = plimsoll(&["run", "--config", arg(&dir.path().join("no.yaml"))]);
    assert_eq!(missing.status.code(), Some(2));
    assert_eq!(plimsoll(&["run"]).status.code(), Some(2), "no --config");
}

#[test]
fn without_a_daemon_commands_exit_4() {
    let api = format!("http://{}", free_address());
    for command in ["status", "weights", "curves", "plan", "events"] {
        let output = plimsoll(&[command, "--api", &api]);
        assert_eq!((output.status.code(), out(&output)), (Some(4), String::new()), "{command}");
        assert!(err(&output).contains("no daemon answers"), "{output:?}");
    }
}

#[test]
fn a_second_daemon_on_the_same_store_names_the_process_that_holds_it() {
    let mut rig = Rig::new("roundrobin", &[1.0]);
    let first = rig.daemon();
    let held_by = format!("process {}", first.pid());
    rig.api = free_address();
    let second = plimsoll(&["run", "--config", arg(&rig.write_config())]);
    assert_eq!(second.status.code(), Some(1));
    let line = err(&second);
    assert!(line.contains("is in use by") && line.contains(&held_by), "{line}");
    assert_eq!(first.http("/healthz").0, 200);
}

#[test]
fn a_store_that_is_none_is_left_alone() {
    let rig = Rig::new("roundrobin", &[1.0]);
    std::fs::write(rig.path("state"), "precious").expect("written");
    let output = plimsoll(&["run", "--config", arg(&rig.write_config())]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("is not a Plimsoll store"), "{output:?}");
    assert_eq!(std::fs::read(rig.path("state")).expect("readable"), b"precious");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let mut rig = Rig::new("roundrobin", &[1.0]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    rig.api = taken.local_addr().expect("its address");
    let output = plimsoll(&["run", "--config", arg(&rig.write_config())]);
    assert_eq!(output.status.code(), Some(1));
    let line = format!("cannot listen on {}", rig.api);
    assert!(err(&output).contains(&line), "{output:?}");
}
