//! The layer-7 data plane: an HTTP/1.1 proxy that balances requests with overload control.
//!
//! An *egress* entry stands beside a caller, or before a pool: it picks a backend for each request by any policy of
//! [`plimsoll_policy`], and sends elsewhere what was refused or could not be delivered. An *ingress* entry stands before
//! an application: it admits by [`plimsoll_admission`], or refuses at once, and says with each response in one bit
//! whether there is room for more. One process holds any number of either; entries share nothing but threads.
//!
//! ```text
//! client ──▶ serve ──▶ egress: balance (policy, retries) ──▶ forward ──▶ upstream ─ ─▶ backend, or its ingress
//!        ──▶ serve ──▶ ingress: admission ──▶ forward ──▶ upstream ──▶ application
//!
//! config/    the section `proxy`: types, defaults, how it is read
//! run        listeners, threads, the end
//! serve      clients' connections are accepted; connection: one of them, parked while it is idle (linger, wire, stream)
//! room       how many clients the limit of open files leaves room for
//! alarm      one timer for all time-outs of a connection
//! request    what must hold of a request; headers: what ends here; framing: chunks or a length
//! quick      plain requests (plain), passed on without hyper
//! egress     picks and tries (route, tried, pool); balance/: one policy on many threads; probe: what backends tell
//! waiting    requests that were refused wait for room; patience: one of them
//! ingress    admits, refuses, gives chips
//! forward    one request to one backend; upstream: connections to them; upgrade: what goes on as another protocol
//! body/      bodies as they pass, and what counts a request while they do (guard); interim: 1xx before a response
//! tally      what is counted; shared, status: summed over threads; socket: answers a controller
//! ```
//!
//! HTTP is hyper's, one connection at a time (`server::conn::http1`, `client::conn::http1`). Each thread has a runtime,
//! a listener of each egress entry (`SO_REUSEPORT`) and connections to backends of its own; a task per client's
//! connection does everything for its requests.
//!
//! **What threads share.** All threads of an egress entry balance as one: each has a copy of the policy, and tells the
//! others of each request that starts and ends through logs without locks (`balance/mod.rs` says how, why, and where it is
//! not one). An ingress has one thread, which owns its admission.
//!
//! **Counts are exact**: a request is in flight while its guard is held, and the guard is dropped by whatever ends it:
//! the response's last byte, a client that leaves, a backend that breaks off, a time-out, a panic.

mod access;
mod alarm;
mod answer;
mod balance;
mod body;
pub mod capture;
mod cgroup;
mod cidr;
mod clock;
pub mod config;
mod connection;
mod doorstep;
mod egress;
mod forward;
mod forwarded;
mod framing;
mod guard;
mod headers;
mod ingress;
mod interim;
mod linger;
mod listen;
mod load;
mod patience;
mod plain;
mod pool;
mod probe;
mod quick;
mod random;
mod report;
mod request;
mod room;
mod route;
mod run;
mod seat;
mod serve;
mod shared;
mod slot;
mod socket;
mod status;
mod steer;
mod sticky;
mod stream;
mod tally;
mod tried;
mod upgrade;
mod upstream;
mod waiting;
mod watch;
mod wire;

pub use balance::BackendState;
pub use cgroup::CpuGroup;
pub use cidr::Cidr;
pub use config::ProxyConfig;
pub use listen::ListenError;
pub use room::OpenFiles;
pub use run::{Handle, Proxy, ProxyError};
pub use socket::{Socket, SocketError, ask, drain, release, reload};
pub use status::{
    BackendStatus, ClientStatus, EgressStatus, IngressStatus, LogStatus, PoolStatus, QueueStatus,
    RequestStatus, Status,
};
