//! How commands show what they found: aligned tables, JSON, and plots.

pub mod chart;
pub mod svg;
pub mod table;
pub mod terminal;
pub mod view;

use std::io::{self, IsTerminal, Write};

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

/// The text without control characters: a reason may quote what a backend sent, and that must not
/// steer a terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
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
        assert_eq!(printable("a\x1b[2Jb\nc\u{9b}"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
    }

    #[test]
    fn colours_appear_only_where_they_are_understood() {
        assert_eq!(Screen::PLAIN.paint(Tone::Bad, "x"), "x");
        let color = Screen { color: true, width: None };
        assert_eq!(color.paint(Tone::Bad, "x"), "\x1b[1;31mx\x1b[0m");
        assert_eq!(color.paint(Tone::Plain, "x"), "x");
    }
}
