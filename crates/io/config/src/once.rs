//! Values that may occur only once.

use std::collections::BTreeMap;

use crate::{Cursor, Position};

/// Values that may occur only once in a document, each with the place where it first did.
#[derive(Debug)]
pub struct Once<T>(BTreeMap<T, Position>);

impl<T> Default for Once<T> {
    fn default() -> Self {
        Once(BTreeMap::new())
    }
}

impl<T: Ord> Once<T> {
    /// Takes the value that stands at `cursor`, or reports that it is taken: `what` was expected, such as "a name
    /// that no other backend has".
    pub fn take(&mut self, value: T, cursor: &Cursor<'_>, what: &str) -> Option<()> {
        if let Some(first) = self.0.get(&value) {
            return cursor.expected(format!("{what} (this one stands on line {})", first.line));
        }
        self.0.insert(value, cursor.at());
        Some(())
    }
}
