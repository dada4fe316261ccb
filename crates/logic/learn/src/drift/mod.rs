//! Has this backend changed, has the traffic, or is it noise? (KnapsackLB §4.5.)
//!
//! Where the balancer reports rates, a backend's *service* is watched and not its latency: given the core-seconds that
//! were busy, completions do not depend on traffic, weights or queues, so none of these is mistaken for a change of
//! capacity ([`RateWatch`]). Where only latencies are known, a change that most of the pool shares is one of traffic,
//! and one of a single backend is its own ([`compare`], as in the paper).

mod charts;
mod noise;
mod paper;
mod watch;

pub use paper::{Judgement, Moved, PAPER_THRESHOLD, compare};
pub use watch::{Change, Interval, RateWatch, Tolerance};
