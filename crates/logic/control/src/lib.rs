//! The controller of one service: a state machine without clock, socket or randomness of its own.
//!
//! The daemon and the simulator drive the same code: [`Controller::step`] takes the time and an
//! [`Event`], and gives back [`Action`]s. A folder for each idea, in the order in which a report passes through:
//!
//! 1. `observe`: reports of the balancer become windows of traffic.
//! 2. `belief`: windows become what is believed of each backend, with its error: unloaded service time, cores,
//!    capacity, curve, quota; and whether it has changed.
//! 3. `members`: which backends serve, by answers to clients, checks and returns; what checks and probes may cost.
//! 4. `propose`: the weights that the pool should have under its traffic. `split` packs curves for methods that
//!    split the traffic; `in_flight` weighs by capacity for those that count requests, and `search` says which
//!    backends to park; `as_is` keeps weights where nothing can be packed; `backlog` corrects between decisions;
//!    `reserve` keeps the loss of any one server bearable.
//! 5. `gate`: when a proposal is made, and whether it is worth programming; `trial` takes back what made clients
//!    wait longer.
//! 6. `commit`: a decision on its way to the balancer, and what the sink answers.
//!
//! `experiments` give loads on purpose, to measure. `show` is what an operator sees. `tuning` has every threshold, and what
//! must hold between them.
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

mod backend;
mod belief;
mod commit;
mod controller;
mod event;
mod experiments;
mod gate;
mod members;
mod memory;
mod observe;
mod process;
mod propose;
mod show;
mod spec;
mod tuning;

pub use controller::Controller;
pub use event::{Action, Event, Record, RecordKind};
pub use memory::Memory;
pub use show::view::{
    Advice, BackendState, BackendView, Belief, CurveView, Phase, PlanView, ServiceView,
};
pub use spec::{BackendSpec, CheckSpec, CurveChoice, DriftTest, ProbeRate, ServiceSpec};
