//! How demonstrations end: what they found, that they were interrupted, or why they could not.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use plimsoll_terminal::{Format, Screen, complain, exit, fail, json, written};
use serde::Serialize;

/// Shows what was found; gives it back with the code to exit with. Without it the code alone: 130 when it was interrupted, 1
/// when it failed.
pub fn shown<T: Serialize, E: Display>(
    found: Result<Option<T>, E>,
    format: Format,
    text: impl FnOnce(&T, &Screen) -> String,
) -> (ExitCode, Option<T>) {
    let found = match found {
        Ok(Some(found)) => found,
        Ok(None) => {
            complain!("plimsoll-lab: interrupted; everything that was started has ended");
            return (ExitCode::from(exit::INTERRUPTED), None);
        }
        Err(error) => return (fail(&error.to_string()), None),
    };
    let mut out = io::stdout().lock();
    let done = match format {
        Format::Json => json(&mut out, &found),
        Format::Table => out.write_all(text(&found, &Screen::stdout()).as_bytes()),
    };
    (written(done.and_then(|()| out.flush())), Some(found))
}
