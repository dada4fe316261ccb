//! What servers' counters tell by standing still.
//!
//! * A client that lost its power sends no FIN. When a server has had no packet, either way, for as long as a
//!   connection may be silent, none of its connections is alive.
//! * A server that drains keeps its part of the connections without timestamps, which cannot be distinguished from
//!   new ones. When it answers nothing of what it gets, it is no longer there, and others take its part.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tracing::warn;

use super::Balancer;
use crate::error::L4Error;
use crate::maps::MemberCount;

/// So many packets without any answer ...
const MUTE_PACKETS: u64 = 10;
/// ... and for so long: a server that answers does so within a delayed acknowledgment.
const MUTE_FOR: Duration = Duration::from_secs(10);

/// What is known of each place of `members`.
#[derive(Debug, Default)]
pub(super) struct Silence(BTreeMap<u32, Heard>);

#[derive(Debug)]
struct Heard {
    /// As last counted.
    count: MemberCount,
    /// When any packet was last counted.
    packet: Instant,
    /// Since when there are packets without an answer, and how many there were before.
    unanswered: (Instant, u64),
}

impl Silence {
    /// Takes a count of a place.
    fn take(&mut self, place: u32, count: MemberCount, now: Instant) -> &Heard {
        let new = Heard { count, packet: now, unanswered: (now, count.packets_in) };
        let heard = self.0.entry(place).or_insert(new);
        if heard.packets() != count.packets_in + count.packets_out {
            heard.packet = now;
        }
        let all_answered = heard.unanswered.1 == count.packets_in;
        if heard.count.packets_out != count.packets_out || all_answered {
            heard.unanswered = (now, count.packets_in);
        }
        heard.count = count;
        heard
    }
}

impl Heard {
    fn packets(&self) -> u64 {
        self.count.packets_in + self.count.packets_out
    }

    fn is_silent(&self, now: Instant, limit: Duration) -> bool {
        now.duration_since(self.packet) >= limit
    }

    fn is_mute(&self, now: Instant) -> bool {
        let (since, before) = self.unanswered;
        self.count.packets_in.saturating_sub(before) >= MUTE_PACKETS
            && now.duration_since(since) >= MUTE_FOR
    }
}

impl Balancer {
    /// Takes the connections of servers that are silent for ended, and looks which have become mute; whether
    /// one has, or is no longer.
    pub(super) fn listen(&mut self, now: Instant) -> Result<bool, L4Error> {
        let limit = Duration::from_millis(self.config.cookie.layout.silence_limit_ms());
        let stride = self.maps.meta().stride;
        let mut changed = false;
        for service in self.services.values_mut() {
            for (name, member) in &mut service.members {
                let place = service.number * stride + u32::from(member.id);
                let count = self.maps.count(place)?;
                if self.clocks.take(place, count.clock_moved, now) {
                    warn!(
                        service = service.vip.name,
                        backend = name,
                        "its clock moves from reply to reply: expected net.ipv4.tcp_timestamps=2 there, or its agent"
                    );
                }
                let heard = self.silence.take(place, count, now);
                if heard.is_silent(now, limit) {
                    self.maps.end_all(place)?;
                }
                // An agent's replies need not pass here, and which servers take SYNs is the policy's to say.
                let may_be = !member.value.agent && member.weight() == 0;
                // What is taken from it goes elsewhere: only an answer tells that it is back.
                let was = member.is_mute && heard.unanswered.0 != now;
                let is_mute = may_be && (was || heard.is_mute(now));
                changed |= is_mute != member.is_mute;
                member.is_mute = is_mute;
            }
        }
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(packets_in: u64, packets_out: u64) -> MemberCount {
        MemberCount { packets_in, packets_out, ..MemberCount::default() }
    }

    #[test]
    fn silence_begins_anew_with_every_packet() {
        let (mut silence, began) = (Silence::default(), Instant::now());
        let mut at = |place, packets, second| {
            let now = began + Duration::from_secs(second);
            let heard = silence.take(place, counted(packets, 0), now);
            heard.is_silent(now, Duration::from_secs(500))
        };
        assert!(!at(1, 7, 0));
        assert!(!at(1, 7, 499));
        assert!(!at(2, 7, 499), "a place of its own");
        assert!(at(1, 7, 500));
        assert!(!at(1, 8, 501), "a packet");
        assert!(!at(1, 8, 1000));
        assert!(at(1, 8, 1001));
    }

    #[test]
    fn a_server_is_mute_if_it_answers_none_of_many_packets_for_long() {
        let (mut silence, began) = (Silence::default(), Instant::now());
        let mut at = |packets_in, packets_out, second| {
            let now = began + Duration::from_secs(second);
            silence.take(1, counted(packets_in, packets_out), now).is_mute(now)
        };
        assert!(!at(5, 5, 0));
        assert!(!at(5, 5, 3000), "nothing was to be answered");
        assert!(!at(50, 5, 3001), "perhaps it will");
        assert!(!at(60, 6, 3005), "an answer");
        assert!(!at(69, 6, 3020), "too few to tell");
        assert!(at(70, 6, 3021));
        assert!(!at(70, 7, 3022));
    }
}
