//! Where the line is drawn for a request that may still go elsewhere.
//!
//! With `r` further tries left a request is let in while fewer than `e(r)` times the cores are in flight,
//! `e` being [`ESCALATION`]: nobody waits here as long as a few tries may find a free core, and when none is
//! free, those that are running out of tries spread the queue over all. On the last try the whole limit
//! holds: `cores + allowance`, which the line never passes.
//!
//! Many balancers that do not know of each other thereby come near one queue that all share, for a refusal
//! is a fresh bit of news and costs a round trip only. Steps, and not one line at the cores, refuse less
//! for good. Cost: O(1).

/// Times the cores, for one further try left, two, three; for more, once.
const ESCALATION: [f64; 3] = [2.0, 1.5, 1.25];

/// The most in flight for a request with so many tries left, where `limit` holds for the last one.
pub(super) fn line(cores: f64, tries_left: u32, limit: u32) -> u32 {
    let Some(further) = (tries_left as usize).checked_sub(1) else { return limit };
    let times = ESCALATION.get(further).copied().unwrap_or(1.0);
    ((cores * times).ceil() as u32).min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_rises_as_tries_run_out() {
        let lines = |cores, limit| [9, 5, 4, 3, 2, 1, 0].map(|left| line(cores, left, limit));
        assert_eq!(lines(4.0, 40), [4, 4, 4, 5, 6, 8, 40]);
        assert_eq!(lines(1.0, 3), [1, 1, 1, 2, 2, 2, 3]);
        assert_eq!(lines(8.0, 9), [8, 8, 8, 9, 9, 9, 9], "never above the limit");
    }
}
