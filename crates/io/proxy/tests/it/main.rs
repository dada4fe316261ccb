//! The proxy on real sockets. No test fails by how fast a clock ran.

mod clients;
mod cookies;
mod end;
mod ingress;
mod input;
mod interim;
mod leave;
mod limits;
mod pass;
mod pressure;
mod probes;
mod registry;
mod reload;
mod retry;
mod sources;
mod steer;
mod support;
mod wait;

#[path = "../../../sink/tests/contract/mod.rs"]
mod contract;
