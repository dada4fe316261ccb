//! Connection cookies: which server a connection belongs to, carried by the connection itself, so that
//! a balancer keeps nothing about it.
//!
//! The carrier is the TCP timestamp option. A server's TSval is a clock in milliseconds; its upper half
//! is replaced on the way to the client, which echoes it in TSecr:
//!
//! ```text
//! TSval on the wire   version (n) | epoch (1) | cookie (15-n) | low half of the server's clock (16)
//! ```
//!
//! * **version**: the low n bits of the clock's upper half. They are the most significant ones on the
//!   wire, so the wire's timestamp grows as the clock does, and a client's check against wrapped
//!   sequence numbers (PAWS, RFC 7323 §5) holds for whoever is idle for less than 2^(15+n) ms.
//! * **epoch**: which of two salts made the cookie; salts rotate without breaking a connection.
//! * **cookie**: the server's id under a permutation that the salt and the connection's addresses key.
//!
//! Source: Barbette et al., *A High-Speed Load-Balancer Design with Guaranteed
//! Per-Connection-Consistency* (Cheetah), NSDI '20, §4 and appendix C.1. There the cookie is
//! `id XOR hash` and the version a single bit; see [`Salt`] and [`Layout`] for what differs and why.
//!
//! [`ConfigTags`], [`HashIndex`] (appendix B) and [`SubflowOrder`] (§7) are codecs alone, for carriers of a few
//! bits and for several paths: no data plane here uses them yet. The last is what joins of multipath connections would need.
//!
//! [`CookieCodec`] ties the parts together. The XDP program (`crates/io/l4/bpf/cookie.h`) does the same
//! in C; `tests/vectors.csv` binds both.

mod clock;
mod codec;
mod layout;
mod multipath;
mod salt;
mod short;

pub use clock::{Restorer, SaltSwitch};
pub use codec::{CookieCodec, Decoded, IdState, Verdict};
pub use layout::{BadLayout, Layout, ServerId};
pub use multipath::SubflowOrder;
pub use salt::{Epoch, FlowHash, Salt, SpreadKey, Tuple};
pub use short::{ConfigTags, HashIndex, TagError};
