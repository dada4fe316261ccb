//! Cheetah: Barbette and others, "A High-Speed Load-Balancer Design with Guaranteed
//! Per-Connection-Consistency", NSDI 2020. One file per figure: Figure 2 is simulated, 5 to 9 and the
//! attacks run the product's program in the kernel and need root.
//!
//! ```text
//! cluster.rs    468 servers and the web server's connections, and the ways that are not the product's
//! cookies.rs    connections that carry the product's cookie, under any of its policies
//! service.rs    a service behind the XDP balancer, in namespaces
//! trial.rs      one policy over emulated servers: completion times, and how even the load was
//! show.rs       comparisons and tables that the figures share
//! ```

mod attacks;
mod cluster;
mod cookies;
mod fig2a;
mod fig2b;
mod fig2c;
mod fig5;
mod fig6;
mod fig7;
mod fig8;
mod fig9;
mod service;
mod show;
mod trial;

use crate::{Experiment, Missing, Paper};

/// The paper.
pub const PAPER: Paper = Paper {
    key: "cheetah",
    name: "Cheetah",
    citation: "Barbette, Tang, Yao, Kostić, Maguire, Papadimitratos and Chiesa, NSDI 2020, \
               https://www.usenix.org/conference/nsdi20/presentation/barbette",
};

/// Its experiments, in the order of the paper: one line each.
pub const EXPERIMENTS: &[&Experiment] = &[
    &fig2a::EXPERIMENT,
    &fig2b::EXPERIMENT,
    &fig2c::EXPERIMENT,
    &fig5::EXPERIMENT,
    &fig6::EXPERIMENT,
    &fig7::EXPERIMENT,
    &fig8::EXPERIMENT,
    &fig9::EXPERIMENT,
    &attacks::EXPERIMENT,
];

/// What it shows and no experiment repeats.
pub const MISSING: &[Missing] = &[
    PAPER.missing(
        "cheetah-fig5-stateful",
        "Figure 5, stateful row",
        "Cycles per packet of stateful Cheetah",
        "The stateful balancer with its stack of indices is not built.",
    ),
    PAPER.missing(
        "cheetah-fig5-rss",
        "Figure 5, RSS row",
        "Cycles per packet where the network card hashes",
        "No network card is in the lab: cheetah-fig5 has the hash in software alone.",
    ),
    PAPER.missing(
        "cheetah-table2",
        "Table 2",
        "Granularity of TCP timestamps at large web sites",
        "It asks servers on the Internet, which the lab does not.",
    ),
];
