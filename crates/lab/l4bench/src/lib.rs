//! What the layer-4 data plane costs and how it stands a flood: packets made in the kernel, without servers. Tests,
//! examples and the lab's experiments share it.
//!
//! * [`Rig`]: a balancer without servers, in a namespace with the [`legs`] it needs;
//! * [`Load`]: the programs of `bpf`, run a million times in a system call (`BPF_PROG_TEST_RUN`);
//! * [`flood`], [`forge`]: attacks at size;
//! * [`Load::take_over`]: balancers without a cookie, on real packets;
//! * [`Meter`]: the cost of a packet while real ones pass;
//! * [`measure`]: [`Case`]s in turns, the cost of making each packet measured alone and subtracted.

mod attacks;
mod cases;
mod cost;
mod error;
mod generator;
mod in_place;
mod load;
pub mod packet;
mod rig;
mod rival;

pub use attacks::{Connection, Flood, Forged, Held, chi_square, flood, forge};
pub use cases::{
    FLOWS, SERVERS, established, first_packets, first_packets_v6, replies, replies_apart, tables,
    without_state,
};
pub use cost::{Case, Cost, Measured, measure, min_and_median};
pub use error::BenchError;
pub use generator::Frames;
pub use in_place::{Meter, Runs};
pub use load::{Load, Settings};
pub use rig::{
    CLIENT_LEG_MAC, CLIENT_MAC, Replies, Rig, SERVER_LEG_MAC, VIP, VIP6, backend, config, ifindex,
    keys, legs, server_mac, vip,
};
pub use rival::Chain;
