//! What strangers send: packets that lie, cookies that are guessed, floods. Millions of packets are made
//! in the kernel (`crates/lab/l4bench/bpf`), so that all of them take seconds.

#[path = "../support/mod.rs"]
mod support;

mod crowd;
mod fuzz;
