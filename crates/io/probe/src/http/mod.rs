//! The receiving half of HTTP/1.1 (RFC 9112), without IO: heads by `httparse`, bodies by a small
//! machine that counts what it is fed and keeps only what will be looked at.

mod body;
mod head;

pub(crate) use body::{Body, BodySink};
pub(crate) use head::{Head, MAX_HEAD, parse_head};
