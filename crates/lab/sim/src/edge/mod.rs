//! Network functions on cores behind a forwarder, in simulated time: flows of packets, polling cores with queues, the
//! product's model, policies and slots between them.
//!
//! ```text
//! traffic.rs     mice and elephants: when flows start, how often they send, when they end
//! core.rs        a core that polls: batches, a queue with a limit, busy time
//! forwarder.rs   counts packets of young and old flows, picks a core for each new flow
//! per_flow.rs    rivals that pick per flow: two choices, least loaded
//! accuracy.rs    one core: what the model predicts beside what is measured
//! run.rs         one run: ticks, windows, reports of nodes, what was seen
//! ```
//!
//! Time goes in ticks of 10 µs. A mouse sends a packet each millisecond at a phase of its own, an elephant evenly. Cost: 5 to
//! 10 ns a packet, so that a second of 16 cores at 700 ns a packet takes about 0.2 s.

mod accuracy;
mod core;
mod forwarder;
mod per_flow;
mod run;
mod traffic;

#[cfg(test)]
mod tests;

pub use accuracy::{Accuracy, Predicted};
pub use forwarder::Way;
pub use run::{EdgeRun, Seen, Standby, Window};
pub use traffic::{Elephants, Mice, Step, Traffic};

/// Length of a tick, seconds.
pub const TICK_S: f64 = 10e-6;
/// Ticks in a millisecond.
pub const TICKS_PER_MS: u64 = 100;

const _: () = assert!((TICK_S * TICKS_PER_MS as f64 - 1e-3).abs() < 1e-12);
