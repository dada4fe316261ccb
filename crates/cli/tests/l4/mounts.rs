//! Pins in a mount namespace of the process's own would go with it.

use std::process::{Command, Output};

use crate::daemon::Daemon;
use crate::rig::privileged;
use crate::rig::service::Service;

/// What a command says that has mounts of its own, made by a script.
fn among_own_mounts(service: &Service, script: &str) -> Output {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    service.net.output("lb", &mut command).expect("runs")
}

#[test]
fn pins_in_a_private_mount_namespace_are_refused_and_found_by_doctor() {
    if !privileged() {
        return;
    }
    let service = Service::new(1, 2, false);
    let daemon = Daemon::of(&service, &["s1"]);
    let (binary, file) = (daemon.binary.display(), daemon.file());
    // There may be one on another.
    let unmounted = "while umount -l /sys/fs/bpf 2>/dev/null; do :; done";
    let run = format!("{unmounted}; exec {binary} l4 run --config {}", file.display());
    let refused = among_own_mounts(&service, &run);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("/sys/fs/bpf: in a mount namespace of this process's own"), "{text}");

    let mounted = format!("{unmounted}; mount -t bpf bpf /sys/fs/bpf");
    let doctor = format!("{mounted}; exec {binary} doctor --config {} -o json", file.display());
    let told = among_own_mounts(&service, &doctor);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let findings = told["findings"].as_array().expect("a list");
    let bpffs = findings.iter().find(|one| one["check"] == "bpffs").expect("looked at");
    // Where the machine's first process may not be looked at, it cannot be known for sure.
    assert_ne!(bpffs["level"], "ok", "{bpffs}");
}
