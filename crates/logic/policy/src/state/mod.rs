//! What several policies share.

mod bound;
mod closed;
mod failure;
mod in_flight;
mod keys;
mod latency;
mod map;
mod round;
mod sampler;

pub(crate) use bound::Bound;
pub(crate) use closed::Closed;
pub(crate) use failure::{FailureShares, SuccessLatency};
pub(crate) use in_flight::InFlight;
pub(crate) use keys::Keys;
pub(crate) use latency::LatencyTable;
pub(crate) use map::turns_by_weight;
pub(crate) use round::Round;
pub(crate) use sampler::{Sampler, Taken, below};
