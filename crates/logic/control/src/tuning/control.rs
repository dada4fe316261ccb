/// Of `process.rs`.
pub(crate) mod process {
    use std::time::Duration;

    /// Without any event for this long the process itself had no CPU time: time-outs of that period prove
    /// nothing. (Ticks come every 50 to 200 ms.)
    pub(crate) const STALL: Duration = Duration::from_millis(500);
    /// Interval at which the memory is saved, besides after every plan.
    pub(crate) const SAVE_EVERY: Duration = Duration::from_secs(10);
}

/// Of `controller.rs`.
pub(crate) mod controller {
    use std::time::Duration;

    /// The most estimates refitted per window of a second.
    pub(crate) const REFITS: usize = 100;
    /// A backend that changed is refitted in every window for this long.
    pub(crate) const LIVELY: Duration = Duration::from_secs(60);
    /// A known curve changes little: in a settled pool it is refitted once in this many windows.
    pub(crate) const UNHURRIED: usize = 20;
}
