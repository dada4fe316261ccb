//! Where the programs are that lanes are made of.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::LaneError;

/// `plimsoll`, whose `run` and `l4 run` are the daemons that are tried: beside this program, or in PATH.
///
/// # Errors
/// When it is in neither place.
pub fn plimsoll() -> Result<PathBuf, LaneError> {
    let this = std::env::current_exe().map_err(LaneError::system("find this program"))?;
    plimsoll_beside(&this, in_path())
}

fn plimsoll_beside(this: &Path, path: impl Iterator<Item = PathBuf>) -> Result<PathBuf, LaneError> {
    let beside = this.parent().unwrap_or(Path::new("/")).to_owned();
    find("plimsoll", std::iter::once(beside.clone()).chain(path))
        .ok_or(LaneError::NoPlimsoll { beside })
}

/// Where Debian puts servers, which is not in everybody's PATH.
const ALSO_IN: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// The directories in which servers are looked for: those of PATH, and `sbin`.
pub fn places() -> impl Iterator<Item = PathBuf> {
    in_path().chain(ALSO_IN.map(PathBuf::from))
}

/// The directories of PATH.
fn in_path() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).collect::<Vec<_>>().into_iter()
}

/// The first program of this name in these directories.
pub fn find(name: &str, mut places: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    places.find_map(|place| Some(place.join(name)).filter(is_program))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn install(dir: &Path, mode: u32) -> PathBuf {
        let file = dir.join("plimsoll");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn plimsoll_is_found_beside_this_program_before_path() {
        let [bin, path] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let this = bin.path().join("plimsoll-lab");
        let found = || plimsoll_beside(&this, [path.path().to_owned()].into_iter());
        let in_path = install(path.path(), 0o755);
        install(bin.path(), 0o644);
        assert_eq!(found().unwrap(), in_path, "what cannot be executed is no program");
        let beside = install(bin.path(), 0o755);
        assert_eq!(found().unwrap(), beside);
    }

    #[test]
    fn a_missing_plimsoll_names_both_places() {
        let bin = tempfile::tempdir().unwrap();
        let error = plimsoll_beside(&bin.path().join("plimsoll-lab"), std::iter::empty());
        let text = error.unwrap_err().to_string();
        assert!(text.contains(&*bin.path().to_string_lossy()) && text.contains("PATH"), "{text}");
    }
}
