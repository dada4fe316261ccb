use plimsoll_control::{Record, RecordKind};

/// The controller's judgement of a backend whose service rate seems to have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its service rate has changed: its curve is rescaled, and new weights follow at once.
    Changed,
    /// It may have changed, or the estimate of its cores is wrong: it is learned again from its own traffic.
    MayHaveChanged,
    /// It completes more than its estimated capacity: its curve is rescaled.
    Underestimated,
}

impl Verdict {
    /// The judgement in a record; `None` if the record is about something else.
    pub fn of(record: &Record) -> Option<Verdict> {
        match record.kind {
            RecordKind::Drift => Some(Verdict::Changed),
            RecordKind::Doubted => Some(Verdict::MayHaveChanged),
            RecordKind::Underestimated => Some(Verdict::Underestimated),
            _ => None,
        }
    }
}
