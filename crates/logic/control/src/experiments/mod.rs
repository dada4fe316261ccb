//! Loads given on purpose: curves measured anew, drain times.

pub(crate) mod drain;
pub(crate) mod refresh;
