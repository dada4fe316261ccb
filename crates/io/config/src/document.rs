//! A file as it was written.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::read::Cursor;
use crate::report::{ConfigError, Position, Report};
use crate::tree::{self, Node};

/// A longer file is a mistake, bytes.
pub const MAX_FILE: usize = 8 << 20;

/// One YAML document, read once. Any number of readers may then take their part of it.
#[derive(Clone, Debug)]
pub struct Document {
    file: String,
    /// None: there is nothing in it.
    root: Option<Node>,
}

impl Document {
    /// Reads a file. No other file is looked at, no socket opened, no name resolved.
    ///
    /// # Errors
    /// When it cannot be read or is not YAML: the first breach.
    pub fn load(path: &Path) -> Result<Self, Vec<ConfigError>> {
        let name = path.display().to_string();
        let bytes = read_bounded(path).map_err(|error| {
            let message = format!("cannot be read: {}", plain(&error));
            alone(&name, Position::START, "config", message)
        })?;
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned();
            let at = Position::after(&before);
            alone(&name, at, "config", "expected UTF-8 text, found other bytes".to_owned())
        })?;
        Document::parse(&name, text)
    }

    /// Reads a text; `name` stands for the file in errors.
    ///
    /// # Errors
    /// When it is not YAML: the first breach.
    pub fn parse(name: &str, text: &str) -> Result<Self, Vec<ConfigError>> {
        match tree::read(text) {
            Ok(root) => Ok(Document { file: name.to_owned(), root }),
            Err(fault) => Err(alone(name, fault.at, "yaml", fault.message)),
        }
    }

    /// Whether the document is a mapping with this key.
    pub fn has(&self, key: &str) -> bool {
        self.root.as_ref().is_some_and(|root| root.get(key).is_some())
    }

    /// Has `read` take what it means. It sees an empty mapping where there is nothing in the document.
    ///
    /// # Errors
    /// Every problem that was reported, in order of place.
    pub fn read<T>(
        &self,
        read: impl FnOnce(&Cursor<'_>) -> Option<T>,
    ) -> Result<T, Vec<ConfigError>> {
        let empty = Node::EMPTY;
        let report = Report::new(&self.file);
        let meant = read(&Cursor::root(self.root.as_ref().unwrap_or(&empty), &report));
        let errors = report.into_errors();
        match meant {
            Some(meant) if errors.is_empty() => Ok(meant),
            _ => Err(errors),
        }
    }
}

fn alone(file: &str, at: Position, key: &str, message: String) -> Vec<ConfigError> {
    let report = Report::new(file);
    report.add(at, key, message);
    report.into_errors()
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = File::open(path)?.take(MAX_FILE as u64 + 1);
    file.read_to_end(&mut bytes)?;
    if bytes.len() > MAX_FILE {
        return Err(io::Error::other(format!("longer than {} MiB", MAX_FILE >> 20)));
    }
    Ok(bytes)
}

/// The system's words without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_files_are_problems_at_their_beginning() {
        let dir = std::env::temp_dir().join(format!("plimsoll-document-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let latin1 = dir.join("latin1.yaml");
        std::fs::write(&latin1, b"services:\n  - name: caf\xe9\n").unwrap();
        let huge = dir.join("huge.yaml");
        File::create(&huge).unwrap().set_len(MAX_FILE as u64 + 1).unwrap();
        for (path, place, part) in [
            (&dir, ":1:1: config: ", "cannot be read: Is a directory"),
            (&dir.join("none"), ":1:1: config: ", "cannot be read: No such file or directory"),
            (&latin1, ":2:14: config: ", "expected UTF-8"),
            (&huge, ":1:1: config: ", "longer than 8 MiB"),
        ] {
            let found = Document::load(path).unwrap_err();
            let line = format!("{}{place}", path.display());
            assert_eq!(found.len(), 1);
            let text = found[0].to_string();
            assert!(
                text.starts_with(&line) && text.contains(part) && !text.contains("os error"),
                "{text}"
            );
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn readers_take_their_part_and_problems_stay_with_their_reader() {
        let document = Document::parse("F", "a: 1\nb: x\n").unwrap();
        let number = |key: &'static str| {
            document.read(|c| c.fields(&["a", "b"])?.required(key, "it", |c| c.integer(0..=9)))
        };
        assert_eq!(number("a"), Ok(1));
        assert_eq!(number("b").unwrap_err()[0].to_string().split(": exp").next(), Some("F:2:4: b"));
        assert!(document.has("a") && !document.has("c"));
        assert!(!Document::parse("F", "# nothing\n").unwrap().has("a"));
    }
}
