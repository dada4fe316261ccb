//! What the weights should be, given the pool and its traffic.

pub(crate) mod as_is;
pub(crate) mod backlog;
pub(crate) mod in_flight;
pub(crate) mod proposals;
pub(crate) mod reserve;
pub(crate) mod search;
pub(crate) mod split;
