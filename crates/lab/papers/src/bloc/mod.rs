//! BLOC: Bhattacharya, Gao and Wood, "Dynamically Balancing Load with Overload Control for Microservices",
//! ACM Trans. Auton. Adapt. Syst. 19 (2024). One file per figure.
//!
//! ```text
//! cluster.rs    the paper's cluster, simulated: frontends that balance, ten backends, a gateway, clients
//! views.rs      balancers that know the true queues, and what others do not know of them
//! ```

mod cluster;
mod fig6;
mod fig7;
mod views;

use crate::{Experiment, Paper};

/// The paper.
pub const PAPER: Paper = Paper {
    key: "bloc",
    name: "BLOC",
    citation: "Bhattacharya, Gao and Wood, ACM Trans. Auton. Adapt. Syst. 19, 2024, \
               https://doi.org/10.1145/3676167",
};

/// Its experiments, in the order of the paper.
pub const EXPERIMENTS: &[&Experiment] = &[&fig6::EXPERIMENT, &fig7::EXPERIMENT];
