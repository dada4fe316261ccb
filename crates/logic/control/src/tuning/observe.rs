/// Of all of `observe`.
pub(crate) mod reports {
    use std::time::Duration;

    /// No plan is made from a report older than this.
    pub(crate) const STALE: Duration = Duration::from_secs(2);
}

/// Of `observe/pool.rs`.
pub(crate) mod pool {
    use std::time::Duration;

    /// After a change of weights, means are believed so long after the last one that could hold what was before it: the
    /// first requests of a new load meet shorter queues than later ones.
    pub(crate) const SETTLED: Duration = Duration::from_secs(2);
    /// The next plan is made from so much of them.
    pub(crate) const LOOKED_AT: Duration = Duration::from_secs(2);
    /// Factor per second by which the remembered peak decays: half after twelve minutes.
    pub(crate) const PEAK_FADES: f64 = 0.999;
    /// Growth of the remembered least response time, per second: a service can become slower for good.
    pub(crate) const TYPICAL_CREEP: f64 = 1.002;
}

/// Of `observe/traffic.rs`.
pub(crate) mod traffic {
    use std::time::Duration;

    /// Length of a window.
    pub(crate) const WINDOW: Duration = Duration::from_secs(1);
    /// Two reports further apart than this do not belong to one window: what happened in between is unknown.
    pub(crate) const GAP: Duration = Duration::from_secs(2);
    /// In-flight counts above this are counted as this.
    pub(crate) const MAX_IN_FLIGHT: usize = 511;
    /// Readings kept at most, and readings kept per service time: [`plimsoll_learn::LONG_BEFORE`] service times are the furthest look back.
    pub(crate) const MOST_PAST: usize = 512;
    pub(crate) const PAST_OF_SERVICE: f64 = 32.0;
    /// The most recent readings, which are searched linearly.
    pub(crate) const NEAR: usize = 8;
}
