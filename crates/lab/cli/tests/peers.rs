//! `plimsoll-lab peers`: every make that is installed serves, and a run goes on where it was. What it measures is not
//! judged here.

mod program;

use std::process::{Command, Output};

use serde_json::Value;

use program::{LAB, build_plimsoll};

fn peers(arguments: &[&str]) -> Output {
    build_plimsoll();
    let short = [
        "--pool",
        "small",
        "--service",
        "30ms",
        "--seconds",
        "2s",
        "--warmup",
        "1s",
        "--learn",
        "2s",
    ];
    let mut command = Command::new(LAB);
    command.arg("peers").args(short).args(arguments).args(["-o", "json"]);
    command.output().expect("it runs")
}

#[test]
fn every_make_serves_alone_and_as_several() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().to_str().expect("a path");
    let arguments =
        ["--loads", "0.3", "--balancers", "1,3", "--against", "peak-ewma", "--out", out];
    let output = peers(&arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().filter(|line| line.starts_with("skipped: ")).for_each(|line| eprintln!("{line}"));
    assert!(output.status.success(), "{said}");
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = result["rows"].as_array().expect("rows");
    // Plimsoll's own are always there.
    let ours = [
        "peak-ewma",
        "prequal",
        "bloc",
        "expected-delay",
        "expected-delay-refusals",
        "expected-delay-probes",
    ];
    for peer in ours {
        assert_eq!(rows.iter().filter(|row| row["peer"] == peer).count(), 2, "{peer}");
    }
    for row in rows {
        // Some may be refused while an ingress begins to learn, or late on a busy machine.
        let failed = row["failed_percent"].as_f64().expect("a number");
        assert!(failed < 50.0 && row["mean_ms"].as_f64().is_some(), "{row}: {said}");
        assert!(row["of_other"][0].as_f64().is_some_and(|of| of > 0.0), "{row}");
    }
    let text = std::fs::read_to_string(dir.path().join("result.txt")).expect("a table");
    assert!(text.contains("/CENTRAL") && text.contains("central queue at 0.3"), "{text}");
    let cells = || std::fs::read_dir(dir.path().join("cells")).expect("cells").count();
    assert_eq!(cells(), rows.len());

    // Again: only the one that is missing is run.
    std::fs::remove_file(dir.path().join("cells/peak-ewma-1-0.3-1.json")).expect("removed");
    let output = peers(&arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.lines().filter(|line| line.contains(" of ")).count(), 1, "{said}");
    assert_eq!(cells(), rows.len());
}
