//! The crate against truths it does not know: queues in closed form, and simulated ones.

mod drift;
mod explore;
mod fit;
mod queues;
mod schedule;
mod throughput;
