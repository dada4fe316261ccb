//! Queueing models of a pool behind a balancer.
