//! The proxy on real sockets. No test fails by how fast a clock ran.

mod end;
mod ingress;
mod input;
mod limits;
mod pass;
mod retry;
mod support;
