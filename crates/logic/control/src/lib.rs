//! The controller of one service: a state machine without clock, socket or randomness of its own.
//!
//! The daemon and the simulator drive the same code: `Controller::step` takes the time and an
//! [`Event`], and gives back [`Action`]s.

mod event;
mod spec;
mod view;

pub use event::{Action, Event, Record, RecordKind};
pub use spec::{BackendSpec, CurveChoice, Exploration, ProbeRate, ServiceSpec};
pub use view::{Advice, BackendState, BackendView, CurveView, Phase, PlanView, ServiceView};
