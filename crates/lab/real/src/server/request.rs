//! What a request wants, by its target.

use std::time::Duration;

/// More than any test asks for; a bound against slips of the pen.
const MOST_WORK: Duration = Duration::from_secs(60);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// So much CPU work; the server's own measure where none is named.
    Work(Option<Duration>),
    Health,
    /// There is no such thing.
    Unknown,
    /// The query makes no sense.
    Malformed,
}

impl Wanted {
    pub(super) fn of(target: &str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let value = |key: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(k, _)| *k == key).map(|(_, value)| value).next()
        };
        match path {
            path if path == "/work" || path.starts_with("/work/") => {
                match value("work_us").map(str::parse) {
                    None => Wanted::Work(None),
                    Some(Ok(us)) => Wanted::Work(Some(Duration::from_micros(us).min(MOST_WORK))),
                    Some(Err(_)) => Wanted::Malformed,
                }
            }
            "/health" => Wanted::Health,
            _ => Wanted::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_say_what_is_wanted() {
        assert_eq!(Wanted::of("/work"), Wanted::Work(None));
        assert_eq!(
            Wanted::of("/work?work_us=5500"),
            Wanted::Work(Some(Duration::from_micros(5500)))
        );
        assert_eq!(Wanted::of("/work?a=b&work_us=1"), Wanted::Work(Some(Duration::from_micros(1))));
        assert_eq!(Wanted::of("/work?work_us=999999999999"), Wanted::Work(Some(MOST_WORK)));
        assert_eq!(Wanted::of("/work?work_us=-1"), Wanted::Malformed);
        assert_eq!(Wanted::of("/health?x"), Wanted::Health);
        // Pages of their own, as a site has.
        let page = Wanted::of("/work/page-1/?id=2&work_us=7");
        assert_eq!(page, Wanted::Work(Some(Duration::from_micros(7))));
        assert_eq!(Wanted::of("/workshop"), Wanted::Unknown);
    }
}
