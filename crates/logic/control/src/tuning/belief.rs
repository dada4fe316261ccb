/// Of `belief/drift.rs`.
pub(crate) mod drift {
    use std::time::Duration;

    /// If the estimate of the cores differs from the detector's by more than this part (known; lower bound) …
    pub(crate) const OTHER_CORES: (f64, f64) = (0.1, 0.5);
    /// … for this long, the detector is replaced, because its measure of work is wrong.
    pub(crate) const LASTING_S: f64 = 15.0;
    /// An estimate of the cores within this part is the same, and it is certain after this time without another.
    pub(crate) const SAME_CORES: f64 = 0.1;
    pub(crate) const SURE_S: f64 = 60.0;
    /// For this long after a backend's first estimate its load and the estimate of its cores still move, and one can be
    /// mistaken for the other.
    pub(crate) const LEARNING: Duration = Duration::from_secs(120);
    /// A change must last this long, and this multiple of the longest pause.
    pub(crate) const LASTING_CHANGE_S: f64 = 3.0;
    pub(crate) const PAUSES: f64 = 3.0;
    /// Changes of several backends within this time have a common cause …
    pub(crate) const TOGETHER: Duration = Duration::from_secs(30);
    /// … and a detector with at least this part of the evidence counts as one of them.
    pub(crate) const SUSPECT: f64 = 0.4;
    /// Under quotas the others share a change if their work makes it more likely than none by this log likelihood.
    pub(crate) const SHARED_NATS: f64 = 2.0;
    /// A backend that is relearned has become faster if its capacity grows by this factor within this time.
    pub(crate) const GROWN_BY: f64 = 1.15;
    pub(crate) const RELEARNING: Duration = Duration::from_secs(120);
    /// An increase of the rate is reduced by this many standard errors: alarms come from samples that exaggerate.
    pub(crate) const CAUTION: f64 = 2.0;
    /// A curve is rescaled by at most this factor at once.
    pub(crate) const MOST: f64 = 5.0;
}

/// Of `belief/variability.rs`.
pub(crate) mod variability {
    /// Weight of the prior that arrivals and service are exponential, in requests.
    pub(crate) const PRIOR_REQUESTS: f64 = 100.0;
    /// A request's contribution to the denominator at half the load of one core: `(1 − ρ)²` times the wait's part of the
    /// latency, squared.
    pub(crate) const AT_HALF_LOAD: f64 = 0.25 * 0.25;
    /// Bounds of the factor.
    pub(crate) const VARIABILITY: (f64, f64) = (0.05, 20.0);
    /// A point with this many requests is worth half as much as one with any number.
    pub(crate) const HALF_WORTH: f64 = 100.0;
    /// Fewest points for cross-validation.
    pub(crate) const LEAST_VALIDATED: usize = 4;
}

/// Of `belief/grain.rs`.
pub(crate) mod grain {
    /// A quota's usual period, microseconds.
    pub(crate) const SLOW_US: f64 = 100_000.0;
    /// Work is lasting after this time, two of the usual periods, …
    pub(crate) const LASTS_S: f64 = 0.2;
    /// … and after this many service times: an expensive request makes a long stretch, too.
    pub(crate) const LASTS_SERVICES: f64 = 20.0;
    /// Seconds per stratum.
    pub(crate) const STRATUM_S: f64 = 10.0;
    /// Weight of earlier strata with every new one.
    pub(crate) const STRATA_KEPT: f64 = 0.97;
    /// There is a quota if lasting work is done at less than this part of the rate of beginning work, by this many standard
    /// errors; and none from the third number on, once the ratio is known this well.
    pub(crate) const HELD: f64 = 0.7;
    pub(crate) const HELD_ERRORS: f64 = 3.0;
    pub(crate) const NOT_HELD: f64 = 0.85;
    pub(crate) const NOT_HELD_ERROR: f64 = 0.1;
    /// Up to this many requests at a time are few; above, several.
    pub(crate) const FEW: u32 = 2;
    pub(crate) const SEVERAL: u32 = 4;
    /// If others of the pool have quotas, a backend that serves several requests at a time no faster than this, known this
    /// well, is taken to have one as well.
    pub(crate) const NO_FASTER: f64 = 1.3;
    pub(crate) const NO_FASTER_ERROR: f64 = 0.25;
    /// Least completions for a rate.
    pub(crate) const ENOUGH: f64 = 25.0;
    /// Completions that a rate remembers.
    pub(crate) const MEMORY: f64 = 3_000.0;
    /// Lasting work is gathered in blocks of this time, …
    pub(crate) const BLOCK_S: f64 = 1.0;
    /// … of which so many are recent. (Seconds without lasting work make no block.)
    pub(crate) const RECENT: usize = 30;
    /// Log likelihood by which the rates before and after a change differ: it is tested forty times a second, over thirty
    /// spans.
    pub(crate) const OTHER: f64 = 14.0;
    /// After a change that most of the pool shares, former work counts for this many seconds. In time and not in
    /// completions, so that all capacities move alike and the shares stay.
    pub(crate) const SHARED_S: f64 = 60.0;
    /// With less than this part of ten seconds in lasting work, the quota does not limit the backend.
    pub(crate) const AT_EASE: f64 = 0.05;
    /// Step by which the capacity is raised again for a backend that had more before and is not limited now.
    pub(crate) const STEP: f64 = 1.25;
    /// Bounds on the dispersion of completions, relative to a Poisson process.
    pub(crate) const SCATTER: (f64, f64) = (0.5, 5.0);
    /// The dispersion is measured in batches of lasting work of ten periods, so that their ends matter little, …
    pub(crate) const BATCH_S: f64 = 1.0;
    /// … of which it remembers so many.
    pub(crate) const SCATTER_MEMORY: f64 = 100.0;
}

/// Of `belief/typical.rs`.
pub(crate) mod typical {
    /// Standard error of a median over that of the mean: √(π/2).
    pub(crate) const MIDDLE_ERROR: f64 = 1.25;
}

/// Of `belief/points.rs`.
pub(crate) mod points {
    /// Points kept per backend; the oldest is dropped first.
    pub(crate) const MAX_POINTS: usize = 24;
    /// Loads closer than this, relatively, are one point.
    pub(crate) const SAME_LOAD: f64 = 0.06;
    /// A point counts at most this many requests before older ones fade.
    pub(crate) const POINT_MEMORY: f64 = 4_000.0;
    /// Bounds on latency, microseconds, and load, requests per second: a point beyond them was rescaled without measure.
    pub(crate) const LONGEST_US: f64 = 1e12;
    pub(crate) const RATES_RPS: std::ops::Range<f64> = 1e-6..1e12;
}

/// Of `belief/knowledge.rs`.
pub(crate) mod knowledge {
    /// A fitted family replaces the queue when the queue's cross-validated error exceeds the first, the family's is below
    /// the second times the queue's, and its capacity is within the third of the throughput's.
    pub(crate) const RESIDUAL_LIMIT: f64 = 0.15;
    pub(crate) const CLEARLY_BETTER: f64 = 0.6;
    pub(crate) const SAME_CAPACITY: f64 = 0.15;
    /// The least response time is taken over this many requests, decays at this rate, and is this close to the unloaded
    /// service time, relatively.
    pub(crate) const ENOUGH: f64 = 100.0;
    pub(crate) const LEAST_CREEP: f64 = 1.005;
    pub(crate) const LEAST_IS_NEAR: f64 = 0.15;
    /// Stands for: no response time was observed.
    pub(crate) const NEVER_US: f64 = 1e12;
    /// Relative standard deviation of a backend's unloaded service time from that of the pool.
    pub(crate) const LIKE_THE_OTHERS: f64 = 0.3;
    /// Weight of the pool's variability as a prior, in requests at half load. (Six backends after a change, 16 runs: with
    /// 300 and with 3,000 clients waited up to 1 % longer.)
    pub(crate) const ALIKE_REQUESTS: f64 = 1_000.0;
    /// A lower bound this far above the known capacity shows that the backend has grown.
    pub(crate) const GROWN: f64 = 1.15;
    /// After a change, earlier measurements count as this many requests and probes, with this error.
    pub(crate) const RESCALED_REQUESTS: f64 = 300.0;
    pub(crate) const RESCALED_POINT: f64 = 50.0;
    pub(crate) const RESCALED_PROBES: f64 = 5.0;
    pub(crate) const RESCALED_ERROR: f64 = 0.06;
    /// A measured unloaded service time is dropped once it was rescaled by this factor in total without a new measurement:
    /// nothing corrects it, and errors of the factors multiply.
    pub(crate) const RESCALED_TOO_FAR: f64 = 10.0;
    /// Requests that are remembered of a backend that may have become faster.
    pub(crate) const RELEARNED_REQUESTS: f64 = 2_000.0;
    /// The cores are certain where one more or less fits worse by this much, squared: four standard deviations.
    pub(crate) const SURE: f64 = 16.0;
    /// A rate follows the expected one if it is within this many standard deviations of noise.
    pub(crate) const NOISE: f64 = 4.0;
    /// A capacity is known when its relative standard error is below this.
    pub(crate) const KNOWN: f64 = 0.15;
    /// Factor on a capacity that is only a lower bound, for packing.
    pub(crate) const OPTIMISM: f64 = 1.5;
}
