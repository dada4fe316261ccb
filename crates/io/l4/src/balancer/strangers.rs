//! Segments from a VIP by a MAC address of none of its servers. The program drops them: a server has another address
//! than the kernel knows. One that says so is followed at once; for one that does not, all of the link is asked.

use std::collections::BTreeMap;

use super::Balancer;
use crate::error::L4Error;
use crate::network;
use crate::place::known;
use crate::reason::REASONS;

/// How many have come, by the number of the VIP.
#[derive(Debug, Default)]
pub(super) struct Strangers(BTreeMap<u32, u64>);

impl Strangers {
    /// Whether more have come since this was last asked.
    fn have_come(&mut self, vip: u32, count: u64) -> bool {
        self.0.insert(vip, count).is_some_and(|before| count > before)
    }
}

impl Balancer {
    /// Has the kernel ask for the MAC addresses of servers of which one seems to have another now. The answers are
    /// taken up as they come.
    pub(super) fn query_moved_servers(&mut self) -> Result<(), L4Error> {
        let reason = REASONS.iter().position(|name| *name == "unknown_source").expect("a reason");
        let mut servers = Vec::new();
        for service in self.services.values() {
            let count = self.maps.reason(service.number, reason)?;
            if self.strangers.have_come(service.number, count) {
                servers.extend(service.members.values());
            }
        }
        if servers.is_empty() {
            return Ok(());
        }
        let neighbours = network::neighbours()?;
        for server in servers {
            let sought = server.backend.as_ref().filter(|backend| backend.mac.is_none());
            let held = sought.and_then(|one| known(&neighbours, one.address, server.value.ifindex));
            if let Some(held) = held.filter(|held| !held.fixed) {
                // One that the kernel has forgotten meanwhile is asked for at the next look.
                let _ = network::seek_neighbour(held.address, held.ifindex);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_counted_before_a_daemon_starts_are_no_reason_to_ask() {
        let mut strangers = Strangers::default();
        assert!(!strangers.have_come(0, 7));
        assert!(!strangers.have_come(0, 7));
        assert!(strangers.have_come(0, 8));
        assert!(!strangers.have_come(1, 8), "of another service");
        assert!(!strangers.have_come(0, 8));
    }
}
