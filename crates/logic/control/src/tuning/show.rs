/// Of `show/mod.rs`.
pub(crate) mod view {
    /// Points per plotted curve.
    pub(crate) const DRAWN: usize = 33;
    /// Backends with at least this part of the traffic determine the phase shown.
    pub(crate) const MOST: f64 = 0.5;
}

/// Of `show/advice.rs`.
pub(crate) mod advice {
    use std::time::Duration;

    /// Interval of the question; it is answered only if it has changed.
    pub(crate) const EVERY: Duration = Duration::from_secs(5 * 60);
    /// A smaller gain is not reported.
    pub(crate) const WORTH_SAYING: f64 = 0.03;
}
