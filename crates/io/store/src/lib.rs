//! Keeps what was learned, in one file, through restarts, crashes and full disks.
//!
//! The file is a [redb](https://docs.rs/redb) database. Everything goes in under the service's name:
//! the controller's memory as bytes of its own, plans and events, each bounded. A file that is damaged, foreign or newer is an error that names it, and is never changed:
//! the first look at it goes through an overlay that keeps all writes in memory. One controller holds
//! the store at a time; a second one gets the holder's name.
//!
//! What survives: a commit is all or nothing. Plans and memory reach the disk within about a second,
//! events within ten; a crash loses no more than that.

mod batch;
mod error;
mod lock;
mod open;
mod overlay;
mod records;
mod store;
mod tables;

pub use batch::Batch;
pub use error::StoreError;
pub use lock::Holder;
pub use records::{EventRecord, PlanRecord, PlanRecordEntry, StoredEvent};
pub use store::Store;
pub use tables::Bounds;
