//! Which requests are let in: a backend's ingress admits what its application can work on and refuses the rest at
//! once, and the egress learns from that where to send.
//!
//! Everything is pure: time and randomness are arguments, requests in flight are passed in. The simulator runs it
//! (`plimsoll_sim::Arena`), and whatever holds requests can. Nothing is allocated while requests are served.
//!
//! ```text
//! ingress   src/admission.rs   admits or refuses, by capacity and by deadline; the chip of a response
//!           src/left_behind.rs those that were given up, and are still worked on
//!           src/capacity.rs    how many there may be: static, the paper's average, adaptive
//!           src/capacity/      knee (latency over requests in flight), trial (throughput at two limits),
//!                              allowance (what refusing costs), adaptive (the three together),
//!                              escalation (less for requests with tries left)
//! egress    src/ledger.rs      chips by backend, which may be picked, what when none may
//!           src/retry.rs       whether a request that was refused or failed is tried elsewhere
//!           src/wait.rs        requests that every try refused wait for room
//! ```
//!
//! An ingress is asked with [`Admission::decide`] and informed with [`Admission::finish`]; the egress'
//! policy keeps a [`ChipLedger`], and its caller a [`Retries`]. Between them goes one header each way: the
//! request says how often it would be tried elsewhere, the response carries the chip, or that it is a
//! refusal. Every option, its default and its reason: `docs/admission.md`.

mod admission;
mod capacity;
mod ledger;
mod left_behind;
mod retry;
mod wait;

pub use admission::{
    Admission, AdmissionCounts, AdmissionOptions, AdmissionOptionsError, Arrival, CHIP_SHARE,
    Decision, Ended, Permit, Reason, TRIAL_EVERY, TRIAL_EVERY_BUSY,
};
pub use capacity::{AVERAGED_OVER, AdaptiveOptions, CapacityOptions, CapacityOptionsError, Delay};
pub use ledger::{
    ChipLedger, LedgerCounts, LedgerOptions, LedgerOptionsError, MOST_CHIPS, WhenNone,
};
pub use retry::{
    FailureRetries, RefusalBudget, RefusalRetries, Retries, Retry, RetryCounts, RetryOptions,
    RetryOptionsError,
};
pub use wait::{Endings, WaitOptions, WaitOptionsError, WaitQueue};
