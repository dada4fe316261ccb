//! Open connections, counted anew by what the program remembers: it adds each SYN at once, and what
//! takes another's place in `last` is only found out here. So a connection whose end is not seen is counted
//! until its place is another's: with as many SYNs a second as F, for some 65,536 / F seconds.

use std::time::{Duration, Instant};

use super::Balancer;
use crate::error::L4Error;

/// 128 reads of a map each.
const EVERY: Duration = Duration::from_secs(5);

/// When it was done last.
#[derive(Debug, Default)]
pub(super) struct Recounted(Option<Instant>);

impl Balancer {
    /// Writes what is remembered where it differs. What begins or ends in the same instant is found the next
    /// time.
    pub(super) fn recount(&mut self, now: Instant) -> Result<(), L4Error> {
        if self.recounted.0.is_some_and(|last| now.duration_since(last) < EVERY) {
            return Ok(());
        }
        self.recounted.0 = Some(now);
        let remembered = self.maps.remembered()?;
        let stride = self.maps.meta().stride;
        for service in self.services.values() {
            for member in service.members.values() {
                let place = service.number * stride + u32::from(member.id);
                let open = remembered.get(&place).copied().unwrap_or(0);
                if self.maps.open_connections(place)? != u64::from(open) {
                    self.maps.set_open(place, open)?;
                }
            }
        }
        Ok(())
    }
}
