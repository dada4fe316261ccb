//! Reports of the balancer become windows of traffic; changes by other parties are detected.

pub(crate) mod balancer;
pub(crate) mod pool;
pub(crate) mod reports;
pub(crate) mod traffic;
