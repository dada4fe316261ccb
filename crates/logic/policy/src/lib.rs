//! Balancing policies: each picks one backend for one request, and learns from how requests end.
//!
//! A [`Policy`] is pure: time and randomness are arguments, so that the lab, the simulator and whatever
//! balances run the same code and every run can be repeated from its seed. Backends are dense
//! indices from 0; nothing is allocated in [`Policy::pick`].
//!
//! ```text
//! src/policy.rs     the trait, what a request tells, how one ends
//! src/kind.rs       the registry: every policy by its name
//! src/settings.rs   what can be set
//! src/policies/     one file per policy
//! src/guard.rs      what any of them can be given: a limit, ejection of outliers, slow start
//! src/key.rs        what of a request is hashed
//! src/state/        what several share: weighted draws, requests in flight, latency estimates,
//!                   and the rule for failures
//! tests/            what every policy must hold to, run over the whole registry
//! ```
//!
//! A new policy is a file in `policies/`, a row in the registry's table and an arm in its `build_bare`; the
//! tests of the registry then apply to it. `CONTRIBUTING.md` has every step.
//!
//! **A quick failure is not speed.** A backend that answers 500 in a millisecond has little in flight
//! and a short response time; a policy that believes that sends it everything. How each failure is
//! counted instead is explained in `state/failure.rs`.

mod guard;
mod key;
mod kind;
mod policies;
mod policy;
mod settings;
mod state;

pub use guard::{EjectionSettings, Guarded, Ramping, SlowStartSettings};
pub use key::{HashFunction, HashKey, KeySource, RequestView, UriPart};
pub use kind::{PolicyKind, UnknownPolicy};
pub use policies::{
    Bloc, CpuRandom, ExpectedDelay, ExpectedDelaySettings, First, HaproxyLeastconnPolicy,
    HaproxyRoundRobinPolicy, HashMaglev, HashRing, LeastConnections, LeastTime, MapHash, PeakEwma,
    PowerOfN, PowerOfNLatency, Prequal, PrequalSettings, Random, RoundRobin, Sight,
    StaticRoundRobin,
};
pub use policy::{Ending, Finish, MAX_AVOID, Policy, Probing, Request, ServerLoad};
pub use settings::{Draw, InvalidSetting, MAX_CHOICES, Settings};
