//! The prober against real sockets on loopback: servers that are right, wrong, slow and gone.

mod closing;
mod failures;
mod framing;
mod keeping;
mod liveness;
mod scheduler;
mod server;
mod tls;
