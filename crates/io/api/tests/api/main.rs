//! The API over real loopback sockets, against a hub with made-up views.

mod common;
mod http;
mod metrics;
