//! Control groups that really limit, and really go. They need root.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use plimsoll_real::cgroup::{CgroupError, Cgroups, Limits, Quota};

/// The run's groups; none, and a word why, where this machine does not let us have any.
fn cgroups() -> Option<Cgroups> {
    match Cgroups::open() {
        Ok(cgroups) => Some(cgroups),
        Err(why @ (CgroupError::NoController | CgroupError::NotRoot(_))) => {
            eprintln!("skipped: {why}");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

fn limits(cores: f64) -> Limits {
    let quota = Quota { cores, period: Duration::from_millis(100) };
    Limits { quota: Some(quota), cpus: None }
}

/// CPU time of a process of one thread.
fn cpu_time(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn ended(child: &mut Child) {
    let _ = child.kill();
    child.wait().unwrap();
}

#[test]
fn a_quota_limits_what_a_process_burns() {
    let Some(cgroups) = cgroups() else { return };
    let group = cgroups.group("small", &limits(0.05)).unwrap();
    let mut shell = group.command(Path::new("sh"));
    let mut child = shell.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
    // It is in its group before it does anything.
    let started = Instant::now();
    while group.processes().is_empty() {
        assert!(started.elapsed() < Duration::from_secs(30), "nobody in the group");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (from, before) = (Instant::now(), cpu_time(child.id()));
    std::thread::sleep(Duration::from_secs(2));
    let (burnt, wall) = (cpu_time(child.id()) - before, from.elapsed());
    ended(&mut child);
    // 5 % is meant; without a quota it would be the whole core, or what others leave of it.
    assert!(burnt < wall.mul_f64(0.1), "{burnt:?} in {wall:?}");
    assert!(!burnt.is_zero());
}

#[test]
fn a_group_within_shares_the_quota_of_its_parent() {
    let Some(cgroups) = cgroups() else { return };
    let parent = cgroups.group("server", &limits(0.1)).unwrap();
    let burners: Vec<_> = ["server/a", "server/b"]
        .map(|path| {
            let group = cgroups.group(path, &Limits::default()).unwrap();
            let mut shell = group.command(Path::new("sh"));
            shell.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            (shell.spawn().unwrap(), group)
        })
        .into();
    std::thread::sleep(Duration::from_millis(300));
    let from = Instant::now();
    let before: Vec<Duration> = burners.iter().map(|(child, _)| cpu_time(child.id())).collect();
    std::thread::sleep(Duration::from_secs(2));
    let after = burners.iter().map(|(child, _)| cpu_time(child.id()));
    let burnt: Duration = after.zip(&before).map(|(after, before)| after - *before).sum();
    let wall = from.elapsed();
    for (mut child, group) in burners {
        ended(&mut child);
        drop(group);
    }
    drop(parent);
    assert!(burnt < wall.mul_f64(0.2) && !burnt.is_zero(), "{burnt:?} in {wall:?}");
}

#[test]
fn a_cpu_set_is_where_a_process_runs() {
    let Some(cgroups) = cgroups() else { return };
    let limits = Limits { quota: None, cpus: Some("0".into()) };
    let group = match cgroups.group("pinned", &limits) {
        Err(why @ CgroupError::NoCpuset) => return eprintln!("skipped: {why}"),
        group => group.unwrap(),
    };
    let mut grep = group.command(Path::new("grep"));
    let output = grep.args(["Cpus_allowed_list", "/proc/self/status"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.trim(), "Cpus_allowed_list:\t0");
    let impossible = Limits { quota: None, cpus: Some("9999".into()) };
    assert!(cgroups.group("nowhere", &impossible).is_err());
}

#[test]
fn everything_is_removed_with_the_run_even_what_was_never_dropped() {
    let Some(cgroups) = cgroups() else { return };
    let group = cgroups.group("a/b", &limits(0.05)).unwrap();
    let mut sleeper = group.command(Path::new("sleep")).arg("600").spawn().unwrap();
    while group.processes().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let prefix = format!("plimsoll-real-{}-", std::process::id());
    let path = std::fs::read_to_string(format!("/proc/{}/cgroup", sleeper.id())).unwrap();
    let line = path.lines().find(|line| line.contains(&prefix)).unwrap();
    let name = line[line.find(&prefix).unwrap()..].split('/').next().unwrap().to_owned();
    std::mem::forget(group);
    drop(cgroups);
    assert!(!sleeper.wait().unwrap().success());
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let left: Vec<_> = mounts
        .lines()
        .filter(|line| line.contains("cgroup"))
        .map(|line| Path::new(line.split(' ').nth(1).unwrap()).join(&name))
        .filter(|dir| dir.exists())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
