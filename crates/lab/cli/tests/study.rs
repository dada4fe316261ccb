//! The HAProxy study's experiments on servers that burn CPU. A program of its own: capacity is measured, so nothing else
//! may be at work.

mod program;

use std::process::Command;

use plimsoll_real::cgroup::Cgroups;
use serde_json::Value;

use program::{LAB, build, build_plimsoll};

/// What emulated servers do not have: control groups, their accounts, a capacity that is measured, lanes in turns.
#[test]
fn the_study_runs_on_servers_in_control_groups() {
    if let Err(why) = Cgroups::open() {
        eprintln!("skipped: {why}");
        return;
    }
    build_plimsoll();
    build("plimsoll-real", "plimsoll-real-server");
    let out = tempfile::tempdir().unwrap();
    let place = out.path().to_str().unwrap();
    for [name, option, value] in
        [["haproxy-cpu", "--tasks", "20000"], ["haproxy-deadline", "--loads", "1.1"]]
    {
        let how = ["--pool", "real", "--quick", "--seed", "2", "--out", place, "-o", "json"];
        let answer =
            Command::new(LAB).args(["run", name, option, value]).args(how).output().unwrap();
        assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
        let results: Vec<Value> = serde_json::from_slice(&answer.stdout).unwrap();
        let tables = results[0]["outcome"]["tables"].as_array().unwrap();
        let rows = |table: &Value| table["rows"].as_array().map_or(0, Vec::len);
        assert!(
            !tables.is_empty() && tables.iter().all(|table| rows(table) > 0),
            "{name}: {tables:?}"
        );
        let provenance = results[0]["manifest"]["provenance"].to_string();
        assert!(provenance.contains("measured"), "{name}: {provenance}");
        assert!(out.path().join(name).join("result.json").is_file(), "{name}");
    }
}
