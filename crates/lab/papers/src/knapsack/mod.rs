//! KnapsackLB: Gandhi and Narayana, "KnapsackLB: Enabling Performance-Aware Layer-4 Load Balancing",
//! Proc. ACM Netw. 3, CoNEXT1, Article 3 (March 2025). One file per figure or table.

mod baselines;
mod closed;
mod cpu;
mod dynamics;
mod explored;
mod fig10;
mod fig11;
mod fig12;
mod fig13;
mod fig14;
mod fig15;
mod fig16;
mod fig17;
mod fig3;
mod fig4;
mod fig5;
mod fig8;
mod fig9;
mod instances;
mod learned;
mod ping;
mod sec6_5;
mod table1;
mod table4;
mod table5;
mod table6;
mod table7;
mod timing;
mod trio;

pub use table4::cbc_version;

use crate::{Experiment, Missing, Paper};

/// The paper.
pub const PAPER: Paper = Paper {
    key: "knapsack",
    name: "KnapsackLB",
    citation: "Gandhi and Narayana, Proc. ACM Netw. 3, CoNEXT1, Article 3, 2025, \
               https://doi.org/10.1145/3709377",
};

/// Its experiments, in the order of the paper.
pub const EXPERIMENTS: &[&Experiment] = &[
    &fig3::EXPERIMENT,
    &fig4::EXPERIMENT,
    &table1::EXPERIMENT,
    &fig5::EXPERIMENT,
    &fig8::EXPERIMENT,
    &fig9::EXPERIMENT,
    &fig10::EXPERIMENT,
    &fig11::EXPERIMENT,
    &fig12::EXPERIMENT,
    &fig13::EXPERIMENT,
    &fig14::EXPERIMENT,
    &fig15::EXPERIMENT,
    &fig16::EXPERIMENT,
    &sec6_5::EXPERIMENT,
    &table4::EXPERIMENT,
    &table5::EXPERIMENT,
    &fig17::EXPERIMENT,
    &table6::EXPERIMENT,
    &table7::EXPERIMENT,
];

/// What it shows and no experiment repeats.
pub const MISSING: &[Missing] = &[
    PAPER.missing(
        "knapsack-sec6.2",
        "§6.2",
        "KLB against Azure's L4 balancer: latency less by up to 41 %",
        "The balancer is a cloud service; knapsack-table1 stands in for its hash of the 5-tuple only.",
    ),
    PAPER.missing(
        "knapsack-fig18",
        "Figure 18",
        "Overhead of the probes over their interval",
        "What probers cost in cores and backends in CPU is not measured.",
    ),
    PAPER.missing(
        "knapsack-appD",
        "Appendix D",
        "Overheads of probers, latency store and controller for 60,000 backends",
        "Of it, knapsack-table7 has the time of the ILPs alone: Redis, the regression and the prices are not measured.",
    ),
];
