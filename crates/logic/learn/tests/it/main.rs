//! Tests of the crate against known truths: queues in closed form, and simulated ones.

mod drift;
mod explore;
mod fit;
mod queues;
mod schedule;
mod throughput;
