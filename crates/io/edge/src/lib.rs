//! Network functions on several nodes: every packet of a flow, in both directions, through the instance that
//! holds its state, and new flows where there is room.
//!
//! ```text
//!            flow table             VXLAN: server, core, service        cpumap
//! client ──▶ forwarder ───────────────────────────────────▶ node ──────────────▶ core: function ▶ … ▶ function
//!            slots ◀─ weights ◀─ predicted load ◀─ packets counted         │ not rewritten: straight on
//!            learns the way back ◀─────────── VXLAN, flag "rewritten" ──────┘
//! ```
//!
//! [`Forwarder`] steers; it predicts each core's load from the packets that it sends there itself
//! (`plimsoll-feedback`), so that functions that poll, and show a busy CPU whatever they do, are balanced as well.
//! [`Node`] runs services: functions in XDP, and namespaces with rules of nftables. See docs/edge.md.

#[cfg(feature = "bench")]
pub mod bench;
pub mod config;
mod control;
pub mod doctor;
mod error;
mod forwarder;
mod kernel;
#[cfg(feature = "bench")]
pub mod liar;
mod node;
mod wire;

pub use control::Key;
pub use error::EdgeError;
pub use forwarder::{
    Forwarder, Handle, NodeStatus, PlaceStatus, Status, TableStatus, Where, ask, detach,
    forwarder_dir,
};
pub use node::{Node, node_dir};
pub use plimsoll_l4::xdp::Ran;
pub use wire::FlowKey;
