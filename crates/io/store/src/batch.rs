use std::collections::BTreeMap;

use crate::records::{EventRecord, PlanRecord};

/// What is written together: all of it, or nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    pub(crate) memory: BTreeMap<String, Vec<u8>>,
    pub(crate) plans: BTreeMap<String, Vec<PlanRecord>>,
    pub(crate) events: BTreeMap<String, Vec<EventRecord>>,
}

impl Batch {
    /// Nothing yet.
    pub fn new() -> Self {
        Batch::default()
    }

    /// What the controller of a service has learned, in a form of its own; replaces what was there.
    pub fn memory(&mut self, service: &str, bytes: Vec<u8>) {
        self.memory.insert(service.to_owned(), bytes);
    }

    /// One more plan of a service.
    pub fn plan(&mut self, service: &str, plan: PlanRecord) {
        self.plans.entry(service.to_owned()).or_default().push(plan);
    }

    /// One more event of a service.
    pub fn event(&mut self, service: &str, event: EventRecord) {
        self.events.entry(service.to_owned()).or_default().push(event);
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && !self.is_pressing()
    }

    /// Whether it holds what a restart steers from: plans or memory.
    pub(crate) fn is_pressing(&self) -> bool {
        !self.memory.is_empty() || !self.plans.is_empty()
    }
}
