//! Bodies as they pass: nothing is read before it can be sent on.

mod outgoing;
mod reply;

pub(crate) use outgoing::{Outgoing, Source};
pub(crate) use reply::{Body, BodyError, Passage};
