//! Where the daemon says what it does: standard error, a line per event.

use std::io::{self, IsTerminal};

use plimsoll_control::{Record, RecordKind};
use tracing_subscriber::EnvFilter;

/// `--log-format`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line, for programs
    Json,
}

/// From here on, events are written. `RUST_LOG`, where set, says which; else all that is worth a line,
/// and with `verbose` more.
pub fn init(format: LogFormat, verbose: bool) {
    let otherwise = if verbose { "info,plimsoll=debug" } else { "info" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(otherwise));
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal() && !plain);
    // Fails only where a subscriber is set already, as in tests that share a process.
    let _ = match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}

/// Writes a decision or an observation.
pub fn record(service: &str, record: &Record) {
    let (backend, reason) = (record.backend.as_deref(), &record.reason);
    let kind = super::record::word(record.kind);
    match record.kind {
        RecordKind::Failed | RecordKind::Foreign | RecordKind::Rollback | RecordKind::Warning => {
            tracing::warn!(service, backend, kind, "{reason}");
        }
        RecordKind::Plan
        | RecordKind::Drift
        | RecordKind::Refresh
        | RecordKind::Returned
        | RecordKind::Joined
        | RecordKind::Left
        | RecordKind::Phase
        | RecordKind::Balancer => tracing::info!(service, backend, kind, "{reason}"),
    }
}
