//! How `plimsoll-lab` and the `plimsoll` that it starts go together.

mod program;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use plimsoll_lanes::{Given, Lb, Steered, daemon_configuration};

use program::{LAB, build_plimsoll};

#[test]
fn the_configuration_of_a_lane_is_one_that_plimsoll_accepts() {
    let plimsoll = build_plimsoll();
    let servers = [("s1".to_owned(), SocketAddr::from(([127, 0, 0, 1], 81)))];
    let api = SocketAddr::from(([127, 0, 0, 1], 82));
    let sockets = vec![Path::new("/x/a.sock")];
    let steered =
        Steered { servers: &servers, lb: Lb::Haproxy, sockets, given: Given::Configuration };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plimsoll.yaml");
    let text = daemon_configuration(&steered, Path::new("/x/state"), api).to_string();
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(&plimsoll);
    let output = command.args(["check", "--config"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn where_there_is_no_plimsoll_both_places_are_named() {
    let (bin, path) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let alone = bin.path().join("plimsoll-lab");
    std::fs::copy(LAB, &alone).unwrap();
    for words in [&["demo"][..], &["pool", "--lanes", "plimsoll-leastconn"]] {
        let output = Command::new(&alone).args(words).env("PATH", path.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with("plimsoll-lab: plimsoll, "), "{said}");
        assert!(said.contains(&*bin.path().to_string_lossy()) && said.contains("PATH"), "{said}");
    }
}
