//! The section `proxy` of a document.

use std::path::{Path, PathBuf};

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

/// Reads the socket of the proxy in a file, if it has one. Whatever else is wrong with the file is nobody's concern who asks
/// the proxy: that serves on, and validates what it is to take up.
///
/// # Errors
/// As [`load`], of the socket alone.
pub fn socket(path: &Path) -> Result<Option<PathBuf>, Vec<ConfigError>> {
    Document::load(path)?.read(|document| {
        let socket = document.value("proxy").and_then(|proxy| proxy.value("socket"));
        socket.map_or(Some(None), |socket| socket.unix_path().map(Some))
    })
}

/// Reads it; the other sections of the document are others' to read.
pub fn document(cursor: &Cursor<'_>) -> Option<ProxyConfig> {
    let fields = cursor.fields(KEYS)?;
    fields.required("proxy", "the section of plimsoll proxy", ProxyConfig::read)
}
