//! The two binaries: `plimsoll-lab`, which is tested, and `plimsoll` beside it, whose daemon it starts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// `plimsoll-lab`.
pub const LAB: &str = env!("CARGO_BIN_EXE_plimsoll-lab");

/// Builds `plimsoll` of the same sources where `plimsoll-lab` looks for it, for Cargo builds for a test only the
/// binaries of the test's own package; returns where it is.
pub fn build_plimsoll() -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let place = Path::new(LAB).parent().expect("a directory");
        let profile = match place.file_name().and_then(|name| name.to_str()).expect("a profile") {
            "debug" => "dev",
            other => other,
        };
        let mut command = Command::new(env!("CARGO"));
        command.current_dir(env!("CARGO_MANIFEST_DIR"));
        command.args(["build", "--quiet", "--locked", "--package", "plimsoll"]);
        command.args(["--bin", "plimsoll", "--profile", profile]);
        command.arg("--target-dir").arg(place.parent().expect("a target directory"));
        assert!(command.status().expect("run cargo").success(), "plimsoll does not build");
    });
    Path::new(LAB).with_file_name("plimsoll")
}
