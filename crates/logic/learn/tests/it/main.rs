//! Tests of the crate against known truths: queues in closed form, and simulated ones.

mod drift;
mod fit;
mod queues;
mod throughput;
