//! Network functions on this machine: the real forwarder and real nodes in namespaces, packets that a thread sends, and
//! what the kernel's threads of the nodes' cores really took. The demonstration runs on it, too.
//!
//! ```text
//! client ── c0 forwarder e1 ── n1 ── s1 server
//!                        e2 ── n2 ── s2
//! ```
//!
//! Cables go from one to the other without a bridge, so that a packet stays a frame of XDP from the forwarder to the
//! node's core. What functions have let pass goes straight to the server, which counts it.

mod busy;
mod cell;
mod sink;
mod traffic;

pub use busy::Threads;
pub use cell::{Cell, CellPlan};
pub use sink::Latency;
pub use traffic::{Load, Traffic, set};

/// The experiments in which a person may choose how long each point is measured.
pub const WITH_WINDOW: &[&str] =
    &[super::fig3_live::EXPERIMENT.name, super::fig4_live::EXPERIMENT.name];
