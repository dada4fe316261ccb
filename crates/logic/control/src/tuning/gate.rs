/// Of `gate/decide.rs`.
pub(crate) mod decide {
    use std::time::Duration;

    /// Time between decisions while exploring, …
    pub(crate) const EXPLORE_EVERY: Duration = Duration::from_secs(4);
    /// … while a backend is overloaded, …
    pub(crate) const RESCUE_EVERY: Duration = Duration::from_secs(2);
    /// … and when the pool is known.
    pub(crate) const STEADY_EVERY: Duration = Duration::from_secs(10);
    /// The first decision waits this long for windows.
    pub(crate) const FIRST_LOOK: Duration = Duration::from_millis(1_500);
    /// For this long after the start traffic counted over a moment does not override the rate of the last plan.
    pub(crate) const FIRST_RATES: Duration = Duration::from_secs(4);
    /// The longest wait for a window under the weights in force.
    pub(crate) const LATE_WINDOW: Duration = Duration::from_secs(5);
    /// A new decision is due when traffic differs by more than this from the rate of the last plan.
    pub(crate) const RATE_CHANGED: f64 = 0.08;
    /// After a fall of the traffic this part of the recent peak is still planned for, up to that part of the capacity
    /// (`READY` under an in-flight method).
    pub(crate) const RETURNING: f64 = 0.6;
    pub(crate) const READY: f64 = 0.9;
    pub(crate) const MOST_RETURNING: f64 = 0.8;
    /// Weights of an in-flight method are sought for so many times the present rate: parked backends must be back before
    /// the load needs them.
    pub(crate) const AHEAD: f64 = 1.03;
    /// The longest time in which the lightest server may get a turn that changes of weights wait for, seconds.
    pub(crate) const LONGEST_TURN_S: f64 = 60.0;
    /// Below this many requests per second there is nothing to learn or gain.
    pub(crate) const IDLE_RPS: f64 = 0.5;
}

/// Of `gate/phase.rs`.
pub(crate) mod phase {
    use std::time::Duration;

    /// Exploring ends after this many consecutive decisions that moved less than this part of the traffic …
    pub(crate) const SETTLED: u32 = 2;
    pub(crate) const NEXT_TO_NOTHING: f64 = 0.03;
    /// … or after this time.
    pub(crate) const MAX_EXPLORING: Duration = Duration::from_secs(150);
    /// A pool stays short of capacity until its traffic is below this part of the capacity.
    pub(crate) const ENOUGH_ROOM: f64 = 0.95;
}

/// Of `gate/trial.rs`.
pub(crate) mod trial {
    use std::time::Duration;

    /// Windows kept: two minutes.
    pub(crate) const KEPT: usize = 120;
    /// Windows compared before and after a plan.
    pub(crate) const COMPARED: usize = 12;
    /// Time for the queues of the old weights to drain.
    pub(crate) const SETTLE: Duration = Duration::from_secs(3);
    /// An increase below this factor is not acted on.
    pub(crate) const WORSE: f64 = 1.10;
    /// Standard errors that the difference must exceed. Windows of a second are not independent at high load, so the
    /// plain error is doubled first.
    pub(crate) const CERTAIN: f64 = 3.0;
    pub(crate) const CORRELATION: f64 = 2.0;
    /// Largest growth of the traffic under which the comparison is still fair.
    pub(crate) const SAME_RATE: f64 = 0.05;
    /// How long a plan stays rejected.
    pub(crate) const MEMORY: Duration = Duration::from_secs(600);
    /// A plan this close to a rejected one (half the sum of share differences) counts as the same.
    pub(crate) const SAME_PLAN: f64 = 0.03;
    /// A rejection holds for traffic this close, relatively.
    pub(crate) const SAME_TRAFFIC: f64 = 0.10;
    /// Rejected plans kept.
    pub(crate) const MAX_REJECTED: usize = 16;
}

/// Of `gate/worth.rs`.
pub(crate) mod worth {
    /// In steady state a plan must reduce the expected mean response time by at least this part.
    pub(crate) const MIN_GAIN: f64 = 0.005;
    /// The part of `min_change` that is enough when the pool is short of capacity. (Six backends under roundrobin, 12
    /// runs: at a traffic just equal to the capacity the whole `min_change` makes the mean 31 % longer; a fifth shows no
    /// loss, with a sixth of the plans, and 5 % above the capacity with a 37th.)
    pub(crate) const SHORT: f64 = 0.2;
    /// Weights equal shares up to rounding, which moves less than this part of the traffic.
    pub(crate) const ROUNDED: f64 = 0.003;
}
