//! The controller of one service: a state machine without clock, socket or randomness of its own.
//!
//! The daemon and the simulator drive the same code: [`Controller::step`] takes the time and an
//! [`Event`], and gives back [`Action`]s. It reads from outside in:
//!
//! 1. Reports of the balancer become windows (`traffic`), windows become knowledge of each backend
//!    (`knowledge`): its time at rest, its cores, its curve. `health` says who may serve at all.
//! 2. A decision is made for the method that the balancer picks by: `split` packs curves,
//!    `in_flight` weighs by capacity and searches whom to park (`search`). `paper` explores the way
//!    KnapsackLB does (`climbers`), for comparison.
//! 3. `decide` says when, and whether a decision is worth programming; `trial` takes back what made
//!    clients wait longer.
//!
//! ```
//! use plimsoll_control::{BackendSpec, Controller, Event, ServiceSpec};
//! use plimsoll_model::{BackendId, Nanos};
//!
//! let backends = vec![BackendSpec { id: BackendId(1), name: "s1".to_owned() }];
//! let mut controller = Controller::new(ServiceSpec::new("shop", backends), None, Nanos::ZERO, 1);
//! // Nothing is programmed before the balancer was read.
//! assert!(controller.step(Nanos(100_000_000), Event::Tick).iter().all(|a| {
//!     !matches!(a, plimsoll_control::Action::Program(_))
//! }));
//! ```

mod advice;
mod answers;
mod asking;
mod backend;
mod backlog;
mod climbers;
mod controller;
mod decide;
mod drain;
mod drift;
mod event;
mod grain;
mod health;
mod in_flight;
mod knowledge;
mod leave;
mod life;
mod memory;
mod paper;
mod plan;
mod points;
mod pool_health;
mod refresh;
mod reports;
mod reserve;
mod search;
mod shape;
mod show;
mod silence;
mod spec;
mod split;
mod traffic;
mod trial;
mod typical;
mod urgent;
mod variability;
mod view;
mod worth;

pub use controller::Controller;
pub use event::{Action, Event, Record, RecordKind};
pub use memory::Memory;
pub use spec::{
    BackendSpec, CheckSpec, CurveChoice, DrainTest, DriftTest, Exploration, ProbeRate, ServiceSpec,
};
pub use view::{
    Advice, BackendState, BackendView, Belief, CurveView, Phase, PlanView, ServiceView,
};
