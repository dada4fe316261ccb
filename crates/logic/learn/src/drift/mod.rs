//! Has this backend changed, has the traffic, or is it noise? (KnapsackLB §4.5.)
//!
//! A backend's *service* is watched and not its latency: given the core-seconds that were busy, completions do not depend
//! on traffic, weights or queues, so none of these is mistaken for a change of capacity ([`RateWatch`]).

mod charts;
mod noise;
mod watch;

pub use watch::{Change, Interval, RateWatch, Tolerance};
