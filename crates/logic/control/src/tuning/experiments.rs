/// Of `experiments/refresh.rs`.
pub(crate) mod refresh {
    use std::time::Duration;

    /// The part of all capacity that is measured at a time (KnapsackLB §4.5); one backend is always allowed.
    pub(crate) const SHARE: f64 = 0.05;
    /// The pool's load must be within this range: with too little there is nothing to learn from.
    pub(crate) const LOAD: (f64, f64) = (0.1, 0.9);
    /// A measurement lasts for this many requests, within these times.
    pub(crate) const REQUESTS: f64 = 300.0;
    pub(crate) const LEAST: Duration = Duration::from_secs(10);
    pub(crate) const MOST: Duration = Duration::from_secs(30);
    /// Pauses between two measurements of one backend.
    pub(crate) const FIRST_WAIT: Duration = Duration::from_secs(3 * 60);
    pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(4 * 3600);
    /// A capacity that moved by less than this is no news.
    pub(crate) const NEWS: f64 = 0.03;
    /// A capacity with a smaller error is not measured.
    pub(crate) const WELL_KNOWN: f64 = 0.06;
    /// The load is raised by this factor, up to this part of the estimated capacity.
    pub(crate) const RAISE: f64 = 1.3;
    pub(crate) const CLOSEST: f64 = 0.92;
    /// A backend without traffic for this long is no longer known: its probes show its unloaded service time only.
    pub(crate) const FORGOTTEN: Duration = Duration::from_secs(20 * 60);
    /// A backend that has just changed is not measured for this long.
    pub(crate) const SETTLES: Duration = Duration::from_secs(120);
    /// A parked backend is given this part of its capacity.
    pub(crate) const PARKED_LOAD: f64 = 0.3;
}

/// Of `experiments/drain.rs`.
pub(crate) mod drain {
    use std::time::Duration;

    /// Drain times kept; the greatest of them counts.
    pub(crate) const KEPT: usize = 8;
    /// A drain that has not ended by then counts as this long: some connections never end.
    pub(crate) const LONGEST: Duration = Duration::from_secs(600);
    /// Measurements wait for a drain at least this long: windows of the balancer last a second.
    pub(crate) const LEAST_WAITED: Duration = Duration::from_secs(1);
    /// The same at most.
    pub(crate) const MOST_WAITED: Duration = Duration::from_secs(60);
}
