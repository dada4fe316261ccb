//! Durations as people write them: `500ms`, `1.5s`, `2m`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Units and their length in seconds; the longer name stands before the shorter that ends it.
const UNITS: [(&str, f64); 6] =
    [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// More than any run needs, and far from the range where nanoseconds overflow.
const LONGEST_S: f64 = 365.0 * 24.0 * 3600.0;

/// Reads a duration: a decimal number and one of the units `ns`, `us`, `ms`, `s`, `m`, `h`.
///
/// # Errors
/// A sentence that says what was expected, without naming the place it was found at.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a duration such as 500ms, 10s or 2m, found `{text}`");
    let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(expected)?;
    let (number, unit) = (text[..split].trim(), &text[split..]);
    let seconds = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(expected)?.1;
    let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let value: f64 = number.parse().ok().filter(|_| plain).ok_or_else(expected)?;
    if value * seconds > LONGEST_S {
        return Err(format!("expected a duration of at most a year, found `{text}`"));
    }
    Ok(Duration::from_secs_f64(value * seconds))
}

/// Writes a duration in the largest unit that keeps it above one: `30ms`, `1.5s`.
pub fn format_duration(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    let (unit, length) = match seconds {
        s if s >= 1.0 || s == 0.0 => ("s", 1.0),
        s if s >= 1e-3 => ("ms", 1e-3),
        s if s >= 1e-6 => ("us", 1e-6),
        _ => ("ns", 1e-9),
    };
    // Six digits after the point cut off what only binary fractions put there.
    let digits = format!("{:.6}", seconds / length);
    format!("{}{unit}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// For `#[serde(with = "duration_text")]`: serialisation as text.
pub(crate) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&format_duration(*span))
}

/// For `#[serde(with = "duration_text")]`: deserialisation from text.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    parse_duration(&text).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_with_units() {
        for (text, micros) in [
            ("500ms", 500_000),
            ("10s", 10_000_000),
            ("2m", 120_000_000),
            ("1.5s", 1_500_000),
            ("0s", 0),
            ("1h", 3_600_000_000),
            ("7us", 7),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(micros)), "{text}");
        }
    }

    #[test]
    fn refuses_anything_else() {
        for text in ["", "10", "ms", "-1s", "1 year", "1e3s", "infs", "nans", "1.2.3s", "9999999h"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn writes_what_it_reads() {
        for text in ["30ms", "1.5s", "250us", "120s", "0s", "526.3ms"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
    }
}
