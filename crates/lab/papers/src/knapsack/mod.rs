//! KnapsackLB: Gandhi and Narayana, "KnapsackLB: Enabling Performance-Aware Layer-4 Load Balancing",
//! Proc. ACM Netw. 3, CoNEXT1, Article 3 (March 2025). One file per figure or table.

mod fig8;
mod instances;
mod table4;
mod table5;
mod table7;
mod timing;

use crate::{Experiment, Paper};

/// The paper.
pub const PAPER: Paper = Paper {
    key: "knapsack",
    name: "KnapsackLB",
    citation: "Gandhi and Narayana, Proc. ACM Netw. 3, CoNEXT1, Article 3, 2025, \
               https://doi.org/10.1145/3709377",
};

/// Its experiments, in the order of the paper.
pub const EXPERIMENTS: &[&Experiment] =
    &[&fig8::EXPERIMENT, &table4::EXPERIMENT, &table5::EXPERIMENT, &table7::EXPERIMENT];
