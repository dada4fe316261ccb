//! The section `edge` of a document.

use std::path::Path;

use plimsoll_config::{ConfigError, Cursor, Document};
use plimsoll_edge::config::EdgeConfig;

use crate::config::KEYS;

/// Reads the section in a file.
///
/// # Errors
/// Everything that is wrong with it, in order of place; if the file cannot be read, that alone.
pub fn load(path: &Path) -> Result<EdgeConfig, Vec<ConfigError>> {
    Document::load(path)?.read(document)
}

/// Reads it; the other sections of the document are others' to read.
pub fn document(cursor: &Cursor<'_>) -> Option<EdgeConfig> {
    let fields = cursor.fields(KEYS)?;
    fields.required("edge", "the section of plimsoll edge", EdgeConfig::read)
}
