//! The layer-4 data plane: connections that never break, under any policy.
//!
//! [`Balancer`] loads an XDP program (`bpf/balancer.bpf.c`), fills its tables from an [`L4Config`], and
//! attaches it. The program decides by the cookie that a connection itself carries
//! (`plimsoll-cookie`), so it keeps nothing about one: its cost does not grow with connections, and a
//! flood of them fills no table. All it has is pinned in bpffs: whoever takes over (a restarted daemon,
//! a newer version) goes on where the last one was.
//!
//! ```text
//! client ──SYN──▶ VIP ──policy's list──▶ server        SYN
//! client ◀──TSval: version|epoch|cookie|clock── server  every reply
//! client ──TSecr: the same──▶ cookie ──▶ its server     every later packet, TSecr put back
//! ```
//!
//! See docs/l4.md for what an operator must know.

mod agent;
mod balancer;
mod carry;
mod config;
pub mod doctor;
mod error;
mod fill;
#[cfg(test)]
mod fixture;
mod guard;
mod keys;
mod layout;
mod maps;
mod mounts;
pub mod network;
mod notes;
mod place;
mod program;
mod readers;
mod reason;
mod refused;
mod replies;
mod rights;
mod service;
mod status;
mod steer;
mod tables;
mod turn;
mod whereto;
pub mod xdp;

pub use agent::{
    AGENT_COUNTS, Agent, AgentConfig, AgentStatus, AgentVip, AgentVipStatus, CpuLoad, CpuMeter,
    NotServer, agent_dir, agent_status, detach_agent,
};
pub use balancer::rotation::rotate;
pub use balancer::{Balancer, Pending};
pub use config::{
    AgentSection, AttachMode, Backend, BackendState, CookieConfig, Interface, L4Config, Limits,
    Load, PIN_DIR, Policy, Section, Socket, Uplink, UplinkMode, Vip,
};
pub use error::L4Error;
pub use keys::Keys;
pub use layout::{Mac, MemberState};
pub use notes::SetBy;
pub use program::{
    detach, detach_interface, is_link_on, link_pin, pinned_links, prepare, tick_ms_q20,
};
pub use reason::REASONS;
pub use replies::{Prefix, Watch, Why};
pub use status::{
    BackendStatus, RepliesBy, RepliesStatus, Status, VipStatus, WeightsStatus, status,
};
pub use steer::{Reading, ServerReading, Told};
pub use whereto::{Answer, Question, ask};

/// What experiments and tests look at and put in the place of the balancer's own: no part of the interface.
#[doc(hidden)]
pub mod lab {
    pub use crate::fill::{Candidate, MAGLEV_PLACES, maglev};
    pub use crate::maps::{MAPS, Maps, MemberCount, read_meta};
    pub use crate::tables::{mac_bits, vip_bits};
}
