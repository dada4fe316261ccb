//! Servers whose clock does not stay where it is. Two clocks that drift apart by 50 parts in a million differ
//! by the program's tolerance, a second, once in 5.5 hours; where `net.ipv4.tcp_timestamps` is 1 each connection
//! has a clock of its own, and the server's seems to move with nearly every reply.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// So many moves ...
const MANY: u64 = 10;
/// ... within this.
const WINDOW: Duration = Duration::from_secs(60);

/// By place of `members`.
#[derive(Debug, Default)]
pub(super) struct Clocks(BTreeMap<u32, Moves>);

#[derive(Debug)]
struct Moves {
    since: Instant,
    /// Counted then.
    before: u64,
    is_told: bool,
}

impl Clocks {
    /// Takes how often a clock has moved; whether to tell of it: once, until it has been still for a while.
    pub(super) fn take(&mut self, place: u32, moved: u64, now: Instant) -> bool {
        let new = Moves { since: now, before: moved, is_told: false };
        let moves = self.0.entry(place).or_insert(new);
        let many = moved.saturating_sub(moves.before) >= MANY;
        let tell = many && !moves.is_told;
        moves.is_told |= many;
        if now.duration_since(moves.since) >= WINDOW {
            *moves = Moves { since: now, before: moved, is_told: many };
        }
        tell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_drift_is_not_reported_and_a_jumping_clock_is_reported_once() {
        let (mut clocks, began) = (Clocks::default(), Instant::now());
        let mut at =
            |place, moved, second| clocks.take(place, moved, began + Duration::from_secs(second));
        // Once an hour, and what was counted before this daemon.
        assert!((0..100).all(|hour| !at(1, 5_000 + hour, 3600 * hour)));
        assert!(!at(2, 0, 0));
        assert!(!at(2, 9, 30));
        assert!(at(2, 10, 31));
        assert!((32..300).all(|second| !at(2, second, second)), "it has been told");
        assert!(!at(2, 300, 400) && !at(2, 301, 460), "a minute's rest");
        assert!(at(2, 320, 470), "again");
    }
}
