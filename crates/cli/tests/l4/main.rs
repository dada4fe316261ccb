//! `plimsoll l4` end to end: the daemon in a namespace, real connections through it.

#[path = "../../../io/l4/tests/rig/mod.rs"]
mod rig;

mod daemon;
mod keys;
mod macs;
mod metrics;
mod mounts;
mod moves;
mod replies;
mod restart;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use daemon::{Daemon, PATIENCE};
use rig::privileged;
use rig::service::{Service, all_stay};

fn total(status: &serde_json::Value, field: &str) -> u64 {
    let all = status["vips"][0]["backends"].as_array().expect("a list");
    all.iter().map(|one| one[field].as_u64().expect("a number")).sum()
}

#[test]
fn a_daemon_reloads_is_killed_and_starts_again_without_breaking_connections() {
    if !privileged() {
        return;
    }
    let service = Service::new(3, 2, false);
    let mut daemon = Daemon::started(&service, &["s1", "s2"]);
    let mut connections = service.opened(20);
    assert!(connections.iter().all(|one| one.server != "s3"));

    // A configuration that is wrong changes nothing and is reported with its place.
    daemon.change("round_robin", "round_about");
    daemon.signal(rustix::process::Signal::HUP);
    daemon.wait_for("l4.yaml:10:15: l4.vips[0].policy: expected round_robin or");
    daemon.wait_for("the configuration in force stays");
    all_stay(&mut connections, "after a wrong configuration");

    // A change of the file is taken up without a signal.
    daemon.name(&service, &["s2", "s3"]);
    daemon.wait_for("configuration reloaded");
    daemon.settle();
    let more = service.opened(10);
    assert!(more.iter().all(|one| one.server != "s1"));
    connections.extend(more);
    all_stay(&mut connections, "after a reload");

    let before = daemon.status();
    assert_eq!(total(&before, "new_connections"), 30);
    daemon.kill();
    all_stay(&mut connections, "without a daemon");
    connections.extend(service.opened(4));
    daemon.start();
    all_stay(&mut connections, "after a restart");
    let after = daemon.status();
    assert_eq!(total(&after, "new_connections"), 34);
    assert!(total(&after, "packets_in") > total(&before, "packets_in"));
    for (reason, count) in after["vips"][0]["fallbacks"].as_object().expect("a mapping") {
        assert_eq!(count.as_u64(), Some(0), "{reason}");
    }
}

/// Whether the daemon takes up a change of its file, and ends as it should, with this as its log.
fn follows_its_file_writing_to(log: impl Into<std::process::Stdio>) {
    let service = Service::new(2, 2, false);
    let mut daemon = Daemon::of(&service, &["s1"]);
    daemon.start_writing_to(log);
    daemon.wait_until_pinned();
    daemon.name(&service, &["s1", "s2"]);
    daemon.signal(rustix::process::Signal::HUP);
    let began = Instant::now();
    while daemon.status()["vips"][0]["backends"].as_array().map(Vec::len) != Some(2) {
        assert!(began.elapsed() < PATIENCE, "{:#}", daemon.status());
        std::thread::sleep(Duration::from_millis(50));
    }
    daemon.signal(rustix::process::Signal::TERM);
    let ended = daemon.hand_over().wait().expect("ended");
    assert!(ended.success(), "{ended}");
}

#[test]
fn the_kernels_tables_follow_the_file_while_the_log_is_not_read() {
    if !privileged() {
        return;
    }
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let room = rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("a small pipe");
    writer.write_all(&vec![b'.'; room]).expect("filled");
    follows_its_file_writing_to(writer);
    drop(reader);
}

#[test]
fn the_kernels_tables_follow_the_file_though_the_log_cannot_be_written() {
    if !privileged() {
        return;
    }
    let (reader, closed) = std::io::pipe().expect("a pipe");
    drop(reader);
    follows_its_file_writing_to(closed);
    let full = fs::File::options().write(true).open("/dev/full").expect("a full disk");
    follows_its_file_writing_to(full);
}

#[test]
fn without_rights_it_says_which_are_missing() {
    if !privileged() {
        return;
    }
    let service = Service::new(1, 2, false);
    let daemon = Daemon::of(&service, &["s1"]);
    // Where nobody may look, and what nobody may run.
    let dir = daemon.dir.path();
    let binary = dir.join("plimsoll");
    fs::copy(&daemon.binary, &binary).expect("copied");
    for path in [dir, &binary] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
    }
    let mut command = Command::new(&binary);
    command.args(["l4", "run", "--config"]).arg(daemon.file()).uid(65534).gid(65534);
    let output = command.output().expect("runs");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("missing: CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON"), "{said}");
}

#[test]
fn where_asks_the_program_and_counts_nothing() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let daemon = Daemon::started(&service, &["s1", "s2"]);
    let before = daemon.status();
    let ask = |more: &[&str]| {
        let mut arguments = vec!["where", "--vip", "10.0.9.9:80", "--client", "10.0.1.2:40000"];
        arguments.extend(more);
        daemon.json(&arguments)
    };
    let first = ask(&[]);
    assert_eq!((&first["verdict"], &first["service"]), (&"redirect".into(), &"shop".into()));
    assert_eq!(ask(&["--no-timestamps"]), ask(&["--no-timestamps"]), "by hash: always the same");
    assert_eq!(daemon.status(), before, "nothing was counted");
    let mut arguments = vec!["where", "--vip", "10.0.9.9:81", "--client", "10.0.1.2:40000"];
    assert_eq!(daemon.json(&arguments)["verdict"], "drop", "no service at this port");
    arguments[2] = "10.0.9.8:80";
    assert_eq!(daemon.json(&arguments)["verdict"], "pass", "none of ours");
    arguments[2] = "[fd00::1]:80";
    let output = daemon.output(&arguments);
    assert!(String::from_utf8_lossy(&output.stderr).contains("one family"));
    let detach = daemon.output(&["detach"]);
    assert!(detach.status.success());
    let output = daemon.output(&["status"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no balancer is pinned here"));
}

#[test]
fn a_daemon_that_is_replaced_says_so_and_leaves() {
    if !privileged() {
        return;
    }
    let service = Service::new(2, 2, false);
    let mut daemon = Daemon::started(&service, &["s1", "s2"]);
    let mut connections = service.opened(6);
    let mut older = daemon.hand_over();
    // The newer one writes a log of its own.
    let log = daemon.dir.path().join("log");
    fs::rename(&log, daemon.dir.path().join("older")).expect("moved");
    daemon.start();
    let began = Instant::now();
    while older.try_wait().expect("asked").is_none() && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    // By itself, or else it is ended here.
    older.kill().expect("killed");
    let ended = older.wait().expect("ended");
    assert!(ended.success(), "nobody is to start it again: {ended}");
    let said = fs::read_to_string(daemon.dir.path().join("older")).expect("read");
    assert!(said.contains("a newer daemon has taken over"), "{said}");
    all_stay(&mut connections, "with the newer one");
    daemon.settle();
    assert!(!daemon.log().contains("has taken over"), "{}", daemon.log());
}

#[test]
fn a_configuration_is_checked_without_starting_anything() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("l4.yaml");
    let good = format!(
        "l4:\n  interfaces: [ {{ name: nowhere0 }} ]\n  pin_dir: {0}/pins\n  cookie: {{ key_file: {0}/key \
         }}\n  vips:\n    - {{ name: shop, address: \"10.0.9.9:80\", backends: [ {{ name: s1, address: \
         10.0.2.2 }} ] }}\n",
        dir.path().display()
    );
    let check = |text: &str| {
        fs::write(&file, text).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["check", "--config"]).arg(&file);
        let output = command.output().expect("runs");
        let text =
            [output.stdout, output.stderr].map(|told| String::from_utf8_lossy(&told).into_owned());
        (output.status.code(), text.concat())
    };
    let (code, text) = check(&good);
    assert_eq!(
        (code, text.ends_with("l4.yaml: ok (layer 4: 1 service, 1 server)\n")),
        (Some(0), true),
        "{text}"
    );
    let (code, text) = check(&good.replace("10.0.9.9", "0.0.0.0"));
    assert_eq!(code, Some(2));
    assert!(text.contains("l4.vips[0].address: expected an address that one machine"), "{text}");
    assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 1, "nothing else was made");
}
