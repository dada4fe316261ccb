use plimsoll_control::{Record, RecordKind};

/// What the controller made of a backend that seemed to work at another rate than was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has changed: its curve is rescaled, and new weights follow at once.
    Changed,
    /// It may have, or has other cores than believed: it is learned anew from its own traffic.
    MayHaveChanged,
    /// It completes more than it was thought to bear: its curve is rescaled.
    Underestimated,
}

impl Verdict {
    /// Read from a record; nothing where it is about something else.
    pub fn of(record: &Record) -> Option<Verdict> {
        match record.kind {
            RecordKind::Drift => Some(Verdict::Changed),
            RecordKind::Doubted => Some(Verdict::MayHaveChanged),
            RecordKind::Underestimated => Some(Verdict::Underestimated),
            _ => None,
        }
    }
}
