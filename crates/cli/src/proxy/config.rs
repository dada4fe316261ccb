//! The section `proxy` of a document.

use std::path::Path;

use plimsoll_config::{ConfigError, Cursor, Document};
use plimsoll_proxy::ProxyConfig;

use crate::config::KEYS;

/// Reads the proxy's section in a file.
///
/// # Errors
/// Everything that is wrong with it, in order of place; if the file cannot be read, that alone.
pub fn load(path: &Path) -> Result<ProxyConfig, Vec<ConfigError>> {
    Document::load(path)?.read(document)
}

/// Reads it; the other sections of the document are others' to read.
pub fn document(cursor: &Cursor<'_>) -> Option<ProxyConfig> {
    let fields = cursor.fields(KEYS)?;
    fields.required("proxy", "the section of plimsoll proxy", ProxyConfig::read)
}
