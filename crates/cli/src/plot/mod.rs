//! Plots of latency over load.

pub mod chart;
pub mod svg;
pub mod terminal;
