//! Networks on one machine, for what is at layer 4: namespaces that clean up after themselves
//! ([`Namespaces`]), a service of clients, balancer and servers in them ([`Site`]), real servers that say
//! their names ([`Nginx`]), and clients that notice when another server answers ([`clients`]).
//!
//! All namespaces share the machine's clocks: a connection that survives may still have been misrouted.
//! Only the name of the server in the answer tells.

pub mod clients;
mod error;
mod namespaces;
mod nginx;
mod site;

pub use error::NetError;
pub use namespaces::{CableEnd, Namespace, Namespaces, requirements};
pub use nginx::{Download, Nginx};
pub use site::{ReplyPath, Site, SiteSpec};

/// The response header that names the server; emulated backends send it as well.
pub const SERVER_HEADER: &str = "x-backend";
