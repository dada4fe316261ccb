//! How commands answer and complain: aligned tables and JSON on standard output, a view that is redrawn in
//! place and errors on standard error, and what becomes of a command whose answer cannot be written.

// They panic where nobody can read what they print.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod exit;
pub mod table;
pub mod view;

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

/// `-o table|json`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
}

/// What the place that is written to can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Whether it understands colours.
    pub color: bool,
    /// Its columns; unknown for a pipe or a file, where lines may be of any length.
    pub width: Option<usize>,
}

impl Screen {
    /// A pipe or a file.
    pub const PLAIN: Screen = Screen { color: false, width: None };

    /// Standard output as it is. Colours need a terminal that has them, and no `NO_COLOR`
    /// (<https://no-color.org>).
    pub fn stdout() -> Screen {
        if !io::stdout().is_terminal() {
            return Screen::PLAIN;
        }
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        Screen { color: !set("NO_COLOR") && !dumb, width }
    }

    /// The text in this tone, where colours are understood.
    pub fn paint(&self, tone: Tone, text: &str) -> String {
        let code = match tone {
            _ if !self.color => return text.to_owned(),
            Tone::Plain => return text.to_owned(),
            Tone::Head => "1",
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Bad => "1;31",
            Tone::Quiet => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// What a text wants to say beyond its words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing.
    #[default]
    Plain,
    /// A heading.
    Head,
    /// As it should be.
    Good,
    /// Worth a look.
    Warn,
    /// Wrong.
    Bad,
    /// Of little interest.
    Quiet,
}

/// One JSON document, indented, with a line end.
///
/// # Errors
/// When it cannot be written.
pub fn json(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    out.write_all(b"\n")
}

/// One JSON document on one line.
///
/// # Errors
/// When it cannot be written.
pub fn json_line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Whether a character moves a cursor, begins a line or turns the direction of a text, instead of being seen.
pub fn is_stray(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with such characters escaped: a reason may quote what a backend sent, and that must neither
/// begin a line of its own nor steer a terminal. Everything that others said passes here: the log, the
/// answers of a daemon, what commands say on standard error.
pub fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        if is_stray(c) {
            printable.extend(c.escape_default());
        } else {
            printable.push(c);
        }
    }
    printable
}

/// Says a line on standard error. One that cannot be written is not missed; `eprintln!` would
/// panic.
pub fn complain_line(line: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(line));
}

/// `eprintln!` for one line, without its panic and with what others said escaped.
#[macro_export]
macro_rules! complain {
    ($($words:tt)*) => { $crate::complain_line(&format!($($words)*)) };
}

/// Says on standard error why a command failed, after the name of the program. Exit code 1.
pub fn fail(why: &str) -> ExitCode {
    complain!("{}: {why}", program_name());
    ExitCode::FAILURE
}

/// What this program was called as, without its directory.
fn program_name() -> String {
    let called = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or(OsStr::new("plimsoll"));
    name.to_string_lossy().into_owned()
}

/// Writes an answer to standard output. A reader that has seen enough (`| head`) is no failure.
pub fn answer(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// What becomes of a command once its answer was written, or could not be.
pub fn written(done: io::Result<()>) -> ExitCode {
    match done {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(&format!("cannot write the answer: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

/// A number for people: three figures where it is small, one decimal where it is not.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size < 1.0 && size > 0.0 => 3,
        size if size < 10.0 => 2,
        _ => 1,
    };
    format!("{value:.digits$}")
}

/// A number for people, or `-` where it is not known.
pub fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_about_three_figures() {
        for (value, text) in
            [(0.0, "0.00"), (0.1234, "0.123"), (4.567, "4.57"), (34.56, "34.6"), (1234.0, "1234.0")]
        {
            assert_eq!(number(value), text);
        }
        assert_eq!(maybe(None), "-");
    }

    #[test]
    fn what_a_backend_sent_cannot_steer_a_terminal() {
        assert_eq!(printable("a\x1b[2Jb\nc\u{9b}ü"), "a\\u{1b}[2Jb\\nc\\u{9b}ü");
        assert_eq!(printable("a\u{202e}b\u{2028}"), "a\\u{202e}b\\u{2028}");
    }

    #[test]
    fn colours_appear_only_where_they_are_understood() {
        assert_eq!(Screen::PLAIN.paint(Tone::Bad, "x"), "x");
        let color = Screen { color: true, width: None };
        assert_eq!(color.paint(Tone::Bad, "x"), "\x1b[1;31mx\x1b[0m");
        assert_eq!(color.paint(Tone::Plain, "x"), "x");
    }
}
