//! EdgeBalance: Zhang, Sharma and Wood, "EdgeBalance: Model-Based Load Balancing for Network Edge Data Planes",
//! HotEdge '20. One file per figure: simulated (`plimsoll_sim::edge`), with the product's model and policies; `figN_live`
//! with the real forwarder and nodes on this machine.
//!
//! ```text
//! elephants.rs   two nodes and an elephant of 7 to 47 % of the traffic: figures 4a to 4c
//! live/          a forwarder, two nodes, packets for them: what the live figures run on
//! show.rs        ways to spread flows and what is said of all figures
//! ```

mod controllers;
mod elephants;
mod fig3;
mod fig3_live;
mod fig4_live;
mod fig4a;
mod fig4b;
mod fig4c;
mod fig5;
mod fig5_live;
pub mod live;
mod show;

use crate::{Experiment, Missing, Paper};

/// The paper.
pub const PAPER: Paper = Paper {
    key: "edge",
    name: "EdgeBalance",
    citation: "Zhang, Sharma and Wood, HotEdge '20, \
               https://www.usenix.org/conference/hotedge20/presentation/zhang",
};

/// Its experiments, in the order of the paper: one line each.
pub const EXPERIMENTS: &[&Experiment] = &[
    &fig3::EXPERIMENT,
    &fig3_live::EXPERIMENT,
    &fig4a::EXPERIMENT,
    &fig4b::EXPERIMENT,
    &fig4c::EXPERIMENT,
    &fig4_live::EXPERIMENT,
    &fig5::EXPERIMENT,
    &fig5_live::EXPERIMENT,
    &controllers::EXPERIMENT,
];

/// What it shows and no experiment repeats: nothing, its other figures are drawings.
pub const MISSING: &[Missing] = &[];

#[cfg(test)]
mod tests {
    use plimsoll_lanes::Interrupt;

    use super::*;
    use crate::{Context, Provenance};

    /// Every simulated figure runs, shows something, and has a sentence for every number that may differ.
    #[test]
    fn figures_run_quickly_and_explain_themselves() {
        let simulated = |one: &&&Experiment| one.provenance == [Provenance::Simulated];
        for experiment in EXPERIMENTS.iter().filter(simulated) {
            let context = Context::new(3, true, Interrupt::never());
            let outcome = (experiment.run)(&context);
            let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error}", experiment.name));
            assert!(!outcome.plots.is_empty() && !outcome.comparisons.is_empty());
            assert!(
                outcome.tables.iter().all(|table| !table.rows.is_empty()),
                "{}",
                experiment.name
            );
            for mut comparison in outcome.comparisons {
                comparison.judge(true);
                assert!(
                    comparison.reason().ends_with('.'),
                    "{}: {}",
                    experiment.name,
                    comparison.what
                );
            }
        }
    }
}
