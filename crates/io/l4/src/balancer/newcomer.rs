//! Slow start under `least_connections`: a server that joins or returns has no connections, and would get every
//! first packet until it has as many as the others. So only a part of its weight counts at first, which grows
//! with the time that it has taken first packets, in steps of a second, as with HAProxy's `slowstart`. It is the
//! part of what the others' time counts: where all are as new, nobody is spared.

use std::time::Duration;

use super::Balancer;
use crate::config::Policy;
use crate::fill::WHOLE;

/// The daemon looks so often. Who has just begun is in its first step already.
const STEP_MS: u64 = 1000;

impl Balancer {
    /// Takes the time of who begins to take first packets or ends, and spares who is new. Whether somebody bears
    /// more or less than before by that.
    pub(super) fn spare_newcomers(&mut self, now_ms: u64) -> bool {
        let mut changed = false;
        for service in self.services.values_mut() {
            let slow_start = match service.vip.policy {
                Policy::LeastConnections => service.vip.slow_start,
                _ => Duration::ZERO,
            };
            for member in service.members.values_mut() {
                let since = member.note.since_ms;
                member.note.since_ms = match member.weight() {
                    0 => 0,
                    _ if since == 0 => now_ms,
                    _ => since,
                };
            }
            let takes = service.members.values().map(|one| one.note.since_ms);
            let first = takes.filter(|since| *since > 0).min().unwrap_or(now_ms);
            let age = |since| now_ms.saturating_sub(since);
            for member in service.members.values_mut() {
                let part = part(age(member.note.since_ms), age(first), slow_start);
                changed |= part != std::mem::replace(&mut member.part, part);
            }
        }
        changed
    }
}

/// How much of its weight counts of a server that has taken first packets for so long, beside one that has for
/// longest.
fn part(age_ms: u64, longest_ms: u64, slow_start: Duration) -> u16 {
    let whole_ms = (slow_start.as_millis() as u64).min(longest_ms.saturating_add(STEP_MS));
    let counted_ms = age_ms.saturating_add(STEP_MS).min(whole_ms);
    let part = (counted_ms * u64::from(WHOLE)).checked_div(whole_ms);
    part.map_or(WHOLE, |part| part.max(1) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Duration = Duration::from_secs(10);
    const LONG_MS: u64 = 3_600_000;

    #[test]
    fn a_newcomer_bears_more_each_second_until_it_bears_all() {
        let parts: Vec<u16> = (0..12).map(|second| part(second * 1000, LONG_MS, TEN)).collect();
        assert_eq!(parts, [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1000, 1000]);
        assert_eq!(part(0, LONG_MS, Duration::from_secs(7200)), 1, "never none");
    }

    #[test]
    fn where_all_are_as_new_nobody_is_spared() {
        assert_eq!(part(0, 0, TEN), WHOLE);
        assert_eq!(part(3000, 3000, TEN), WHOLE);
        // One is found a second after the others.
        assert_eq!(part(0, 1000, TEN), 500);
        assert_eq!(part(4000, 5000, TEN), 833);
        assert_eq!(part(9000, 10_000, TEN), WHOLE);
    }

    #[test]
    fn without_a_slow_start_nobody_is_spared() {
        assert_eq!(part(0, LONG_MS, Duration::ZERO), WHOLE);
    }
}
