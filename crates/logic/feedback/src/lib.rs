//! Weights that follow load.
//!
//! [`awrr`] corrects turns by the load that servers report, without a model of them. The rest balances network
//! functions over cores (EdgeBalance, HotEdge '20): the load of a core is predicted from the packets that the
//! forwarder sends there itself, and new flows go where there is room.
//!
//! ```text
//! cpu.rs        the model: load of a core = Σ cost of a packet × packet rate; costs calibrated, then learned
//! balance.rs    the trait of policies, what they get, their names
//! water_fill.rs, pid.rs, pid_literal.rs, residual.rs, weighted_round_robin.rs, monitor.rs     the policies
//! steering.rs   one step from packet counts to the weights of every service; what daemon and simulator call
//! slots.rs      weights as a table of slots for new flows
//! scale.rs      when a standby joins, and when it leaves
//! ```
//!
//! All of it is pure: no clock, no socket, no randomness; time is an argument.

pub mod awrr;
mod balance;
mod cpu;
mod monitor;
mod pid;
mod pid_literal;
mod residual;
mod scale;
mod slots;
mod steering;
mod water_fill;
mod weighted_round_robin;

pub use balance::{Balancer, BalancerKind, CoreLoad, FLOOR, UnknownBalancer};
pub use cpu::{CpuModel, LEAST_COST, Learned, MOST_COST, Place, Refused, Report, Shape};
pub use monitor::Monitor;
pub use pid::{Gains, Pid};
pub use pid_literal::PidLiteral;
pub use residual::Residual;
pub use scale::{BadScale, Scale, ScaleAction, ScaleSettings};
pub use slots::Slots;
pub use steering::{Ages, Counts, Steering};
pub use water_fill::WaterFill;
pub use weighted_round_robin::WeightedRoundRobin;
