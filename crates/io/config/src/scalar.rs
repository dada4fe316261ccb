//! Single values: what YAML 1.2's core schema takes a plain scalar for, and spans of time.

use std::time::Duration;

/// What a scalar is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Nothing: empty, `~` or `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number; `None` when it does not fit.
    Integer(Option<i128>),
    /// Any other number, `.inf` and `.nan` among them.
    Float(f64),
    /// Everything else, and whatever is quoted.
    Text,
}

/// What a plain (unquoted) scalar stands for (YAML 1.2.2, section 10.3.2).
pub fn kind(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "true" | "True" | "TRUE" => return Kind::Bool(true),
        "false" | "False" | "FALSE" => return Kind::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Kind::Float(f64::NAN),
        _ => {}
    }
    let (sign, rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (if text.starts_with('-') { -1.0 } else { 1.0 }, rest),
        None => (1.0, text),
    };
    if matches!(rest, ".inf" | ".Inf" | ".INF") {
        return Kind::Float(sign * f64::INFINITY);
    }
    if !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()) {
        return Kind::Integer(text.parse().ok());
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix)
            && !digits.is_empty()
            && digits.chars().all(|c| c.is_digit(radix))
        {
            return Kind::Integer(i128::from_str_radix(digits, radix).ok());
        }
    }
    // `parse` alone would also take "inf", "nan" and "infinity".
    let numeric = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
    match text.parse() {
        Ok(number) if text.bytes().all(numeric) => Kind::Float(number),
        _ => Kind::Text,
    }
}

/// Why a text is not a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadDuration {
    /// Not a number followed by a unit.
    Shape,
    /// A number that nothing follows.
    NoUnit,
    /// More than 500 years.
    TooLong,
}

const UNITS: [(&str, u128); 5] = [
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads `250us`, `100ms`, `1.5s`, `2m` or `1h`. Exact to the nanosecond; what lies below is cut off.
///
/// # Errors
/// See [`BadDuration`]. There are no negative spans.
pub fn duration(text: &str) -> Result<Duration, BadDuration> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err(BadDuration::Shape);
    }
    if unit.is_empty() {
        return Err(BadDuration::NoUnit);
    }
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(BadDuration::Shape)?;
    let whole: u128 = whole.parse().map_err(|_| BadDuration::TooLong)?;
    // 12 digits of an hour are below a nanosecond.
    let fraction = &fraction[..fraction.len().min(13)];
    let tenths = 10_u128.pow(fraction.len() as u32);
    let part = fraction.parse::<u128>().map_err(|_| BadDuration::Shape)? * scale / tenths;
    let nanos = whole.checked_mul(*scale).and_then(|n| n.checked_add(part));
    nanos.and_then(|n| u64::try_from(n).ok()).map(Duration::from_nanos).ok_or(BadDuration::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_are_what_yaml_1_2_says() {
        for text in ["", "~", "null"] {
            assert_eq!(kind(text), Kind::Null);
        }
        assert_eq!(kind("true"), Kind::Bool(true));
        assert_eq!(kind("-12"), Kind::Integer(Some(-12)));
        assert_eq!(kind("0x1F"), Kind::Integer(Some(31)));
        assert_eq!(kind("0o17"), Kind::Integer(Some(15)));
        assert_eq!(kind(&"9".repeat(60)), Kind::Integer(None));
        assert_eq!(kind("1e3"), Kind::Float(1000.0));
        assert_eq!(kind(".5"), Kind::Float(0.5));
        assert_eq!(kind("-.inf"), Kind::Float(f64::NEG_INFINITY));
        for text in
            ["yes", "on", "inf", "nan", "infinity", "1.2.3", "10ms", "-", "+", ".", "e", "0x", "é"]
        {
            assert_eq!(kind(text), Kind::Text, "{text}");
        }
    }

    #[test]
    fn spans_need_a_number_and_a_unit() {
        for (text, nanos) in [
            ("250us", 250_000),
            ("100ms", 100_000_000),
            ("1.5s", 1_500_000_000),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0s", 0),
            ("0.00000000000000000001h", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for text in
            ["", "s", "-1s", "1 s", "1d", "1sec", "1e3s", "1.s", ".5s", "1,5s", "½s", "1s1", "1µs"]
        {
            assert_eq!(duration(text), Err(BadDuration::Shape), "{text}");
        }
        assert_eq!(duration("2"), Err(BadDuration::NoUnit));
        assert_eq!(duration("99999999999h"), Err(BadDuration::TooLong));
        assert_eq!(duration(&format!("{}s", "9".repeat(99))), Err(BadDuration::TooLong));
    }
}
