//! What §2.1 of the paper simulates: one service of 468 servers, and connections that last as long as those
//! of a large web server.

use plimsoll_policy::{Policy, PolicyKind, Settings};
use plimsoll_sim::flows::{Durations, Traffic};

use crate::{Context, Failure};

/// The paper's servers.
pub const SERVERS: usize = 468;
/// Entries of Beamer's and Faild's table: 140 per server, a power of two.
pub const ENTRIES: usize = 1 << 16;
/// Points of a server on a ring, sixteen for each unit of weight: what `hash_ring` advises for equal ones.
pub const RING_WEIGHT: u32 = 16;

/// So many connections at a time, counted for so long.
pub fn traffic(context: &Context, active: f64, counted_s: f64) -> Traffic {
    Traffic {
        active,
        durations: Durations::web_server(),
        settle_s: 0.0,
        counted_s,
        to_their_end: false,
        seed: context.seed,
    }
}

/// A policy of the product over servers of these weights.
pub fn build(
    kind: PolicyKind,
    weights: &[u32],
    settings: &Settings,
) -> Result<Box<dyn Policy>, Failure> {
    kind.build(weights, settings).map_err(|error| Failure::Other(error.to_string()))
}

/// What a reader of any of these figures must know.
pub fn notes() -> Vec<String> {
    [
        "Everything is simulated, connection by connection: Poisson arrivals; durations are those of the \
         authors' web server workload, as they publish it with their experiments (19 values from 1 ms to \
         150 s, 26 s in the mean, half of them below half a second).",
        "Policies are the product's own (crates/logic/policy), and so is the cookie (crates/logic/cookie). \
         Every connection's key is the hash of addresses of its own.",
    ]
    .map(str::to_owned)
    .to_vec()
}
