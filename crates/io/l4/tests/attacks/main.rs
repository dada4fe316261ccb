//! What strangers send: packets that lie, cookies that are guessed, floods. Millions of packets are made
//! in the kernel (`bpf/bench`), so that all of them take seconds.

#[path = "../../examples/support/mod.rs"]
mod support;

mod crowd;
mod fuzz;
