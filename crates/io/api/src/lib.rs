//! What a running Plimsoll tells of itself: a read-only HTTP API, Prometheus metrics and a small
//! dashboard.
//!
//! The daemon writes into a [`Hub`]: for each service a [`Publisher`] takes the newest view, the
//! decisions made and what the machinery counts. [`serve`] answers from the hub and never asks the
//! daemon anything, so a slow client cannot hold up a decision.
//!
//! Nothing can be changed over this API. It listens on loopback by default, and then refuses requests
//! whose `Host` is not this machine, which is what a page that rebinds its own name would send.
//!
//! Other daemons of ours serve pages of their own by the same listener ([`serve_routes`]) in the same format
//! ([`Page`]).

mod counters;
mod dashboard;
mod finite;
mod guard;
mod hub;
mod idle;
mod metrics;
mod ring;
mod routes;
mod server;
mod timestamp;
pub mod wire;

pub use counters::Counters;
pub use hub::{AtWork, Hub, Part, Publisher};
pub use metrics::{Kind, Labels, Page, flag};
pub use ring::MAX_EVENTS;
pub use routes::{ApiError, no_query};
pub use server::{serve, serve_routes};
