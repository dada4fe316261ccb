//! Connections over servers behind a layer-4 balancer, in simulated time: one event for each start and each end, none
//! for the packets in between. Where a packet would go is determined when something changes: a connection whose packets
//! may reach a server that does not hold it counts as broken from then on.
//!
//! ```text
//! durations.rs    how long connections last: the web server's distribution of the Cheetah paper
//! engine.rs       Poisson arrivals, ends, ticks; observers get each of them
//! updates.rs      servers that leave the pool and join it
//! steering.rs     which server gets a packet: product policies by the connection's key, or the indirection table
//! tracking.rs     which server holds a connection, where its packets go, with and without daisy chaining
//! spreading.rs    how evenly a policy spreads connections over servers
//! rebalanced.rs   an indirection table that takes overloaded servers out
//! ```
//!
//! Cost: 100 to 300 ns per event with a policy that is O(1); an update costs one look-up per connection.

mod durations;
mod engine;
mod indirection;
mod rebalanced;
mod spreading;
mod steering;
mod tracking;
mod updates;

#[cfg(test)]
mod tests;

pub use durations::Durations;
pub use engine::{Traffic, Watch};
pub use indirection::{Comeback, IndirectionTable, Moved};
pub use rebalanced::Rebalanced;
pub use spreading::{Reweigh, Spreading};
pub use steering::{ByKey, Steering};
pub use tracking::{Broken, Tracking};
pub use updates::{Update, UpdateOrder, Updates};
