//! Servers that a balancer no longer has, until the next look at its servers shows that they have left.

use std::time::Instant;

use plimsoll_sink::SinkReport;

use super::looker::shown_by;

/// Since when servers have been missing in balancers that are asked for theirs.
#[derive(Debug, Default)]
pub struct Leaving {
    /// In all of them.
    whole: Option<Instant>,
    /// In some of several.
    part: Option<Instant>,
}

impl Leaving {
    /// Whether a report is held back: one that the balancer has no more may have left, and the next look at its servers,
    /// so many, will show it.
    pub fn holds_back(&mut self, report: &SinkReport, servers: usize) -> bool {
        let (since, loss) = match report {
            SinkReport::Read(..) => (&mut self.whole, None),
            SinkReport::Lost(loss) => (&mut self.whole, Some(loss)),
            SinkReport::Degraded(loss) => (&mut self.part, loss.as_ref()),
            SinkReport::Applied(_)
            | SinkReport::Failed(..)
            | SinkReport::Sharing(_)
            | SinkReport::Divided(_)
            | SinkReport::Note(_) => return false,
        };
        if loss.is_some_and(|loss| loss.absent) {
            return since.get_or_insert_with(Instant::now).elapsed() < shown_by(servers);
        }
        *since = None;
        false
    }
}
