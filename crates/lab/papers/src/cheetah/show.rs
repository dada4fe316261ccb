//! Comparisons that the figures share.

use crate::outcome::{Comparison, Verdict};
use crate::{Provenance, Value};

/// A value of the paper beside ours, which is simulated; `why` is for where they differ.
pub fn compare(
    what: &str,
    paper: impl Into<Value>,
    ours: impl Into<Value>,
    unit: &str,
    verdict: Verdict,
    why: &str,
) -> Comparison {
    compare_from(Provenance::Simulated, what, paper, ours, unit, verdict, why)
}

/// The same from elsewhere.
pub fn compare_from(
    provenance: Provenance,
    what: &str,
    paper: impl Into<Value>,
    ours: impl Into<Value>,
    unit: &str,
    verdict: Verdict,
    why: &str,
) -> Comparison {
    Comparison {
        what: what.to_owned(),
        paper: paper.into(),
        ours: ours.into(),
        unit: unit.to_owned(),
        verdict,
        provenance,
        why: if verdict == Verdict::Agrees { String::new() } else { why.to_owned() },
    }
}
