//! Testbed and load generator over real sockets on the loopback.

mod backends;
mod common;
mod load;
