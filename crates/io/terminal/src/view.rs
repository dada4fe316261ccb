//! A view on standard error: redrawn in place on a terminal, plain lines in a log.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use crate::{Screen, complain};

/// Characters of a progress bar.
const BAR: usize = 30;
/// Columns of a terminal that does not tell.
pub const USUAL_WIDTH: usize = 80;

/// What is shown.
pub struct View {
    screen: Option<Screen>,
    drawn: usize,
}

impl View {
    /// An empty one.
    pub fn stderr() -> Self {
        View { screen: terminal(), drawn: 0 }
    }

    /// The terminal; none when standard error is a pipe or a file.
    pub fn screen(&self) -> Option<Screen> {
        self.screen
    }

    /// Says one thing below the view, or in the log.
    pub fn say(&mut self, what: &str) {
        complain!("{what}");
        self.drawn += usize::from(self.screen.is_some());
    }

    /// Draws these lines in the place of the last ones; longer ones are cut, so that one line is one
    /// line of the terminal.
    pub fn replace(&mut self, lines: &[String]) {
        let width = self.screen.and_then(|screen| screen.width).unwrap_or(USUAL_WIDTH);
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A\r\x1b[J", self.drawn));
        }
        for line in lines {
            text.push_str(&cut(line, width));
            text.push('\n');
        }
        self.drawn = lines.len();
        // A terminal that has gone needs no view.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }
}

/// Standard error as a screen; none when it is a pipe or a file.
fn terminal() -> Option<Screen> {
    if !io::stderr().is_terminal() || std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        return None;
    }
    let color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let size = terminal_size::terminal_size_of(io::stderr());
    Some(Screen { color, width: size.map(|(width, _)| usize::from(width.0)) })
}

/// The first `width` visible characters, escape sequences not counted and never cut.
fn cut(line: &str, width: usize) -> String {
    let (mut text, mut seen, mut escape) = (String::new(), 0, false);
    for c in line.chars() {
        match (escape, c) {
            (true, _) => escape = c != 'm',
            (false, '\x1b') => escape = true,
            (false, _) if seen == width => continue,
            (false, _) => seen += 1,
        }
        text.push(c);
    }
    text
}

/// Minutes and seconds.
pub fn clock(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

/// How much of it is done.
pub fn bar(done: Duration, of: Duration) -> String {
    let part = (done.as_secs_f64() / of.as_secs_f64().max(1e-9)).min(1.0);
    let full = (part * BAR as f64) as usize;
    "█".repeat(full) + &"░".repeat(BAR - full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_by_what_is_seen() {
        assert_eq!(cut("\x1b[32mabc\x1b[0mdef", 4), "\x1b[32mabc\x1b[0md");
        assert_eq!(cut("ab", 4), "ab");
    }
}
