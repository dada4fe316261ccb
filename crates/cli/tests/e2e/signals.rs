//! Signals that come before anything has been read.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::rig::{Daemon, Rig, arg, signal, until};

/// A configuration that comes through a pipe: whoever opens it waits for a writer.
fn pipe_at(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().expect("run mkfifo");
    assert!(made.success());
}

#[test]
fn a_sighup_before_the_configuration_is_read_reloads_and_does_not_kill() {
    let mut rig = Rig::new("roundrobin", &[1.0, 1.0]);
    let path = rig.path("pipe.yaml");
    pipe_at(&path);
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let log = File::create(rig.path("log")).expect("a log");
    command.args(["run", "--config", arg(&path)]).stdin(Stdio::null()).stderr(log);
    let mut daemon = Daemon::start_as_it_is(&mut command, rig.api, &rig.path("log"));
    // Waits until the daemon has opened it, which now waits for what is in it.
    let mut writer = File::options().write(true).open(&path).expect("a pipe with a reader");
    daemon.signal("HUP");
    let first = rig.config();
    // What a reload finds.
    rig.configured.pop();
    fs::write(rig.path("new"), rig.config()).expect("written");
    fs::rename(rig.path("new"), &path).expect("renamed");
    writer.write_all(first.as_bytes()).expect("read by the daemon");
    drop(writer);
    daemon.wait_until_it_answers();
    until("the signal to be obeyed", || {
        daemon.weights()["backends"].as_array().is_some_and(|all| all.len() == 1)
    });
    daemon.until_log_has("SIGHUP");
}

#[test]
fn a_sighup_before_the_configuration_is_read_does_not_kill_layer_4_daemons() {
    for command in [&["l4", "run"][..], &["l4", "agent", "run"]] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("pipe.yaml");
        pipe_at(&path);
        let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(command)
            .args(["--config", arg(&path)])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start plimsoll");
        let mut writer = File::options().write(true).open(&path).expect("a pipe with a reader");
        signal(child.id(), "HUP");
        // It may have died of it.
        let _ = writer.write_all(b"l4: nothing\n");
        drop(writer);
        let status = child.wait().expect("wait for plimsoll");
        assert_eq!((status.signal(), status.code()), (None, Some(2)), "{command:?}: {status}");
    }
}

#[test]
fn a_hangup_still_ends_a_command_that_is_no_daemon() {
    let rig = Rig::new("roundrobin", &[1.0]);
    let daemon = rig.daemon();
    // Whoever runs the tests may have SIGHUP ignored, as `nohup` does, and children inherit that.
    let mut child: Child = Command::new("env")
        .args(["--default-signal=HUP", env!("CARGO_BIN_EXE_plimsoll")])
        .args(["events", "--follow", "--api", daemon.api()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("start plimsoll");
    let mut ended = None;
    until("it to end", || {
        // Again: the first may have come before `env` took the default.
        signal(child.id(), "HUP");
        ended = child.try_wait().expect("wait for plimsoll");
        ended.is_some()
    });
    assert_eq!(ended.and_then(|status| status.signal()), Some(1));
}
