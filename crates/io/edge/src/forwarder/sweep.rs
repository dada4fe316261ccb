//! Forgets flows that are idle. Where the table fills, those with packets one way alone go early: they are what a
//! flood is made of.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tracing::warn;

use super::kernel::{Programs, Swept};
use super::{Shared, TableStatus, lock};
use crate::config::Flows;

/// A walk through a million entries takes a CPU about a tenth of a second.
const EVERY: Duration = Duration::from_secs(5);
const EVERY_WHEN_FULL: Duration = Duration::from_secs(1);
/// As conntrack forgets UDP without a reply.
const UNANSWERED: Duration = Duration::from_secs(30);
const UNANSWERED_WHEN_FULL: Duration = Duration::from_secs(2);
/// Full enough to be hasty.
const FULL: f64 = 0.8;
const BLINK: Duration = Duration::from_millis(50);

fn seconds(span: Duration) -> u32 {
    u32::try_from(span.as_secs()).unwrap_or(u32::MAX).max(1)
}

/// How often to walk, and how long flows without an answer are kept, with such a table.
fn pace(swept: Swept, flows: Flows) -> (Duration, Duration) {
    let most = swept.entries4.max(swept.entries6);
    let full = f64::from(most) >= FULL * f64::from(flows.limit);
    let (every, unanswered) =
        if full { (EVERY_WHEN_FULL, UNANSWERED_WHEN_FULL) } else { (EVERY, UNANSWERED) };
    (every.min(flows.idle / 4), unanswered.min(flows.idle))
}

pub(super) fn run(programs: &Programs, flows: Flows, shared: &Shared) {
    let (mut every, mut unanswered) = pace(Swept::default(), flows);
    let mut next = Instant::now();
    while !shared.stop.load(Ordering::Relaxed) {
        std::thread::sleep(BLINK);
        if Instant::now() < next {
            continue;
        }
        match programs.sweep(seconds(flows.idle), seconds(unanswered)) {
            Ok(swept) => {
                let Swept { entries4, entries6, answered, .. } = swept;
                *lock(&shared.table) =
                    TableStatus { limit: flows.limit, entries4, entries6, answered, ended: 0 };
                (every, unanswered) = pace(swept, flows);
            }
            Err(error) => warn!("cannot walk through the flow table: {error}"),
        }
        next = Instant::now() + every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_forgets_flows_without_an_answer_soon() {
        let flows = Flows { limit: 1000, idle: Duration::from_secs(300) };
        let with =
            |entries4, entries6| pace(Swept { entries4, entries6, ..Swept::default() }, flows);
        assert_eq!(with(799, 0), (EVERY, UNANSWERED));
        assert_eq!(with(800, 0), (EVERY_WHEN_FULL, UNANSWERED_WHEN_FULL));
        assert_eq!(with(0, 1000), (EVERY_WHEN_FULL, UNANSWERED_WHEN_FULL));
        let short = Flows { limit: 1000, idle: Duration::from_secs(2) };
        let (every, unanswered) = pace(Swept::default(), short);
        assert!(every <= Duration::from_millis(500) && unanswered <= short.idle);
    }
}
