/// Of `backend.rs`.
pub(crate) mod backend {
    use std::time::Duration;

    /// A backend with more than `a·cores + b` requests in flight is overloaded.
    pub(crate) const OVERRUN: (f64, f64) = (4.0, 10.0);
    /// Weight of the past per window in smoothed response times.
    pub(crate) const FADING: f64 = 0.8;
    /// They are of so many requests at least …
    pub(crate) const ENOUGH: f64 = 10.0;
    /// … for which the past weighs more, but no more than this.
    pub(crate) const SLOWEST_FADING: f64 = 0.98;
    /// A backend without an answer for this long hangs.
    pub(crate) const HUNG: Duration = Duration::from_secs(2);
    /// The estimated capacity is too low when the backend completes more for some ten seconds, by this part of it
    /// and by this many standard deviations.
    pub(crate) const EXCESS: f64 = 0.1;
    pub(crate) const EXCESS_SIGMA: f64 = 6.0;
    pub(crate) const EXCESS_KEPT: f64 = 0.9;
    /// A backend with less traffic than this part of its capacity is idle.
    pub(crate) const IDLE: f64 = 0.05;
    /// Where slow start begins, as a part of the full share.
    pub(crate) const RAMP_START: f64 = 0.1;
}

/// Of `members/health.rs`.
pub(crate) mod health {
    use std::time::Duration;

    /// Consecutive successful check rounds before a failed backend returns; doubled with every failure within
    /// [`FLAP_MEMORY`] of a return.
    pub(crate) const ROUNDS_TO_RETURN: u32 = 3;
    /// The doubling stops here: at 250 ms per round, 12 s.
    pub(crate) const MAX_ROUNDS_TO_RETURN: u32 = 48;
    /// Probes are rarer than check rounds: this many successes in a row are always enough.
    pub(crate) const MAX_PROBES_TO_RETURN: u32 = 12;
    /// A failure this soon after a return counts as flapping.
    pub(crate) const FLAP_MEMORY: Duration = Duration::from_secs(60);
    /// A backend that failed clients, by errors or by silence, is not returned by its checks before this time, …
    pub(crate) const FIRST_EJECTION: Duration = Duration::from_secs(5);
    /// … doubled with every such failure before it has served well for [`FLAP_MEMORY`] or for as long as it was out, up to
    /// this (Envoy's default maximum): its checks pass while clients get errors, so every return costs some requests.
    pub(crate) const LONGEST_EJECTION: Duration = Duration::from_secs(300);
    /// Where the balancer's own check has passed for this long while connections from here were refused, the connections are
    /// wrong: time for three checks 10 s apart to fail (HAProxy's defaults are `fall 3`, `inter 2s`).
    pub(crate) const OUTVOTED_AFTER: Duration = Duration::from_secs(30);
    /// Consecutive failed probes of the work URL before the backend counts as failed; more for time-outs, because an
    /// overloaded backend is slow, not dead.
    pub(crate) const PROBES_TO_FAIL: u32 = 3;
    pub(crate) const TIMEOUTS_TO_FAIL: u32 = 8;
    /// A backend with at least this share of errors among its answers is a candidate for ejection …
    pub(crate) const ERROR_SHARE: f64 = 0.10;
    /// … if it has recently given at least this many wrong answers.
    pub(crate) const MIN_ERRORS: f64 = 5.0;
    /// Weight of the past in the moving share of errors, per window of a second.
    pub(crate) const ERROR_DECAY: f64 = 0.7;
}

/// Of `members/life.rs`.
pub(crate) mod life {
    use std::time::Duration;

    /// A silence sets a backend aside after no less than this, whatever its past, …
    pub(crate) const LEAST_ASIDE: Duration = Duration::from_millis(500);
    /// … and after no more than this, also while its past is too short: 2 s after the first unanswered request, of which
    /// two readings and a plan take a part.
    pub(crate) const MOST_ASIDE: Duration = Duration::from_millis(1_850);
    /// A backend that may only be pausing is declared failed after no less than this, which makes 2 s, …
    pub(crate) const LEAST_FAILED: Duration = Duration::from_millis(1_850);
    /// … and after no more than this, which makes 10 s, unless it is known to need longer.
    pub(crate) const MOST_FAILED: Duration = Duration::from_millis(9_850);
    /// Upper bound on the wait for an answer, whatever the backlog.
    pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
    /// A silence is unusual from this multiple of the longest pause on, …
    pub(crate) const BEYOND: f64 = 1.5;
    /// … and certain to be a failure from this one on.
    pub(crate) const BEYOND_DOUBT: f64 = 3.0;
    /// A silence is evidence of a dead backend, and not of one long request, once this many answers are missing at the
    /// former rate.
    pub(crate) const MISSED: f64 = 10.0;
    /// The rate of answers is averaged over this many seconds.
    pub(crate) const PACE_S: f64 = 10.0;
    /// The usual wait for the next answer is the mean over this many readings with answers, and no backend is set aside for
    /// a silence that is shorter than so many of them. (Quotas that make a request take seconds, 48 runs: with two of
    /// them the mean under roundrobin is 1.13 to 1.3 times as long, and twice as many requests are given up.)
    pub(crate) const USUAL_OVER: f64 = 8.0;
    /// The past is too short to judge by until the backend has answered for this long.
    pub(crate) const PAST: Duration = Duration::from_secs(60);
    /// The longest pause is that of the last two of these periods: half an hour to an hour.
    pub(crate) const REMEMBERED: Duration = Duration::from_secs(1_800);
    /// A backend that answered clients within this time has traffic: it needs no checks, and none is believed against it.
    pub(crate) const LATELY: Duration = Duration::from_secs(2);
    /// Between two readings further apart than this it is unknown when answers came.
    pub(crate) const GAP: Duration = Duration::from_secs(1);
    /// This many consecutive requests that fail immediately, without an answer between, indicate a dead server; so many more
    /// for each that is in flight and may be waiting.
    pub(crate) const BROKEN: u64 = 3;
}

/// Of `members/silence.rs`.
pub(crate) mod silence {
    /// A silence of at least this part of the time to set aside counts when several backends are silent at once.
    pub(crate) const SUSPECT: f64 = 0.5;
}

/// Of `members/pool_health.rs`.
pub(crate) mod pool_health {
    /// At most this part of the pool is ejected for errors.
    pub(crate) const MOST_EJECTED: f64 = 0.34;
    /// A backend whose answers take this multiple of its unloaded service time is overloaded, whatever it answers: ejecting
    /// it would only overload the next.
    pub(crate) const SLOW: f64 = 3.0;
}

/// Of `members/asking.rs`.
pub(crate) mod asking {
    use std::time::Duration;

    /// The part of a backend's capacity that checks and probes may cost.
    pub(crate) const BUDGET: f64 = 0.01;
    /// Interval of checks of a backend that has failed, or may have.
    pub(crate) const SUSPECT: Duration = Duration::from_millis(250);
    /// Interval of bare connections to a backend without traffic: they cost next to nothing.
    pub(crate) const IDLE: Duration = Duration::from_secs(1);
    /// The first checks and probes of a backend whose capacity is unknown: their number, and their interval.
    pub(crate) const FIRST: u32 = 5;
    pub(crate) const FIRST_INTERVAL: Duration = Duration::from_secs(5);
    /// Requests per second that a backend of unknown capacity is taken to serve at least.
    pub(crate) const ASSUMED_RPS: f64 = 1.0;
    /// A bound on intervals.
    pub(crate) const LONGEST_S: f64 = 36_000.0;
    /// Traffic of less than this many seconds shows no throughput; the greatest one fades by this factor per window.
    pub(crate) const CARRIED_S: f64 = 5.0;
    pub(crate) const CARRIED_FADES: f64 = 0.9995;
    /// If requests wait this long without any answer, the backend is checked by a bare connection, …
    pub(crate) const LOOKED_INTO: Duration = Duration::from_millis(100);
    /// … and, where checks are requests, after this part of the time after which it is set aside.
    pub(crate) const LOOKED_INTO_AT_COST: f64 = 0.5;
    /// The time of a probe is the mean of this many.
    pub(crate) const PROBES_KEPT: f64 = 20.0;
    /// An interval is changed only by at least this factor.
    pub(crate) const WORTH_CHANGING: f64 = 1.25;
}
