//! A decision on its way to the balancer, and what the sink answers.

pub(crate) mod answers;
pub(crate) mod plan;
