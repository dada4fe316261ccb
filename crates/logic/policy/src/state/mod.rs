//! What several policies share.

mod closed;
mod failure;
mod in_flight;
mod latency;
mod least;
mod sampler;

pub(crate) use closed::Closed;
use failure::SuccessLatency;
pub(crate) use in_flight::InFlight;
pub(crate) use latency::LatencyTable;
pub(crate) use least::Least;
pub(crate) use sampler::{Sampler, Taken};
