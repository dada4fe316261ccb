//! The very controller that the daemon runs, in simulated time.
//!
//! A [`Plant`] is a pool behind a balancer: [`RequestPlant`] simulates every request and picks by
//! HAProxy's real keys, [`SamplePlant`] draws what a reading of the balancer would show, which is cheap
//! enough for days. A [`Rig`] puts the controller in charge of one, with everything that the daemon has
//! between the two, and lets it go wrong in all the ways of [`Fault`]; after every step the invariants
//! ([`Rule`]) are checked. A [`Scenario`] is made wholly from its seed. [`World`] is a request-level pool
//! that experiments drive by hand. See `docs/simulation.md`.

mod arena;
mod command;
mod container;
mod digest;
mod fault;
pub mod flows;
mod law;
mod ledger;
mod luck;
mod names;
mod plant;
mod pool;
mod request;
mod rig;
mod roundrobin;
mod run;
mod sabotage;
mod sample;
mod scenario;
mod verdict;
mod world;

pub use arena::{
    AdmissionDoor, Arena, ArenaReport, BackendReport, Change, Clients, InFlightBy, Ingress, Offer,
    Patience, Refusal, ShortestDelay, StaticLimit, Step, Surroundings, TypeReport, Window,
    Yardsticks, integer_weights, static_shares, yardsticks,
};
pub use command::EXPLORATIONS;
pub use container::{Container, ContainerPool, ContainerPoolSpec, Outcome};
pub use digest::Digest;
pub use fault::Fault;
pub use ledger::{Rule, Violation};
pub use luck::Luck;
pub use plant::{Condition, Plant};
pub use pool::{BackendModel, Method, paper_pool, pool_named, service_named, small_pool};
pub use request::{Answer, RequestPlant};
pub use rig::{Rig, Tally};
pub use roundrobin::HaproxyRoundRobin;
pub use run::{Failure, Level, Order};
pub use sabotage::Sabotage;
pub use sample::SamplePlant;
pub use scenario::{Cadence, Disturbance, Profile, Scenario};
pub use verdict::Verdict;
pub use world::{World, WorldSpec, poll_asked};
