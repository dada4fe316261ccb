//! What is kept, without anything that means nothing after a restart: backends by name, wall time.

use serde::{Deserialize, Serialize};

/// One backend's part of a [`PlanRecord`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanRecordEntry {
    /// Whose weight.
    pub backend: String,
    /// The share of the traffic it was meant to get, 0…1.
    pub share: f64,
    /// The weight that was to be programmed.
    pub weight: u32,
}

/// A plan as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanRecord {
    /// When it was made, milliseconds since 1970.
    pub unix_ms: u64,
    /// Its epoch within the service.
    pub epoch: u64,
    /// Why it was made.
    pub reason: String,
    /// Its weights.
    pub entries: Vec<PlanRecordEntry>,
}

/// Something that happened or was decided, to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// When, milliseconds since 1970; not what orders events, for the wall clock may step back.
    pub unix_ms: u64,
    /// The backend it concerns, if one alone.
    pub backend: Option<String>,
    /// One word of a fixed set, such as `failed`.
    pub kind: String,
    /// Why, for people.
    pub reason: String,
}

/// An event that was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// Its number within the service, in the order of writing, from 1.
    pub seq: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: EventRecord,
}
