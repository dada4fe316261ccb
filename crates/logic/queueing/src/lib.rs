//! Queueing models of a pool behind one balancer: what its clients wait under a method and weights.
//!
//! Two kinds of model, for two kinds of balancer:
//! * [`QueueCurve`]: in closed form, the latency of one backend over the rate it is given. It serves
//!   balancers whose weights split the traffic.
//! * [`simulate`]: a discrete-event simulation of the whole pool, with the balancer's own way of
//!   picking ([`HaproxyLeastconn`], [`HaproxyRoundRobin`], [`SmoothRoundRobin`], [`Central`]). It serves balancers that count
//!   what is in flight, for which no closed form is known.

mod central;
mod curve;
mod des;
mod erlang;
mod haproxy_roundrobin;
mod leastconn;
mod round_robin;
mod service;

pub use central::Central;
pub use curve::QueueCurve;
pub use des::{Pick, PoolResult, Run, Station, simulate, simulate_several};
pub use erlang::{MmcCurve, erlang_c};
pub use haproxy_roundrobin::HaproxyRoundRobin;
pub use leastconn::HaproxyLeastconn;
pub use round_robin::SmoothRoundRobin;
pub use service::ServiceTime;
