//! Who is let in: a backend's ingress admits what the application can work on and refuses the rest at
//! once, and the egress learns from that where to send.
//!
//! Everything is pure: time and randomness are arguments.

mod ledger;

pub use ledger::{ChipLedger, LedgerCounts, LedgerOptions, LedgerOptionsError, WhenNone};
