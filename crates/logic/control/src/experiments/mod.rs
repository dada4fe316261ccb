//! Loads given in order to measure: curves measured again, drain times.

pub(crate) mod drain;
pub(crate) mod refresh;
