//! KnapsackLB as its paper has it, behind the same events and actions as Plimsoll's controller, to be compared with it.
//!
//! Weights are raised in rounds until latency ends that (§4.3, [`Climb`]; requests for weights are combined by
//! [`schedule()`], §4.6); a parabola is fitted to each backend's latency over its weight (§4.2); an integer program
//! packs them (§3.3, §4.4); then latencies are compared with the curves by a bare threshold (§4.5, [`compare`]).
//!
//! Where it differs from the paper: latencies come from the balancer's counters by Little's law and not from probes,
//! and the latency without load, which the paper measures at weight 0, is inferred from them as well.

mod climb;
mod compare;
mod controller;
mod schedule;
mod server;

pub use climb::{Climb, ClimbError, ExploreMode, ExploreOptions, Measurement, Step};
pub use compare::{Judgement, Moved, PAPER_THRESHOLD, compare};
pub use controller::Knapsack;
pub use schedule::{Assignment, Member, Priority, ScheduleError, Wanted, schedule};
