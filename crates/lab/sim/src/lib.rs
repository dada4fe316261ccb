//! The controller that the daemon runs, unchanged, in simulated time.
//!
//! A [`PoolModel`] is a pool behind a balancer: [`RequestPool`] simulates every request and picks by
//! HAProxy's real keys, [`SampledPool`] draws what a reading of the balancer would show, which is cheap
//! enough for days. A [`Rig`] lets the controller steer one, through a simulation of everything that the daemon
//! has between the two, and injects the faults of [`Fault`]; after every step the invariants
//! ([`Rule`]) are checked. A [`Scenario`] is made wholly from its seed. [`World`] is a request-level pool
//! that experiments drive by hand. See `docs/simulation.md`.

mod arena;
mod asking;
mod balancer;
mod command;
mod container;
mod cores;
mod digest;
pub mod edge;
mod fault;
pub mod flows;
mod interval;
mod invariants;
pub mod knapsack;
mod law;
mod mutant;
mod names;
mod pool;
mod pool_model;
mod random;
mod request;
mod rig;
mod run;
mod sample;
mod scenario;
mod verdict;
mod world;

pub use arena::{
    AdmissionDoor, Arena, ArenaReport, BackendReport, Change, Clients, InFlightBy, Ingress, Offer,
    OneQueue, Patience, Refusal, ShortestDelay, StaticLimit, Step, Surroundings, TypeReport,
    Window, Yardsticks, integer_weights, static_shares, yardsticks,
};
pub use container::{Container, ContainerPool, ContainerPoolSpec, Outcome};
pub use cores::{cores, on_cores};
pub use digest::Digest;
pub use fault::Fault;
pub use interval::{half_width, mean, standard_error, student};
pub use invariants::{Rule, Violation};
pub use mutant::Mutant;
pub use pool::{BackendModel, Method, paper_pool, pool_named, service_named, small_pool};
pub use pool_model::{Condition, PoolModel};
pub use random::RandomStream;
pub use request::{Answer, RequestPool};
pub use rig::{Rig, Tally};
pub use run::{Failure, Level, Order};
pub use sample::SampledPool;
pub use scenario::{Cadence, Disturbance, Profile, Scenario};
pub use verdict::Verdict;
pub use world::{World, WorldSpec, poll_asked};
