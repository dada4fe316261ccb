//! As much of HTTP/1.1 as both ends of the lab need, without allocation per request: heads by
//! `httparse`, bodies by a small state machine that both ends share.

mod body;
mod head;
mod inbox;

pub use body::{Body, Framing};
pub use head::{RequestHead, ResponseHead, parse_request, parse_response};
pub use inbox::{Fill, Inbox};

/// The other side does not speak HTTP/1.1 as we understand it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolError(pub &'static str);
