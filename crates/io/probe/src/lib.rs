//! Measures backends.
//!
//! One backend is measured by a [`Prober`], which sends what a [`Probe`] says (a checked
//! [`ProbeSpec`]) and says what became of it: a latency, or which of the seven failures of
//! [`plimsoll_model::FailureKind`]. Heads are read by `httparse`; connecting, sending, reading and the
//! time limit are here, because a measuring instrument must know to the microsecond what it measures,
//! and to the byte what it reads.
//!
//! All backends together are measured by a [`Scheduler`]. It decides nothing: its caller says how often
//! ([`ProbePlan`]) and sends a [`ProbeEvent`] per probe. Apart from that, on connections of its own, a
//! light watch ([`LivenessSpec`]) begins rounds of checks, as often as asked and whether or not earlier
//! ones hang, and sends a [`LivenessEvent`] per round: a backend that refuses is reported within an
//! interval, one gone silent within an interval and a time-out.
//!
//! What this machine lacks (descriptors, memory) is a [`LocalFault`] and never a backend's failure.

mod cadence;
mod clock;
mod closing;
mod config;
mod conn;
mod event;
mod exchange;
mod failure;
mod http;
mod liveness;
mod measure;
mod plan;
mod probe;
mod prober;
mod request;
mod resolve;
mod scheduler;
mod spec;
mod status;
mod tally;
mod tls;

pub use clock::Clock;
pub use config::{LivenessConfig, ProbeConfig};
pub use event::{LivenessEvent, ProbeEvent};
pub use failure::{Detail, LocalFault};
pub use liveness::{LivenessCheck, LivenessSpec};
pub use plan::{PlanError, ProbePlan};
pub use probe::Probe;
pub use prober::{ProbeResult, Prober};
pub use scheduler::{Scheduler, Target};
pub use spec::{Connection, ProbeSpec, Scheme, SpecError, TlsSpec};
pub use status::{StatusSet, StatusSetError};
