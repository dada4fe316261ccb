//! Lanes: the same pool and the same clients, once per way of balancing, side by side.
//!
//! A [`Lane`] is an emulated pool ([`Pool`]) behind a [`Front`]: a real HAProxy of its own, a load of
//! Poisson clients and, where [`LaneKind::is_steered`] says so, a Plimsoll daemon of its own: `plimsoll run`, by
//! the program that [`plimsoll()`] finds. Lanes of real servers use the same front. Lanes share nothing but the
//! machine, and their clients arrive
//! at the same instants, so that what differs between two of them is the balancing.
//!
//! Every process of a run belongs to one [`Family`], which ends with whoever started it.

mod client;
mod daemon;
mod envoy;
mod error;
mod family;
mod front;
mod given;
mod haproxy;
mod harm;
mod interrupt;
mod kind;
mod knapsack;
mod lane;
mod learning;
mod listener;
mod machine;
mod measured;
mod nginx;
mod peers;
mod pool;
mod program;
mod proxy;
mod section;

pub use client::check_answer;
pub use daemon::{Daemon, Given, Steered, configuration as daemon_configuration};
pub use envoy::{Envoy, envoy, envoy_version, find_envoy};
pub use error::LaneError;
pub use family::{Family, Member};
pub use front::{Front, FrontSpec, Lb, PATIENCE, SteeredBy};
pub use given::twice;
pub use haproxy::{Haproxy, Server, haproxy_version};
pub use harm::{Harm, harm};
pub use interrupt::Interrupt;
pub use kind::LaneKind;
pub use lane::{Finished, Lane};
pub use learning::Learning;
pub use listener::{free_address, free_addresses};
pub use machine::{CpuClock, raise_descriptor_limit};
pub use measured::{Measured, mean_of, within};
pub use nginx::{Nginx, nginx_temporary_paths};
pub use peers::{Balancers, Peer};
pub use plimsoll_api::wire::Event;
pub use plimsoll_sim::{half_width, mean, standard_error, student};
pub use pool::{Backend, Distribution, Pool};
pub use program::{find as find_program, places as program_places, plimsoll};
pub use proxy::{Proxy, proxy_policy};
pub use section::{LOOPBACK, ProxySection, timeouts};
