//! The thresholds of control, with their units and what they are for; a number that belongs to one formula stands beside it. Where no source is named, a value was chosen by hand and
//! held against seeded runs of the simulator; a change of one is a change of behaviour, to be compared on paired seeds.
//!
//! A module for each folder of the crate, and in it one for each file. What must hold between thresholds is asserted at
//! compile time, in `relations`.

pub(crate) mod belief;
pub(crate) mod commit;
pub(crate) mod control;
pub(crate) mod experiments;
pub(crate) mod gate;
pub(crate) mod members;
pub(crate) mod observe;
pub(crate) mod propose;
mod relations;
pub(crate) mod show;
