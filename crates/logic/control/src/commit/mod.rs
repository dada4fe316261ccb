//! A decision on its way to the balancer, and the sink's answer.

pub(crate) mod answers;
pub(crate) mod commitment;
pub(crate) mod foreign;
pub(crate) mod plan;
