//! Real servers in cgroups behind real HAProxys, one lane per way of balancing.
mod calibrate;
pub mod cgroup;
mod error;
mod kind;
mod make;
mod pool;
pub mod server;
mod servers;

pub use calibrate::calibrate;
pub use error::RealError;
pub use kind::{LaneKind, groups};
pub use make::Make;
pub use pool::{Pool, Size};
pub use servers::Servers;
