//! A value that knows where it was written.

use crate::{ConfigError, Cursor, Position};

/// A value and where it was written, for problems that show only later: a file that it names cannot be read.
#[derive(Clone, Debug)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    file: String,
    key: String,
    at: Position,
}

/// Where a value stands does not change what it means.
impl<T: PartialEq> PartialEq for Placed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T> Placed<T> {
    /// The value that was read at this cursor.
    pub fn new(value: T, cursor: &Cursor<'_>) -> Self {
        let (file, key) = (cursor.file().to_owned(), cursor.key().to_owned());
        Placed { value, file, key, at: cursor.at() }
    }

    /// A value that stands in no file: `origin` stands for it in problems.
    pub fn elsewhere(value: T, origin: &str, key: &str) -> Self {
        Placed { value, file: origin.to_owned(), key: key.to_owned(), at: Position::START }
    }

    /// A problem with the value.
    pub fn problem(&self, message: impl std::fmt::Display) -> ConfigError {
        let Position { line, column } = self.at;
        let (file, key) = (self.file.clone(), self.key.clone());
        ConfigError { file, line, column, key, message: message.to_string() }
    }
}
