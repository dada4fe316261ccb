//! Which backends serve: answers to clients, checks and their budget, failures and returns.

pub(crate) mod asking;
pub(crate) mod health;
pub(crate) mod life;
pub(crate) mod pool_health;
pub(crate) mod silence;
