//! Problems of a configuration, collected until all are known.

use std::cell::RefCell;
use std::fmt;

use serde::Serialize;

/// A place in the file; both count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

impl Position {
    /// Where a file begins.
    pub const START: Position = Position { line: 1, column: 1 };

    /// Where the text that follows `before` begins.
    pub fn after(before: &str) -> Position {
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Position {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// One thing that is wrong with a configuration. Its `Display` is one line:
/// `file:line:column: key: message`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigError {
    /// The file, as the caller named it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    /// The path of the key, such as `services[0].backends[1].address`; `config` for the whole file
    /// and `yaml` for its syntax.
    pub key: String,
    /// What was expected, and what was found.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}: {}", self.file, self.line, self.column, self.key, self.message)
    }
}

impl std::error::Error for ConfigError {}

/// Collects problems; shared by all readers of one file.
#[derive(Debug)]
pub struct Report {
    file: String,
    problems: RefCell<Vec<(Position, String, String)>>,
}

impl Report {
    /// None yet, of this file as the caller names it.
    pub fn new(file: &str) -> Self {
        Report { file: file.to_owned(), problems: RefCell::default() }
    }

    /// The file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Adds a problem.
    pub fn add(&self, at: Position, key: &str, message: String) {
        self.problems.borrow_mut().push((at, key.to_owned(), message));
    }

    /// The problems in order of their place in the file.
    pub fn into_errors(self) -> Vec<ConfigError> {
        let file = self.file;
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|(at, ..)| *at);
        let error = |(at, key, message): (Position, String, String)| ConfigError {
            file: file.clone(),
            line: at.line,
            column: at.column,
            key,
            message,
        };
        problems.into_iter().map(error).collect()
    }
}

/// A value as it may stand in a message: quoted, on one line, not too long.
pub fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.chars().count() <= LONGEST {
        return format!("{text:?}");
    }
    let head: String = text.chars().take(LONGEST).collect();
    format!("{head:?}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_from_one() {
        assert_eq!(Position::after(""), Position::START);
        assert_eq!(Position::after("é\nüb"), Position { line: 2, column: 3 });
    }

    #[test]
    fn errors_come_in_order_of_place_and_on_one_line_each() {
        let report = Report::new("dir/f.yaml");
        report.add(Position { line: 9, column: 1 }, "b", "late".into());
        report.add(Position { line: 2, column: 7 }, "a", format!("found {}", quoted("x\ny")));
        let lines: Vec<String> = report.into_errors().iter().map(ToString::to_string).collect();
        assert_eq!(lines, [r#"dir/f.yaml:2:7: a: found "x\ny""#, "dir/f.yaml:9:1: b: late"]);
    }
}
