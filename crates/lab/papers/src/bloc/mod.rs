//! BLOC: Bhattacharya, Gao and Wood, "Dynamically Balancing Load with Overload Control for Microservices",
//! ACM Trans. Auton. Adapt. Syst. 19 (2024). One file per figure.
//!
//! ```text
//! cluster.rs    the paper's cluster, simulated: frontends that balance, ten backends, a gateway, clients
//! ways.rs       who picks, and whom backends let in
//! views.rs      balancers that know the true queues, and what others do not know of them
//! show.rs       tables, plots and comparisons that the figures share
//! ```

mod cluster;
mod fig10;
mod fig11;
mod fig12;
mod fig13;
mod fig14;
mod fig17;
mod fig18;
mod fig3;
mod fig6;
mod fig7;
mod fig9;
mod show;
mod views;
mod ways;

use crate::{Experiment, Paper};

/// The paper.
pub const PAPER: Paper = Paper {
    key: "bloc",
    name: "BLOC",
    citation: "Bhattacharya, Gao and Wood, ACM Trans. Auton. Adapt. Syst. 19, 2024, \
               https://doi.org/10.1145/3676167",
};

/// Its experiments, in the order of the paper: one line each.
pub const EXPERIMENTS: &[&Experiment] = &[
    &fig3::EXPERIMENT,
    &fig6::EXPERIMENT,
    &fig7::EXPERIMENT,
    &fig9::EXPERIMENT,
    &fig10::EXPERIMENT,
    &fig11::EXPERIMENT,
    &fig12::EXPERIMENT,
    &fig13::EXPERIMENT,
    &fig14::EXPERIMENT,
    &fig17::EXPERIMENT,
    &fig18::EXPERIMENT,
];
