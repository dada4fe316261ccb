//! Where replies go without a configured next hop: the kernel's default route, found once instead of for
//! each packet, where that is the same.
//!
//! [`routes`] reads routes and rules, [`follow`] says whether one next hop stands for them and for which
//! clients it does not, and whether answers for these may be remembered; [`Watch`] tells of changes. What is not understood is not followed: the program
//! asks the kernel's routes for each packet then, which is slower and never wrong.

mod follow;
mod prefix;
pub(crate) mod routes;
mod watch;
mod why;

pub(crate) use follow::{Followed, Told, follow};
pub use prefix::Prefix;
pub use watch::Watch;
pub use why::Why;
