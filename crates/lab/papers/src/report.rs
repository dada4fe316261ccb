//! All results of a directory as one page that needs nothing but itself.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::run::{MANIFEST, RESULT};
use crate::{Failure, Manifest, ResultFile, registry};

mod page;

/// A page is for everybody to read.
const MODE: u32 = 0o644;

/// One result as it was read.
pub(crate) struct Entry {
    pub result: ResultFile,
    pub manifest: Manifest,
}

/// Writes one page of every result in `from`, whole or not at all, and says how many there are.
///
/// # Errors
/// When there is none, when one cannot be read, or when the page cannot be written.
pub fn report(from: &Path, out: &Path) -> Result<usize, Failure> {
    let entries = read_all(from)?;
    if entries.is_empty() {
        let why = format!("{}: no results; `plimsoll-lab run` makes some", from.display());
        return Err(Failure::Other(why));
    }
    let page = page::document(&entries)?;
    write(&page, out).map_err(Failure::file(format!("write {}", out.display())))?;
    Ok(entries.len())
}

fn write(page: &str, out: &Path) -> std::io::Result<()> {
    let dir = out.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = fs::Permissions::from_mode(MODE);
    let mut fresh =
        tempfile::Builder::new().prefix(".plimsoll-").permissions(mode).tempfile_in(dir)?;
    fresh.write_all(page.as_bytes())?;
    fresh.persist(out)?;
    Ok(())
}

/// In the order of the papers; what is not known any more comes last.
fn read_all(from: &Path) -> Result<Vec<Entry>, Failure> {
    let trouble = || Failure::file(format!("read {}", from.display()));
    let mut entries = Vec::new();
    for place in fs::read_dir(from).map_err(trouble())? {
        let dir = place.map_err(trouble())?.path();
        let hidden = dir.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && dir.join(RESULT).is_file() {
            let (result, manifest) = (read(&dir.join(RESULT))?, read(&dir.join(MANIFEST))?);
            entries.push(Entry { result, manifest });
        }
    }
    let known = registry::experiments();
    let place = |entry: &Entry| {
        let name = &entry.result.experiment.name;
        (known.iter().position(|e| e.name == name).unwrap_or(known.len()), name.clone())
    };
    entries.sort_by_cached_key(place);
    Ok(entries)
}

fn read<T: DeserializeOwned>(file: &Path) -> Result<T, Failure> {
    let text = fs::read(file).map_err(Failure::file(format!("read {}", file.display())))?;
    serde_json::from_slice(&text).map_err(|error| {
        Failure::Other(format!("{}: {error}; run the experiment again", file.display()))
    })
}
