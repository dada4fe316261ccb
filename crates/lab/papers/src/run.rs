//! Runs one experiment and writes its result, whole or not at all.
//!
//! Files are written into a hidden directory beside their place, which takes that place in one rename
//! when all are there. A result of the same name is exchanged for the new one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::{Context, Experiment, Failure, Manifest, Outcome, cells, draw, summary};

/// The file that makes a directory a result.
pub(crate) const RESULT: &str = "result.json";
/// The file that says how it came about.
pub(crate) const MANIFEST: &str = "manifest.json";

/// What `result.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultFile {
    /// Which experiment.
    pub experiment: Identity,
    /// What came of it.
    pub outcome: Outcome,
}

/// What a reader needs to know of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its name on the command line.
    pub name: String,
    /// The paper's name.
    pub paper: String,
    /// Where the paper is found.
    pub citation: String,
    /// "Figure 8".
    pub figure: String,
    /// What it is about.
    pub title: String,
    /// What the paper says there.
    pub claim: String,
}

/// A result and where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// What was found.
    pub result: ResultFile,
    /// How it came about.
    pub manifest: Manifest,
    /// Its directory.
    pub dir: PathBuf,
}

/// Runs the experiment and writes `out/NAME/`.
///
/// # Errors
/// Whatever keeps it from its end; then nothing is written.
pub fn run(experiment: &Experiment, context: &Context, out: &Path) -> Result<Ran, Failure> {
    let dir = out.join(experiment.name);
    refuse_foreign(&dir)?;
    // Made now, so that what cannot be written is reported before half an hour of work rather than after.
    fs::create_dir_all(out).map_err(Failure::file(format!("make {}", out.display())))?;
    let fresh = tempfile::Builder::new().prefix(".plimsoll-").tempdir_in(out);
    let fresh = fresh.map_err(Failure::file(format!("write into {}", out.display())))?;
    let started = Timestamp::now();
    let mut outcome = (experiment.run)(context)?;
    context.check()?;
    outcome.comparisons.iter_mut().for_each(|one| one.judge(context.quick));
    let manifest = Manifest::new(experiment, context, started, &outcome);
    let result = ResultFile { experiment: identity(experiment), outcome };
    write(&result, &manifest, fresh, &dir)?;
    cells::remove(context, out, experiment.name)?;
    Ok(Ran { result, manifest, dir })
}

fn identity(experiment: &Experiment) -> Identity {
    Identity {
        name: experiment.name.to_owned(),
        paper: experiment.paper.name.to_owned(),
        citation: experiment.paper.citation.to_owned(),
        figure: experiment.figure.to_owned(),
        title: experiment.title.to_owned(),
        claim: experiment.claim.to_owned(),
    }
}

/// What is no result of ours is not replaced.
fn refuse_foreign(dir: &Path) -> Result<(), Failure> {
    if fs::symlink_metadata(dir).is_ok() && !dir.join(RESULT).is_file() {
        let why = format!("{} exists and is no result (no {RESULT})", dir.display());
        return Err(Failure::Other(why));
    }
    Ok(())
}

fn write(
    result: &ResultFile,
    manifest: &Manifest,
    fresh: TempDir,
    dir: &Path,
) -> Result<(), Failure> {
    let trouble = || Failure::file(format!("write {}", dir.display()));
    for (name, text) in files(result, manifest)? {
        fs::write(fresh.path().join(name), text).map_err(trouble())?;
    }
    use std::os::unix::fs::PermissionsExt;
    // A temporary directory is its owner's alone; a result is like any other.
    let out = fs::metadata(fresh.path().join("..")).map_err(trouble())?;
    let mode = out.permissions().mode();
    fs::set_permissions(fresh.path(), fs::Permissions::from_mode(mode)).map_err(trouble())?;
    take_place(fresh.path(), dir).map_err(trouble())?;
    if fresh.path().exists() {
        // The result before this one, which has changed places with it.
        return fresh.close().map_err(trouble());
    }
    let _gone = fresh.keep();
    Ok(())
}

/// Everything that a result's directory holds.
fn files(result: &ResultFile, manifest: &Manifest) -> Result<Vec<(String, String)>, Failure> {
    let json = |value: serde_json::Result<String>| {
        value.map(|text| text + "\n").map_err(|error| Failure::Other(error.to_string()))
    };
    let mut files = vec![
        (RESULT.to_owned(), json(serde_json::to_string_pretty(result))?),
        (MANIFEST.to_owned(), json(serde_json::to_string_pretty(manifest))?),
        ("README.md".to_owned(), summary::document(result, manifest)),
    ];
    for table in &result.outcome.tables {
        files.push((format!("{}.csv", table.name), table.csv()?));
    }
    for plot in &result.outcome.plots {
        files.push((format!("{}.svg", plot.name), draw::document(plot)?));
    }
    Ok(files)
}

/// Renames, in exchange with whatever is there.
fn take_place(fresh: &Path, dir: &Path) -> io::Result<()> {
    if !dir.exists() {
        return fs::rename(fresh, dir);
    }
    Ok(renameat_with(CWD, fresh, CWD, dir, RenameFlags::EXCHANGE)?)
}
