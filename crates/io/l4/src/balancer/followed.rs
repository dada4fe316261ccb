//! Connections begun, without SYNs that were not followed up. Those are known a second later, when their server repeats
//! its answer: what was reported meanwhile is not taken back, for a controller takes a count that falls for another
//! balancer's, but as many of the next are not counted.

use std::collections::BTreeMap;

/// By place of `members`: SYNs so far, and what was reported.
#[derive(Debug, Default)]
pub(crate) struct Followed(BTreeMap<u32, (u64, u64)>);

impl Followed {
    /// How many connections have begun.
    pub(crate) fn take(&mut self, place: u32, opened: u64, unanswered: u64) -> u64 {
        let now = opened.saturating_sub(unanswered);
        let held = self.0.entry(place).or_insert((opened, now));
        // A SYN that is sent again may be taken back; all of them, where the place is another server's now.
        if opened < held.0 / 2 {
            *held = (opened, now);
        }
        *held = (opened, now.max(held.1));
        held.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_of_a_place_that_another_server_has_begins_anew() {
        let mut followed = Followed::default();
        assert_eq!(followed.take(1, 1000, 0), 1000);
        assert_eq!(followed.take(1, 999, 5), 1000);
        assert_eq!(followed.take(1, 1010, 5), 1005);
        assert_eq!(followed.take(2, 3, 0), 3);
        assert_eq!(followed.take(1, 2, 0), 2);
    }
}
