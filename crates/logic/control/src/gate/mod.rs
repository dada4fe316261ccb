//! When a decision is made and whether it is worth programming: pace, gain against risk, trial and rollback.

pub(crate) mod decide;
pub(crate) mod pace;
pub(crate) mod phase;
pub(crate) mod trial;
pub(crate) mod urgent;
pub(crate) mod worth;
