//! Reports of the balancer become windows of traffic; what changed behind the controller's back is noticed.

pub(crate) mod reports;
pub(crate) mod traffic;
