//! What a forwarder tells: `plimsoll edge status -o json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A forwarder at a glance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// How weights are set.
    pub policy: String,
    /// How often, milliseconds.
    pub interval_ms: u64,
    /// The flow table.
    pub table: TableStatus,
    /// Nodes, in the order of the configuration.
    pub nodes: Vec<NodeStatus>,
    /// Every service on every core of every node.
    pub places: Vec<PlaceStatus>,
    /// Packets that did not go straight to a node, by reason.
    pub reasons: BTreeMap<String, u64>,
    /// Reports of nodes that were not used, by reason.
    pub refused_reports: BTreeMap<String, u64>,
}

/// The flow table, as the last walk found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStatus {
    /// Entries of each address family at the most.
    pub limit: u32,
    /// Entries of IPv4.
    pub entries4: u32,
    /// Entries of IPv6.
    pub entries6: u32,
    /// Of these, with packets in both directions.
    pub answered: u32,
    /// Flows that ended or were idle, since the table was made.
    pub ended: u64,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// `serving`, `standby`, `draining`, `differs` (it answers, with another configuration), `down`.
    pub state: String,
    /// What keeps it from serving, where something does.
    pub problem: Option<String>,
    /// Packets that the node itself did not hand on, by reason.
    pub reasons: BTreeMap<String, u64>,
}

/// A service on a core of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaceStatus {
    /// The node.
    pub node: String,
    /// The CPU.
    pub cpu: u32,
    /// The service.
    pub service: String,
    /// Packets sent there, ever.
    pub packets: u64,
    /// Of these, packets of flows that were old, by their age or their packets.
    #[serde(default)]
    pub old: u64,
    /// Of these, packets of flows between young and old.
    #[serde(default)]
    pub aging: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets against the direction of their flow's first.
    pub replies: u64,
    /// Part of the core that these packets took in the last half second, as predicted.
    pub predicted: f64,
    /// The same as the node reported it; none: it has not lately.
    pub reported: Option<f64>,
    /// What a packet is taken to cost, microseconds.
    pub cost_us: f64,
    /// What it cost in the burst at the node's start, microseconds.
    pub calibrated_us: Option<f64>,
    /// Share of new flows.
    pub weight: f64,
    /// Flows that are there.
    pub flows: u64,
    /// Flows sent there, ever.
    pub opened: u64,
}

/// Where a flow is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Where {
    /// The node.
    pub node: String,
    /// The CPU.
    pub cpu: u32,
    /// The service.
    pub service: String,
    /// Since when there was no packet, milliseconds, to the second.
    pub idle_ms: u64,
    /// Whether packets came against its first one.
    pub answered: bool,
    /// Whether a function rewrote it, and the other side of it is known, too.
    pub rewritten: bool,
}
