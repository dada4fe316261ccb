//! The experiments of the papers behind Plimsoll, each from one command.
//!
//! An [`Experiment`] is named after its figure or table, says what the paper claims there, and runs to
//! an [`Outcome`]: tables, plots, and comparisons of the paper's numbers with ours, each with a sentence
//! where they differ. [`run`] gives it a [`Context`] (seed, size, where to find things, whether to stop)
//! and writes what came of it, whole or not at all, into a directory of its own; [`report`] makes one
//! page of all such directories.
//!
//! What a number is worth depends on where it comes from, so every row and every series carries its
//! [`Provenance`].

mod bloc;
mod cells;
mod cheetah;
mod comparison;
mod context;
mod draw;
mod edge;
mod experiment;
pub mod haproxy;
mod knapsack;
mod lanes;
mod manifest;
mod outcome;
mod plot;
mod registry;
mod report;
mod run;
mod summary;

pub use comparison::{Baseline, Better, Bound, Comparison, Parameters, Tolerance, Verdict};
pub use context::{Context, Failure, Options, ServerPool};
pub use draw::document as svg_document;
pub use edge::live as edge_live;
pub use experiment::{Experiment, Missing, Paper, Provenance};
pub use manifest::{Manifest, commit};
pub use outcome::{Cell, Column, Outcome, Row, Table};
pub use plot::{Axis, Bars, Lines, Mark, Plot, PlotKind, Points};
pub use registry::{experiments, find, find_missing, missing, near_names, papers};
pub use report::report;
pub use run::{Identity, Ran, ResultFile, run};
pub use summary::{figures, shown as shown_value};
