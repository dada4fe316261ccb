//! What `plimsoll` is built of: nothing of the lab, no generator of packets or attacks.

use std::process::Command;

/// Every package in the binary: its name, version and place, then its features.
fn linked() -> Vec<(String, String)> {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.args(["tree", "--locked", "--offline", "--package", "plimsoll", "--edges", "normal"]);
    command.args(["--prefix", "none", "--no-dedupe", "--format", "{p}|{f}"]);
    let output = command.output().expect("run cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let pair = |line: &str| {
        let (package, features) = line.split_once('|')?;
        Some((package.to_owned(), features.to_owned()))
    };
    text.lines().map(|line| pair(line).expect("package|features")).collect()
}

#[test]
fn nothing_of_the_lab_is_linked_into_the_daemon() {
    let linked = linked();
    let is_there = |name: &str| linked.iter().any(|(package, _)| package.starts_with(name));
    assert!(is_there("plimsoll-l4 ") && is_there("plimsoll-control "), "{linked:#?}");
    for (package, features) in &linked {
        assert!(!package.contains("/crates/lab/"), "{package} is of the lab");
        let of_ours = package.starts_with("plimsoll");
        let generators = features.split(',').any(|feature| feature == "bench");
        assert!(!(of_ours && generators), "{package} is built with its feature `bench`");
    }
}
