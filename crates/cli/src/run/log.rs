//! Where the daemon says what it does: standard error, a line per event. What others said may be part of an
//! event and is escaped here, so that it can neither begin a line nor steer a terminal.

mod queue;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use plimsoll_control::{Record, RecordKind};
use plimsoll_terminal::{is_stray, printable};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};

use queue::Queue;
pub use queue::lost;

/// `--log-format`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line, for programs
    Json,
}

/// The log at work. Dropped, it ends once what waits is written, within five seconds.
#[must_use]
pub struct Log {
    queue: Queue,
}

impl Log {
    /// Says a line that is no event: why the daemon did not start. By the same queue, for a reader that hangs
    /// may not keep it from ending.
    pub fn complain(&self, line: &str) {
        self.queue.put(format!("{}\n", printable(line)).as_bytes());
    }

    /// The same, and the exit code of what failed.
    pub fn fail(&self, why: &str) -> ExitCode {
        self.complain(&format!("plimsoll: {why}"));
        ExitCode::FAILURE
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.queue.end();
    }
}

/// From here on, events are written, and panics are events. `RUST_LOG`, where set, says which; else all that
/// is worth a line, and with `verbose` more.
///
/// # Errors
/// When the system refuses a thread.
pub fn init(format: LogFormat, verbose: bool) -> io::Result<Log> {
    let otherwise = if verbose { "info,plimsoll=debug" } else { "info" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(otherwise));
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let prepare = match format {
        LogFormat::Text => <[u8]>::to_vec,
        LogFormat::Json => escaped_json,
    };
    let queue = Queue::start(io::stderr(), prepare)?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(queue.clone())
        // It would say on standard error what went wrong there, and panic when that fails.
        .log_internal_errors(false)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal() && !plain);
    // Fails only where a subscriber is set already, as in tests that share a process.
    let _ = match format {
        LogFormat::Text => lines.fmt_fields(EscapedFields).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    // The usual hook writes to standard error itself, and would wait for a reader that hangs.
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!("{}", panic.to_string().replacen(":\n", ": ", 1));
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            trace.to_string().lines().for_each(|line| tracing::error!("{line}"));
        }
    }));
    Ok(Log { queue })
}

/// The message and the fields of an event as tracing writes them, without control characters.
struct EscapedFields;

impl<'w> FormatFields<'w> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        writer.write_str(&printable(&text))
    }
}

/// A line of JSON without the control characters that JSON itself leaves as they are. They stand in strings
/// only.
fn escaped_json(line: &[u8]) -> Vec<u8> {
    use std::fmt::Write as _;
    let text = String::from_utf8_lossy(line);
    let mut escaped = String::with_capacity(text.len());
    for c in text.trim_end_matches('\n').chars() {
        if is_stray(c) {
            // A string grows.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped.push('\n');
    escaped.into_bytes()
}

/// Writes a decision or an observation.
pub fn record(service: &str, record: &Record) {
    let (backend, reason) = (record.backend.as_deref(), &record.reason);
    let kind = super::record::word(record.kind);
    match record.kind {
        RecordKind::Failed
        | RecordKind::Ejected
        | RecordKind::Foreign
        | RecordKind::Rollback
        | RecordKind::Warning => {
            tracing::warn!(service, backend, kind, "{reason}");
        }
        RecordKind::Plan
        | RecordKind::SetAside
        | RecordKind::Restored
        | RecordKind::Drift
        | RecordKind::Doubted
        | RecordKind::Relearned
        | RecordKind::Underestimated
        | RecordKind::Refresh
        | RecordKind::GivenBack
        | RecordKind::Returned
        | RecordKind::Joined
        | RecordKind::Left
        | RecordKind::Phase
        | RecordKind::Balancer => tracing::info!(service, backend, kind, "{reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str = "a\nWARN forged\r\x1b[2J\u{9b}2J\u{202e}\u{2028}b\u{7f}";

    #[test]
    fn control_characters_of_others_are_escaped_in_json() {
        let line = format!("{}\n", serde_json::json!({ "message": EVIL, "level": "INFO" }));
        let escaped = String::from_utf8(escaped_json(line.as_bytes())).expect("text");
        assert!(!escaped.trim_end_matches('\n').contains(is_stray), "{escaped:?}");
        let read: serde_json::Value = serde_json::from_str(&escaped).expect("still JSON");
        assert_eq!(read["message"], EVIL, "nothing is lost");
    }

    #[test]
    fn control_characters_of_others_are_escaped_in_text() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let file = std::fs::File::create(&path).expect("a file");
        let queue = Queue::start(file, <[u8]>::to_vec).expect("a thread");
        let lines = tracing_subscriber::fmt().with_writer(queue.clone()).fmt_fields(EscapedFields);
        tracing::subscriber::with_default(lines.finish(), || {
            tracing::warn!(service = %EVIL, backend = EVIL, "{EVIL}");
        });
        queue.end();
        let text = std::fs::read_to_string(&path).expect("readable");
        assert_eq!(text.matches("forged").count(), 3, "{text:?}");
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        let own = text.replace("\x1b[", "");
        let message = own.split_once("WARN").expect("a level").1;
        assert!(!message.trim_end_matches('\n').contains(is_stray), "{message:?}");
    }
}
