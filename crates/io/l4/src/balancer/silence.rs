//! Connections that end without a word: a client that lost its power sends no FIN. When a server has had
//! no packet, either way, for as long as a connection may be silent, none of its connections is alive.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Balancer;
use crate::error::L4Error;

/// Packets of each place of `members`, and when their number was first seen.
#[derive(Debug, Default)]
pub(super) struct Silence(BTreeMap<u32, (u64, Instant)>);

impl Silence {
    /// Whether a place has been silent for as long as `limit`.
    fn is_over(&mut self, place: u32, packets: u64, now: Instant, limit: Duration) -> bool {
        let last = self.0.entry(place).or_insert((packets, now));
        if last.0 != packets {
            *last = (packets, now);
        }
        now.duration_since(last.1) >= limit
    }
}

impl Balancer {
    /// Takes the connections of servers that are silent for ended.
    pub(super) fn end_silent(&mut self, now: Instant) -> Result<(), L4Error> {
        let limit = Duration::from_millis(self.config.cookie.layout.silence_limit_ms());
        let stride = self.maps.meta().stride;
        for service in self.services.values() {
            for member in service.members.values() {
                let place = service.number * stride + u32::from(member.id);
                let count = self.maps.count(place)?;
                let packets = count.packets_in + count.packets_out;
                if self.silence.is_over(place, packets, now, limit)
                    && self.maps.open_connections(place)? > 0
                {
                    self.maps.set_open(place, 0)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_begins_anew_with_every_packet() {
        let (mut silence, began) = (Silence::default(), Instant::now());
        let mut at = |place, packets, second| {
            let now = began + Duration::from_secs(second);
            silence.is_over(place, packets, now, Duration::from_secs(500))
        };
        assert!(!at(1, 7, 0));
        assert!(!at(1, 7, 499));
        assert!(!at(2, 7, 499), "a place of its own");
        assert!(at(1, 7, 500));
        assert!(!at(1, 8, 501), "a packet");
        assert!(!at(1, 8, 1000));
        assert!(at(1, 8, 1001));
    }
}
