//! A pool of containers under CPU quotas, as `plimsoll-lab real` measures them on real servers: quota and period with
//! their burst, requests of one server that share its CPU, pauses, clients that give up. Health checks are bare
//! connections, which cost nothing.

mod pool;
mod server;

pub use pool::{ContainerPool, ContainerPoolSpec, Outcome};
pub use server::Container;
