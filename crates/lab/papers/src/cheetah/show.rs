//! Comparisons that the figures share.

use crate::outcome::{Comparison, Verdict};
use crate::{Provenance, Value};

/// A value of the paper beside ours; `why` is for where they differ.
pub fn compare(
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
        provenance: Provenance::Simulated,
        why: if verdict == Verdict::Agrees { String::new() } else { why.to_owned() },
    }
}
