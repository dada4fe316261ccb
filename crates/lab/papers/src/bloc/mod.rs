//! BLOC: Bhattacharya, Gao and Wood, "Dynamically Balancing Load with Overload Control for Microservices",
//! ACM Trans. Auton. Adapt. Syst. 19 (2024). One file per figure.
//!
//! ```text
//! cluster.rs    the paper's cluster, simulated: frontends that balance, ten backends, a gateway, clients
//! methods.rs    the policies of frontends and the admission of backends
//! live.rs       the same cluster of real proxies and connections
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
mod fig9_live;
mod live;
mod methods;
mod show;
mod views;

use crate::{Experiment, Missing, Paper};

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
    &fig9_live::EXPERIMENT,
    &fig10::EXPERIMENT,
    &fig11::EXPERIMENT,
    &fig12::EXPERIMENT,
    &fig13::EXPERIMENT,
    &fig14::EXPERIMENT,
    &fig17::EXPERIMENT,
    &fig18::EXPERIMENT,
];

/// What it shows and no experiment repeats.
pub const MISSING: &[Missing] = &[
    PAPER.missing(
        "bloc-fig4",
        "Figure 4",
        "A view of all queues shared through Redis",
        "No such view is built: bloc-fig9 has JSQ, which knows all queues.",
    ),
    PAPER.missing(
        "bloc-fig5",
        "Figure 5",
        "A timeout of 3 s against one of 20 s: half of the requests dropped",
        "Frontends with a timeout of their own are not simulated.",
    ),
    PAPER.missing(
        "bloc-fig15",
        "Figure 15",
        "Image resizing (40 to 650 ms) and rotation (10 to 80 ms)",
        "The applications are not built, and the paper gives ranges of their costs only.",
    ),
    PAPER.missing(
        "bloc-fig16",
        "Figure 16",
        "A chain of resizing and rotation",
        "Chains of services are not simulated.",
    ),
];
