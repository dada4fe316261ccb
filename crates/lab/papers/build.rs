//! Tells the manifest which commit and which compiler made this binary, where that can be known.

use std::path::Path;
use std::process::Command;

/// Where this package is in its repository; elsewhere the repository is somebody else's.
const PLACE: &str = "crates/lab/papers/";
/// What binaries are made of, from here. Cargo looks at every file in it, so `-dirty` stays true.
const SOURCES: [&str; 3] = ["../../../crates", "../../../Cargo.toml", "../../../Cargo.lock"];

fn main() {
    for watched in SOURCES.into_iter().map(str::to_owned).chain(head_files()) {
        println!("cargo:rerun-if-changed={watched}");
    }
    if ask("git", &["rev-parse", "--show-prefix"]).as_deref() == Some(PLACE) {
        // No tag: the name is the commit's, with `-dirty` where tracked files differ from it.
        let commit = ask("git", &["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]);
        tell("PLIMSOLL_COMMIT", commit);
    }
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    tell("PLIMSOLL_RUSTC", ask(&rustc, &["--version"]));
}

/// The files that say what is checked out, also where `.git` is a file (a worktree). One that is not
/// there would have Cargo run this every time.
fn head_files() -> Vec<String> {
    let branch = ask("git", &["symbolic-ref", "--quiet", "HEAD"]);
    let names = ["HEAD".to_owned(), "logs/HEAD".to_owned()].into_iter().chain(branch);
    let places = names.filter_map(|name| ask("git", &["rev-parse", "--git-path", &name]));
    places.filter(|place| Path::new(place).exists()).collect()
}

/// The answer's text, unless it fails or says nothing.
fn ask(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn tell(name: &str, answer: Option<String>) {
    if let Some(text) = answer {
        println!("cargo:rustc-env={name}={text}");
    }
}
