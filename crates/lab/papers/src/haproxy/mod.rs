//! The HAProxy study: Rawls and Salehi, "Load Balancer Tuning: Comparative Analysis of HAProxy Load Balancing
//! Methods" (2022). One file per figure, and what its advice needs beside them.
//!
//! ```text
//! picks/        every deterministic method of a real HAProxy against our policy, request by request
//! method.rs     the study's methods, and what it lacks
//! pool.rs       the servers' sizes, and what clients ask of them
//! servers.rs    servers that run: emulated, the lab's own in control groups, or WordPress
//! lane.rs       one method under load: a balancer, clients that GET and clients that POST
//! sweep.rs      methods over rates; the scale
//! figure.rs     what Figures 7 and 8 share
//! show.rs       tables and plots
//! config.rs     a HAProxy's configuration with a knob turned
//! namings.rs    uri under many namings of the pages, simulated
//! namings_live.rs  the same on servers that run
//! cpu.rs        random among servers whose CPU has room, on a stock HAProxy
//! steered.rs    Plimsoll on the unequal pool or on one's own, learning included
//! steering.rs   the weights and decisions of its lanes
//! deadline.rs   deadline refusal live in our proxy
//! knobs.rs      each knob against its default, in pairs
//! ```

mod config;
mod cpu;
mod deadline;
mod fig6;
mod fig7;
mod fig8;
mod figure;
mod knobs;
mod lane;
mod method;
mod namings;
mod namings_live;
mod picks;
mod pool;
mod servers;
mod show;
mod steered;
mod steering;
mod sweep;

pub use picks::{CASES, Case, compare_picks};
pub(crate) use servers::can_share;

use crate::{Experiment, Missing, Paper};

/// The paper.
pub const PAPER: Paper = Paper {
    key: "haproxy",
    name: "the HAProxy study",
    citation: "Rawls and Salehi, technical report, HPCC Lab, University of Louisiana at Lafayette, 2022",
};

/// Its experiments, in the order of the paper: one line each.
pub const EXPERIMENTS: &[&Experiment] = &[
    &picks::EXPERIMENT,
    &knobs::EXPERIMENT,
    &fig6::EXPERIMENT,
    &fig7::EXPERIMENT,
    &fig8::EXPERIMENT,
    &namings::EXPERIMENT,
    &cpu::EXPERIMENT,
    &steered::EXPERIMENT,
    &deadline::EXPERIMENT,
];

/// Those whose servers and lengths a person may choose.
pub const WITH_OPTIONS: &[&str] = &[
    fig7::EXPERIMENT.name,
    fig8::EXPERIMENT.name,
    namings::EXPERIMENT.name,
    cpu::EXPERIMENT.name,
    steered::EXPERIMENT.name,
    deadline::EXPERIMENT.name,
];

/// Those whose rates are the study's.
pub const WITH_TASKS: &[&str] =
    &[fig6::EXPERIMENT.name, fig7::EXPERIMENT.name, fig8::EXPERIMENT.name, cpu::EXPERIMENT.name];

/// Those that run everything several times.
pub const WITH_REPETITIONS: &[&str] = &[
    knobs::EXPERIMENT.name,
    fig6::EXPERIMENT.name,
    fig7::EXPERIMENT.name,
    fig8::EXPERIMENT.name,
    cpu::EXPERIMENT.name,
    deadline::EXPERIMENT.name,
];

/// Those whose rates are parts of the capacity.
pub const WITH_LOADS: &[&str] = &[steered::EXPERIMENT.name, deadline::EXPERIMENT.name];

/// The one whose servers' sizes a person may choose.
pub const WITH_SIZES: &[&str] = &[steered::EXPERIMENT.name];

/// What it shows and no experiment repeats.
pub const MISSING: &[Missing] = &[
    PAPER.missing(
        "haproxy-source-moves",
        "§4.4",
        "source: who moves when a server joins or leaves",
        "Said of its hash, not measured; haproxy-picks holds both kinds of hash against HAProxy's with all servers up.",
    ),
    PAPER.missing(
        "haproxy-static-rr-cpu",
        "§4.6",
        "static-rr takes slightly less of HAProxy's CPU than roundrobin",
        "Said, not measured; here HAProxy's CPU is measured by knob, under roundrobin.",
    ),
    PAPER.missing(
        "haproxy-rdp-cookie",
        "§4.9",
        "rdp-cookie under load",
        "The study leaves it out for lack of remote desktops, and so do we: haproxy-picks holds its picks against \
         HAProxy's.",
    ),
];
