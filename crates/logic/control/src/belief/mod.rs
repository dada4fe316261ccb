//! What is believed of a backend, with its error: unloaded service time, cores, capacity, curve, quota; and whether
//! they changed.

pub(crate) mod drift;
pub(crate) mod grain;
pub(crate) mod knowledge;
pub(crate) mod points;
pub(crate) mod refit;
pub(crate) mod shape;
pub(crate) mod typical;
mod unloaded;
pub(crate) mod variability;
