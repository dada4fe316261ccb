/// Of `propose/split.rs`.
pub(crate) mod split {
    /// Requests above this many times what a backend serves at once are a backlog, to be drained …
    pub(crate) const CALM_QUEUE: f64 = 3.0;
    /// … within this many seconds, …
    pub(crate) const DRAIN_S: f64 = 3.0;
    /// … as far as this part of the pool's spare capacity allows.
    pub(crate) const SPARE_FOR_QUEUES: f64 = 0.8;
    /// A backend of unknown capacity may get this part of the capacity of one core at the pool's median speed.
    pub(crate) const FIRST_LOAD: f64 = 0.5;
    /// In a known pool the load of a backend with a lower bound grows by at most this factor.
    pub(crate) const CALM_STEP: f64 = 1.25;
    /// Weights are never further from their shares than this, where closer ones exist, …
    pub(crate) const ROUNDING: f64 = 0.02;
    /// … nor do they cost more than this multiple of the shares themselves, by the curves, …
    pub(crate) const COSTLY: f64 = 1.02;
    /// … nor load any backend to more than this multiple of its capacity.
    pub(crate) const OVERLOADED: f64 = 1.003;
    /// A load is at its bound from this part of it on.
    pub(crate) const AT_BOUND: f64 = 0.99;
    /// A change of weights should take effect within this many seconds …
    pub(crate) const ROUND_S: f64 = 5.0;
    /// … but the greatest weight is never below this: rounding would cost more than that gains.
    pub(crate) const PRECISE: u32 = 40;
    /// While growth is bounded, the pool must be able to carry this multiple of its traffic …
    pub(crate) const HEADROOM: f64 = 1.05;
    /// … and no bound is raised by more than this factor for that.
    pub(crate) const MOST_STRETCH: f64 = 8.0;
    /// The service time when none is known: 100 ms.
    pub(crate) const UNKNOWN_SERVICE_US: f64 = 100_000.0;
    /// With a bound theta the pool must carry this multiple of the traffic: loads may be packed on a grid.
    pub(crate) const WITH_ROOM: f64 = 1.01;
    /// A backend measured at more than this part of its capacity would be overloaded by any loss.
    pub(crate) const NEAR_BOUND: f64 = 0.5;
    /// Pinned loads make up at most this part of the traffic.
    pub(crate) const MOST_PINNED: f64 = 0.95;
}

/// Of `propose/in_flight.rs`.
pub(crate) mod in_flight {
    /// Exponent of the closed loop: below 1, so that it converges.
    pub(crate) const GAIN: f64 = 0.7;
    /// Bounds on the factor of one step.
    pub(crate) const STEP: (f64, f64) = (0.5, 2.0);
    /// Below this multiple of its unloaded service time a backend has no queue.
    pub(crate) const CALM: f64 = 1.25;
    /// A backend without a queue is weighted for this much more …
    pub(crate) const RAISE: f64 = 1.5;
    /// … up to this multiple of its observed throughput.
    pub(crate) const OFFERED: f64 = 4.0;
    /// A throughput above this multiple of the one when it was offered plenty means that it has grown.
    pub(crate) const GROWN: f64 = 1.2;
}

/// Of `propose/search.rs`.
pub(crate) mod search {
    use std::ops::RangeInclusive;

    /// The largest weight used under leastconn, of 256: HAProxy's key is `(n + 1)·256 / weight` in integers, so greater
    /// weights make coarser keys.
    pub(crate) const LEASTCONN_SCALE: f64 = 128.0;
    /// Simulated requests per candidate and backend, and the bounds of their sum.
    pub(crate) const REQUESTS_EACH: u32 = 1_300;
    pub(crate) const REQUESTS: RangeInclusive<u32> = 8_000..=40_000;
    /// The search ends after this many candidates that were worse than the best.
    pub(crate) const PATIENCE: u32 = 2;
    /// The weights in force are kept unless others promise this much gain.
    pub(crate) const MIN_CHANGE_GAIN: f64 = 0.01;
    /// Fewer servers in use must promise this much gain over more: a model is only a model.
    pub(crate) const MIN_GAIN: f64 = 0.005;
    /// Loads and capacities within this are the same question.
    pub(crate) const SAME: f64 = 0.08;
}

/// Of `propose/reserve.rs`.
pub(crate) mod reserve {
    /// After the loss of a server the others are planned to at most this part of their capacity, because estimates of
    /// capacity and traffic are off by some percent.
    pub(crate) const AFTER_A_LOSS: f64 = 0.93;
    /// How far shares move towards those in proportion to capacity until the integer weights survive a loss: the response
    /// time is flat around the best shares, so small steps cost next to nothing.
    pub(crate) const BLENDS: [f64; 8] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0];
}

/// Of `propose/backlog.rs`.
pub(crate) mod backlog {
    /// Passes in which load above a backend's bound is given to the others.
    pub(crate) const SWEEPS: usize = 3;
}
