//! The ways a backend can misbehave.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How a backend treats its clients. Every mode but `Normal` applies to all paths, light ones
/// included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Mode {
    /// Serves.
    #[default]
    Normal,
    /// As a killed process: connections are cut, new ones refused, queued requests forgotten.
    Refuse,
    /// As a frozen process: accepts and reads, and never answers.
    Silent,
    /// Resets the connection on every request.
    Reset,
    /// Begins an answer and never ends its headers.
    HangHeaders,
    /// Answers at once with a body of four gigabytes.
    Huge,
    /// Answers at once with this status.
    Status(u16),
}

const EXPECTED: &str = "expected normal, refuse, silent, reset, hang_headers, huge or status:CODE";

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "normal" => Ok(Mode::Normal),
            "refuse" => Ok(Mode::Refuse),
            "silent" => Ok(Mode::Silent),
            "reset" => Ok(Mode::Reset),
            "hang_headers" => Ok(Mode::HangHeaders),
            "huge" => Ok(Mode::Huge),
            _ => match text.strip_prefix("status:").map(str::parse) {
                // 1xx announce another answer and 204 and 304 have no body: neither ends a request here.
                Some(Ok(code)) if (200..=599).contains(&code) && code != 204 && code != 304 => {
                    Ok(Mode::Status(code))
                }
                Some(_) => Err(format!(
                    "expected a status from 200 to 599 other than 204 and 304, found `{text}`"
                )),
                None => Err(format!("{EXPECTED}, found `{text}`")),
            },
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Normal => f.write_str("normal"),
            Mode::Refuse => f.write_str("refuse"),
            Mode::Silent => f.write_str("silent"),
            Mode::Reset => f.write_str("reset"),
            Mode::HangHeaders => f.write_str("hang_headers"),
            Mode::Huge => f.write_str("huge"),
            Mode::Status(code) => write!(f, "status:{code}"),
        }
    }
}

impl TryFrom<String> for Mode {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Mode> for String {
    fn from(mode: Mode) -> Self {
        mode.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_nothing_else() {
        for text in ["normal", "refuse", "silent", "reset", "hang_headers", "huge", "status:404"] {
            assert_eq!(text.parse::<Mode>().unwrap().to_string(), text);
        }
        for text in ["", "Normal", "status:", "status:99", "status:204", "status:abc", "status"] {
            assert!(text.parse::<Mode>().is_err(), "{text}");
        }
    }
}
