//! The two binaries: `plimsoll-lab`, which is tested, and `plimsoll` beside it, whose daemon it starts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// `plimsoll-lab`.
pub const LAB: &str = env!("CARGO_BIN_EXE_plimsoll-lab");

/// Builds `plimsoll` of the same sources where `plimsoll-lab` looks for it; returns where it is.
pub fn build_plimsoll() -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| build("plimsoll", "plimsoll"));
    Path::new(LAB).with_file_name("plimsoll")
}

/// Builds a binary of another package beside `plimsoll-lab`: for a test Cargo builds only those of its own. With
/// `PLIMSOLL_BUILT` set this does nothing, as the caller has built all: built alone, shared packages have other
/// features, and are built again.
pub fn build(package: &str, binary: &str) {
    if std::env::var_os("PLIMSOLL_BUILT").is_some() {
        return;
    }
    let place = Path::new(LAB).parent().expect("a directory");
    let profile = match place.file_name().and_then(|name| name.to_str()).expect("a profile") {
        "debug" => "dev",
        other => other,
    };
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.args(["build", "--quiet", "--locked", "--package", package]);
    command.args(["--bin", binary, "--profile", profile]);
    command.arg("--target-dir").arg(place.parent().expect("a target directory"));
    assert!(command.status().expect("run cargo").success(), "{binary} does not build");
}
