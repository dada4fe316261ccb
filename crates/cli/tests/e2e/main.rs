//! The binary, end to end: a real HAProxy, emulated backends over real HTTP, and `plimsoll` as users
//! run it. Nothing here measures time; waits are bounded generously.

mod access_logs;
mod asking;
mod bad_input;
mod bad_starts;
mod changing;
mod doctor;
mod faults;
mod from_nothing;
mod learning;
mod lives;
mod log;
mod nginx;
mod prometheus;
mod proxy;
mod ready;
mod reload;
mod rig;
mod several;
mod sharing;
mod signals;
mod silence;
