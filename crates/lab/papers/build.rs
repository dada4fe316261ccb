//! Tells the manifest which commit and which compiler made this binary, where that can be known.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The log of HEAD changes with every commit and checkout; a source archive has none.
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.git/logs/HEAD");
    if log.exists() {
        println!("cargo:rerun-if-changed={}", log.display());
        tell("PLIMSOLL_COMMIT", Command::new("git").args(["rev-parse", "--short=12", "HEAD"]));
    }
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    tell("PLIMSOLL_RUSTC", Command::new(rustc).arg("--version"));
}

fn tell(name: &str, command: &mut Command) {
    let answer = command.output().ok().filter(|output| output.status.success());
    if let Some(text) = answer.and_then(|output| String::from_utf8(output.stdout).ok()) {
        println!("cargo:rustc-env={name}={}", text.trim());
    }
}
