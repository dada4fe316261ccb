//! Finished parts of a long run, kept beside its result-to-be, so that a restart goes on where it was.
//!
//! `OUT/NAME.cells` has a line of JSON each: first what the run is (experiment, seed, commit, options), then a cell
//! a line, written when it is finished. It is removed when the result is written. Quick runs keep none.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::manifest::commit;
use crate::{Context, Failure};

/// Where the cells of this experiment are kept.
pub(crate) fn place(out: &Path, name: &str) -> PathBuf {
    out.join(format!("{name}.cells"))
}

/// Removes those of this run, all of which is in its result now. A quick run has none: what is there is a full run's
/// that was interrupted, and goes on.
pub(crate) fn remove(context: &Context, out: &Path, name: &str) -> Result<(), Failure> {
    if context.quick {
        return Ok(());
    }
    match fs::remove_file(place(out, name)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::file("remove the finished cells")(error))
        }
        _ => Ok(()),
    }
}

/// What a run is: cells of another are not its own.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    experiment: String,
    seed: u64,
    commit: Option<String>,
    options: Value,
}

#[derive(Serialize, Deserialize)]
struct Line {
    cell: String,
    value: Value,
}

/// The cells of one run.
#[derive(Debug, Default)]
pub struct Cells {
    known: HashMap<String, Value>,
    /// Nothing where none are kept.
    file: Option<File>,
    /// How many of this run were there before it.
    found: usize,
}

impl Cells {
    /// Those that an earlier start of this run has finished, if the context keeps any.
    ///
    /// # Errors
    /// When the file cannot be read or written, or holds another run's.
    pub fn open(context: &Context, name: &str) -> Result<Self, Failure> {
        let Some(out) = context.cells.as_deref().filter(|_| !context.quick) else {
            return Ok(Cells::default());
        };
        let path = place(out, name);
        let head = Head {
            experiment: name.to_owned(),
            seed: context.seed,
            commit: commit().map(str::to_owned),
            options: serde_json::to_value(&context.options).map_err(told)?,
        };
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.map_err(Failure::file(format!("read {}", path.display())))?,
        };
        // A line without its end was under way when the run was killed.
        let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
        let mut lines = whole.lines();
        if let Some(first) = lines.next() {
            let was: Head = serde_json::from_str(first).map_err(damaged(&path))?;
            if was != head {
                return Err(other_run(&path, &was, &head));
            }
        }
        let mut known = HashMap::new();
        for line in lines {
            let Line { cell, value } = serde_json::from_str(line).map_err(damaged(&path))?;
            known.insert(cell, value);
        }
        let trouble = || Failure::file(format!("write {}", path.display()));
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(trouble())?;
        file.set_len(whole.len() as u64).map_err(trouble())?;
        let found = known.len();
        let mut cells = Cells { known, file: Some(file), found };
        if whole.is_empty() {
            cells.append(&head)?;
        }
        Ok(cells)
    }

    /// How many were finished by an earlier start.
    pub fn found(&self) -> usize {
        self.found
    }

    /// This cell, if it is finished.
    ///
    /// # Errors
    /// When it is kept and is no such thing.
    pub fn get<T: DeserializeOwned>(&self, cell: &str) -> Result<Option<T>, Failure> {
        let read = |value: &Value| serde_json::from_value(value.clone()).map_err(told);
        self.known.get(cell).map(read).transpose()
    }

    /// This cell as an earlier start found it, or as `measure` finds it now, which is kept from then on.
    ///
    /// # Errors
    /// What `measure` says, or when it cannot be kept.
    pub fn get_or<T: Serialize + DeserializeOwned>(
        &mut self,
        cell: &str,
        measure: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if let Some(known) = self.get(cell)? {
            return Ok(known);
        }
        let value = measure()?;
        let json = serde_json::to_value(&value).map_err(told)?;
        self.append(&Line { cell: cell.to_owned(), value: json })?;
        Ok(value)
    }

    fn append(&mut self, line: &impl Serialize) -> Result<(), Failure> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut text = serde_json::to_string(line).map_err(told)?;
        text.push('\n');
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
        written.map_err(Failure::file("keep a finished cell"))
    }
}

fn told(error: serde_json::Error) -> Failure {
    Failure::Other(format!("a cell of the run: {error}"))
}

fn damaged(path: &Path) -> impl Fn(serde_json::Error) -> Failure {
    let path = path.display().to_string();
    move |error| Failure::Other(format!("{path}: {error}; remove it to begin anew"))
}

fn other_run(path: &Path, was: &Head, is: &Head) -> Failure {
    let text = |head: &Head| {
        let commit = head.commit.as_deref().unwrap_or("unknown");
        format!("seed {}, commit {commit}, options {}", head.seed, head.options)
    };
    Failure::Other(format!(
        "{} has the finished cells of another run ({}; this one has {}): run that one to its end, or remove the \
         file to begin anew",
        path.display(),
        text(was),
        text(is)
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_lanes::Interrupt;

    use super::*;
    use crate::{Experiment, Outcome};

    fn context(seed: u64, out: &Path) -> Context {
        Context::new(seed, false, Interrupt::never()).keeping_cells(out)
    }

    fn measured(cells: &mut Cells, cell: &str, value: f64) -> f64 {
        cells.get_or(cell, || Ok(value)).unwrap()
    }

    #[test]
    fn a_second_start_goes_on_where_the_first_was() {
        let out = tempfile::tempdir().unwrap();
        let context = context(1, out.path());
        let mut first = Cells::open(&context, "toy").unwrap();
        assert_eq!(measured(&mut first, "a", 1.5), 1.5);
        let failed = first.get_or::<f64>("b", || Err(Failure::Interrupted));
        assert!(matches!(failed, Err(Failure::Interrupted)));
        // Killed in the middle of a line.
        let path = place(out.path(), "toy");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}{{\"cell\":\"b\",\"va")).unwrap();
        let mut second = Cells::open(&context, "toy").unwrap();
        assert_eq!(second.found(), 1);
        assert_eq!(measured(&mut second, "a", 9.0), 1.5, "not measured again");
        assert_eq!(measured(&mut second, "b", 2.5), 2.5);
        let third = Cells::open(&context, "toy").unwrap();
        assert_eq!((third.found(), third.get("b").unwrap()), (2, Some(2.5)));
        assert_eq!(third.get::<f64>("c").unwrap(), None);
    }

    fn interrupted_once(context: &Context) -> Result<Outcome, Failure> {
        let mut cells = Cells::open(context, "toy")?;
        let is_first = cells.found() == 0;
        cells.get_or("a", || Ok(1.5))?;
        if is_first { Err(Failure::Interrupted) } else { Ok(Outcome::default()) }
    }

    #[test]
    fn cells_outlive_an_interrupted_run_and_end_with_its_result() {
        const TOY: Experiment = Experiment {
            name: "toy",
            paper: &crate::haproxy::PAPER,
            figure: "none",
            title: "A toy",
            claim: "Toys are fun.",
            provenance: &[],
            takes: Duration::ZERO,
            takes_quick: Duration::ZERO,
            run: interrupted_once,
        };
        const QUICK_TOY: Experiment = Experiment { run: |_| Ok(Outcome::default()), ..TOY };
        let out = tempfile::tempdir().unwrap();
        let context = context(1, out.path());
        let path = place(out.path(), "toy");
        assert!(matches!(crate::run(&TOY, &context, out.path()), Err(Failure::Interrupted)));
        assert!(path.exists());
        let quick = Context::new(1, true, Interrupt::never()).keeping_cells(out.path());
        crate::run(&QUICK_TOY, &quick, out.path()).unwrap();
        assert!(path.exists(), "a quick run leaves a full run's cells alone");
        crate::run(&TOY, &context, out.path()).unwrap();
        assert!(!path.exists(), "all of it is in the result");
    }

    #[test]
    fn cells_of_another_run_are_not_taken() {
        let out = tempfile::tempdir().unwrap();
        drop(Cells::open(&context(1, out.path()), "toy").unwrap());
        let error = Cells::open(&context(2, out.path()), "toy").unwrap_err().to_string();
        assert!(error.contains("toy.cells") && error.contains("seed 1"), "{error}");
        assert!(Cells::open(&context(2, out.path()), "other").is_ok());
        fs::write(place(out.path(), "bad"), "{}\n").unwrap();
        let error = Cells::open(&context(1, out.path()), "bad").unwrap_err().to_string();
        assert!(error.contains("bad.cells") && error.contains("remove it"), "{error}");
    }

    #[test]
    fn quick_runs_and_runs_without_a_place_keep_none() {
        let out = tempfile::tempdir().unwrap();
        let quick = Context::new(1, true, Interrupt::never()).keeping_cells(out.path());
        for context in [quick, Context::new(1, false, Interrupt::never())] {
            let mut cells = Cells::open(&context, "toy").unwrap();
            measured(&mut cells, "a", 1.0);
            assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
        }
    }
}
