//! A real NGINX: what every sink promises, with the Lua balancer and by reloads, and what is its own.

#[path = "../contract/mod.rs"]
mod contract;
mod counted;
mod load;
mod lua;
mod reload;
mod rig;
mod told;
