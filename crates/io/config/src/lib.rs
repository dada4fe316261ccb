//! Reads configuration files, in two stages: *what was written* (a [`Document`]: a tree of YAML nodes that know
//! their place) becomes *what is meant*, by way of a [`Cursor`] on each value. A reader that returns `None` has
//! reported why; its caller goes on with the other keys, so that one run reports every problem.
//!
//! This crate knows YAML, places and plain values (numbers, times, addresses). What the keys mean is read by the
//! parts that they configure, into types of their own.
//!
//! ```
//! use plimsoll_config::{Cursor, Document};
//!
//! let document = Document::parse("shop.yaml", "port: 80\nname: shop\n")?;
//! let read = document.read(|cursor: &Cursor<'_>| {
//!     let fields = cursor.fields(&["port", "name"])?;
//!     fields.required("port", "a port", |c| c.integer(1..=65_535))
//! });
//! assert_eq!(read, Ok(80));
//! # Ok::<(), Vec<plimsoll_config::ConfigError>>(())
//! ```

mod address;
mod document;
mod once;
mod placed;
mod read;
mod report;
mod scalar;
mod tree;

pub use address::{Address, Expected, Host};
pub use document::{Document, MAX_FILE};
pub use once::Once;
pub use placed::Placed;
pub use read::{Cursor, Fields, Keyed, LONGEST_UNIX_PATH};
pub use report::{ConfigError, Position, Report, quoted};
