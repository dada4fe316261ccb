//! The layer-4 balancer as a balancer that is steered: a real `plimsoll l4 run`, real servers in namespaces,
//! weights from `plimsoll run` and from the servers' load.

#[path = "../../../io/sink/tests/contract/mod.rs"]
mod contract;
mod loads;
mod place;
mod promises;
mod steering;
