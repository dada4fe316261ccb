//! Slow start under `least_connections`: a server that joins or returns has fewer connections than the others, and
//! would get every SYN until it has as many. So only a part of its weight counts at first, which grows with
//! the time that it has taken SYNs, in steps of a second, as with HAProxy's `slowstart`. It is the part of
//! what the others' time counts: where all are as new, it is whole. It begins no lower than the part that its
//! connections are of the others': one that was out for a moment still has them, and would else get nothing.
//!
//! A weight that a controller set counts whole: it has a slow start of its own, and two of them multiply.

use std::time::Duration;

use super::Balancer;
use crate::config::Policy;
use crate::error::L4Error;
use crate::fill::WHOLE;
use crate::service::{Member, Service};

/// The daemon looks so often. A server that has just begun is in its first step already.
const STEP_MS: u64 = 1000;

impl Balancer {
    /// Notes when servers begin or end to take SYNs, and gives new ones less load. Whether a server takes
    /// more or less than before by that.
    pub(super) fn spare_newcomers(&mut self, now_ms: u64) -> Result<bool, L4Error> {
        let (maps, stride) = (&self.maps, self.maps.meta().stride);
        let mut changed = false;
        for service in self.services.values_mut() {
            let base = service.number * stride;
            let open = |member: &Member| maps.open_connections(base + u32::from(member.id));
            changed |= service.spare_newcomers(now_ms, open)?;
        }
        Ok(changed)
    }
}

impl Service {
    fn spare_newcomers(
        &mut self,
        now_ms: u64,
        open: impl Fn(&Member) -> Result<u64, L4Error>,
    ) -> Result<bool, L4Error> {
        let slow_start = match self.vip.policy {
            Policy::LeastConnections => self.vip.slow_start,
            _ => Duration::ZERO,
        };
        let (mut begin, mut serve) = (Vec::new(), Vec::new());
        for member in self.members.values_mut() {
            match member.weight() {
                0 => member.note.since_ms = 0,
                _ if member.note.since_ms == 0 => begin.push(member),
                _ => serve.push(member),
            }
        }
        let first = serve.iter().map(|member| member.note.since_ms).min().unwrap_or(now_ms);
        let longest_ms = now_ms.saturating_sub(first);
        if !begin.is_empty() {
            let mut loads = Vec::new();
            // It matters only where a server is given less load.
            for member in serve.iter().filter(|_| !slow_start.is_zero()) {
                let bears =
                    f64::from(member.weight()) * f64::from(member.note.part()) / f64::from(WHOLE);
                loads.push(open(member)? as f64 / bears);
            }
            for member in begin {
                let own = if loads.is_empty() { 0 } else { open(member)? };
                let kept = kept(own as f64 / f64::from(member.weight()), &loads);
                let counted_ms = (kept * whole_ms(longest_ms, slow_start) as f64) as u64;
                let since_ms = now_ms.saturating_sub(counted_ms.saturating_sub(STEP_MS));
                member.note.since_ms = since_ms.max(1);
            }
        }
        let mut changed = false;
        for member in self.members.values_mut() {
            let age_ms = now_ms.saturating_sub(member.note.since_ms);
            let part = match member.note.weight {
                Some(_) => WHOLE,
                None => part(age_ms, longest_ms, slow_start),
            };
            changed |= part != member.note.part();
            member.note.spared = WHOLE - part;
        }
        Ok(changed)
    }
}

/// Which part a server's connections are of what the others have on average, each by its capacity.
fn kept(own: f64, others: &[f64]) -> f64 {
    let mean = others.iter().sum::<f64>() / others.len() as f64;
    // Where none has any, there is nothing to go by.
    if mean > 0.0 { (own / mean).min(1.0) } else { 0.0 }
}

/// For how long a server is given less load, beside one that has taken SYNs for so long.
fn whole_ms(longest_ms: u64, slow_start: Duration) -> u64 {
    (slow_start.as_millis() as u64).min(longest_ms.saturating_add(STEP_MS))
}

/// How much of its weight counts of a server that has taken SYNs for so long, beside one that has for
/// longest.
fn part(age_ms: u64, longest_ms: u64, slow_start: Duration) -> u16 {
    let whole_ms = whole_ms(longest_ms, slow_start);
    if whole_ms == 0 {
        return WHOLE;
    }
    let counted_ms = age_ms.saturating_add(STEP_MS).min(whole_ms);
    (counted_ms * u64::from(WHOLE)).div_ceil(whole_ms) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Duration = Duration::from_secs(10);
    const LONG_MS: u64 = 3_600_000;

    #[test]
    fn a_newcomer_bears_more_each_second_until_it_bears_all() {
        let parts: Vec<u16> = (0..12).map(|second| part(second * 1000, LONG_MS, TEN)).collect();
        assert_eq!(parts, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 100, 100]);
        assert_eq!(part(0, LONG_MS, Duration::from_secs(7200)), 1, "never none");
    }

    #[test]
    fn when_all_servers_are_equally_new_none_is_given_less_load() {
        assert_eq!(part(0, 0, TEN), WHOLE);
        assert_eq!(part(3000, 3000, TEN), WHOLE);
        // One is found a second after the others.
        assert_eq!(part(0, 1000, TEN), 50);
        assert_eq!(part(4000, 5000, TEN), 84);
        assert_eq!(part(9000, 10_000, TEN), WHOLE);
    }

    #[test]
    fn without_a_slow_start_no_server_is_given_less_load() {
        assert_eq!(part(0, LONG_MS, Duration::ZERO), WHOLE);
    }

    #[test]
    fn a_server_that_kept_connections_begins_with_their_part() {
        let begins = |own, others: &[f64]| (kept(own, others) * 100.0).round();
        assert_eq!(begins(20.0, &[30.0, 50.0]), 50.0);
        assert_eq!(begins(60.0, &[30.0, 50.0]), 100.0, "no more than all");
        assert_eq!(begins(0.0, &[30.0, 50.0]), 0.0);
        for nothing_to_compare in [&[][..], &[0.0, 0.0]] {
            assert_eq!(begins(5.0, nothing_to_compare), 0.0);
        }
    }

    #[test]
    fn a_long_start_takes_no_more_steps_than_hundredths() {
        let hour = Duration::from_secs(3600);
        let mut parts: Vec<u16> = (0..3600).map(|s| part(s * 1000, LONG_MS, hour)).collect();
        parts.dedup();
        assert_eq!(parts, (1..=WHOLE).collect::<Vec<_>>());
    }
}
