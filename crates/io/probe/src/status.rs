use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A set of HTTP status codes, written `200-399` or `200,204,301-302`. Never empty, and only final
/// codes: 1xx answers are skipped, so none can be expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSet {
    ranges: Vec<RangeInclusive<u16>>,
}

/// Why a text or a list is not a [`StatusSet`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatusSetError {
    /// Nothing could ever succeed.
    #[error("a set of status codes must not be empty")]
    Empty,
    /// Not `CODE` or `FIRST-LAST` within 200…599 and in ascending order.
    #[error("`{0}` is not a status code or a range of them within 200-599")]
    Range(String),
}

impl StatusSet {
    /// The set that these ranges make together.
    ///
    /// # Errors
    /// When there is no range, or one leaves 200…599 or is empty.
    pub fn new(
        ranges: impl IntoIterator<Item = RangeInclusive<u16>>,
    ) -> Result<Self, StatusSetError> {
        let ranges: Vec<_> = ranges.into_iter().collect();
        if ranges.is_empty() {
            return Err(StatusSetError::Empty);
        }
        for range in &ranges {
            if range.is_empty() || *range.start() < 200 || *range.end() > 599 {
                let text = format!("{}-{}", range.start(), range.end());
                return Err(StatusSetError::Range(text));
            }
        }
        Ok(StatusSet { ranges })
    }

    /// Whether the code is in the set.
    pub fn contains(&self, status: u16) -> bool {
        self.ranges.iter().any(|range| range.contains(&status))
    }
}

/// Success and redirection, as HAProxy's `httpchk` takes by default.
impl Default for StatusSet {
    fn default() -> Self {
        StatusSet { ranges: vec![200..=399] }
    }
}

impl FromStr for StatusSet {
    type Err = StatusSetError;

    fn from_str(text: &str) -> Result<Self, StatusSetError> {
        if text.trim().is_empty() {
            return Err(StatusSetError::Empty);
        }
        let code = |text: &str| text.trim().parse::<u16>().ok();
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (code(first), code(last)) {
                (Some(first), Some(last)) => ranges.push(first..=last),
                _ => return Err(StatusSetError::Range(part.trim().to_owned())),
            }
        }
        StatusSet::new(ranges)
    }
}

impl fmt::Display for StatusSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.ranges.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{first}")?,
                (first, last) => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints_sets() {
        let set: StatusSet = "200, 204,301-302".parse().unwrap();
        assert_eq!(set.to_string(), "200,204,301-302");
        let inside: Vec<u16> = (100..=599).filter(|&s| set.contains(s)).collect();
        assert_eq!(inside, [200, 204, 301, 302]);
        assert_eq!(StatusSet::default(), "200-399".parse().unwrap());
    }

    #[test]
    fn refuses_sets_that_mean_nothing() {
        assert_eq!("".parse::<StatusSet>(), Err(StatusSetError::Empty));
        assert_eq!(StatusSet::new([]), Err(StatusSetError::Empty));
        for text in ["2xx", "200-", "399-200", "100-199", "600", "200,,204", "-1"] {
            assert!(matches!(text.parse::<StatusSet>(), Err(StatusSetError::Range(_))), "{text}");
        }
    }
}
