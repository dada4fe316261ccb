//! Wall-clock times: milliseconds since 1970 inside, RFC 3339 in UTC on the wire.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serializer, de, ser};

/// Writes `2026-11-21T02:28:17.123Z`: always with milliseconds, so that texts sort like times.
pub fn serialize<S: Serializer>(unix_ms: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    let time = Timestamp::from_millisecond(*unix_ms).map_err(ser::Error::custom)?;
    serializer.collect_str(&format_args!("{time:.3}"))
}

/// Reads any RFC 3339 time.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Timestamp::as_millisecond).map_err(de::Error::custom)
}

/// The nearest time from 1970 on that can be written: a clock set to nonsense must not make the API fail.
pub fn clamp(unix_ms: i64) -> i64 {
    unix_ms.clamp(0, Timestamp::MAX.as_second() * 1_000)
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct At(#[serde(with = "super")] i64);

    #[test]
    fn times_travel_as_text_with_milliseconds() {
        for (ms, text) in [
            (0, "\"1970-01-01T00:00:00.000Z\""),
            (1_795_228_097_120, "\"2026-11-21T02:28:17.120Z\""),
            (-1, "\"1969-12-31T23:59:59.999Z\""),
        ] {
            assert_eq!(serde_json::to_string(&At(ms)).expect("a time"), text);
            assert_eq!(serde_json::from_str::<At>(text).expect("a time").0, ms);
        }
        assert!(serde_json::from_str::<At>("\"yesterday\"").is_err());
    }

    #[test]
    fn every_clamped_time_can_be_written() {
        for ms in [i64::MIN, i64::MAX, 0] {
            assert!(serde_json::to_string(&At(super::clamp(ms))).is_ok());
        }
    }
}
