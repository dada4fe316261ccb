/// Of `commit/plan.rs`.
pub(crate) mod plan {
    /// A pool is nearly full from this part of its capacity on.
    pub(crate) const NEARLY_FULL: f64 = 0.9;
}

/// Of `commit/commitment.rs`.
pub(crate) mod commitment {
    use std::time::Duration;

    /// A plan without an answer from the sink for this long counts as lost.
    pub(crate) const UNANSWERED: Duration = Duration::from_secs(5);
    /// Pause after a failed plan; doubled with every further failure, up to the second constant.
    pub(crate) const FIRST_RETRY: Duration = Duration::from_millis(200);
    pub(crate) const LAST_RETRY: Duration = Duration::from_secs(5);
}

/// Of `commit/foreign.rs`.
pub(crate) mod foreign {
    use std::time::Duration;

    /// More foreign weight changes than this within [`MINUTE`] count as a fight over weights, and are answered
    /// at the interval of a known pool only.
    pub(crate) const FOREIGN_LIMIT: u32 = 5;
    pub(crate) const MINUTE: Duration = Duration::from_secs(60);
}
