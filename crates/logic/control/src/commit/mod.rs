//! A decision on its way to the balancer, and the sink's answer.

pub(crate) mod answers;
pub(crate) mod plan;
