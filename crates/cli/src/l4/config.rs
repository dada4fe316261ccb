//! The section `l4` of a document.

use std::path::Path;

use plimsoll_config::{ConfigError, Cursor, Document};
use plimsoll_l4::{L4Config, Section};

use crate::config::KEYS;

/// Reads the balancer's configuration in a file.
///
/// # Errors
/// Everything that is wrong with it, in order of place.
pub fn load(path: &Path) -> Result<L4Config, Vec<ConfigError>> {
    load_section(path).map(|section| section.balancer)
}

/// Reads a file's whole `l4` section.
///
/// # Errors
/// As [`load`].
pub fn load_section(path: &Path) -> Result<Section, Vec<ConfigError>> {
    Document::load(path)?.read(document)
}

/// Reads the section; the other sections of the document are others' to read.
pub fn document(cursor: &Cursor<'_>) -> Option<Section> {
    let fields = cursor.fields(KEYS)?;
    fields.required("l4", "a mapping with interfaces and vips", Section::read)
}
