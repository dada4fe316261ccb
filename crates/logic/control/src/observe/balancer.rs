//! What is known of the balancer itself.

use plimsoll_model::{Method, MethodKind, Nanos, Traffic};

use crate::tuning::observe::reports::STALE;

/// The balancer as last reported, and why it cannot be steered, if so.
#[derive(Clone, Debug)]
pub(crate) struct Balancer {
    method: Option<Method>,
    generation: Option<u64>,
    /// How the numbers of requests in the last report came about.
    traffic: Traffic,
    seen_at: Option<Nanos>,
    trouble: Option<String>,
    /// Only an administrator can resolve the trouble: until then nothing is programmed.
    conflict: bool,
    /// Why some of several balancers cannot be steered, while the others are.
    degraded: Option<String>,
    /// How many of several balancers share the traffic, once that is known.
    sharing: Option<u32>,
}

impl Default for Balancer {
    fn default() -> Self {
        Balancer {
            method: None,
            generation: None,
            traffic: Traffic::default(),
            seen_at: None,
            trouble: Some("the balancer has not been read yet".to_owned()),
            conflict: false,
            degraded: None,
            sharing: None,
        }
    }
}

impl Balancer {
    /// How it picks, once that was read.
    pub fn method(&self) -> Option<&Method> {
        self.method.as_ref()
    }

    /// The kind of its method; a split until it is known.
    pub fn kind(&self) -> MethodKind {
        self.method.as_ref().map_or(MethodKind::Split, |m| m.kind)
    }

    pub fn set_method(&mut self, method: Method) {
        self.method = Some(method);
    }

    /// Takes the generation of a report; returns whether the balancer was restarted or reloaded since the last one.
    pub fn note_generation(&mut self, generation: u64) -> bool {
        self.generation.replace(generation).is_some_and(|last| last != generation)
    }

    /// How its numbers of requests come about.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    pub fn set_traffic(&mut self, traffic: Traffic) {
        self.traffic = traffic;
    }

    /// The time of the last report.
    pub fn seen_at(&self) -> Option<Nanos> {
        self.seen_at
    }

    pub fn note_seen(&mut self, at: Nanos) {
        self.seen_at = Some(at);
    }

    /// Whether the last report is recent enough to plan from.
    pub fn is_fresh(&self, now: Nanos) -> bool {
        self.seen_at.is_some_and(|at| now.since(at) < STALE)
    }

    /// Why it cannot be steered, or some of several balancers.
    pub fn trouble(&self) -> Option<&String> {
        self.trouble.as_ref().or(self.degraded.as_ref())
    }

    /// Whether an administrator must act before anything is programmed.
    pub fn is_in_conflict(&self) -> bool {
        self.conflict
    }

    /// It cannot be read or steered, for this reason; returns whether that is news.
    pub fn lose(&mut self, reason: String, conflict: bool) -> bool {
        let is_news = self.trouble.as_ref() != Some(&reason);
        self.trouble = Some(reason);
        self.conflict = conflict;
        is_news
    }

    /// It can be read again; returns what the trouble was.
    pub fn recover(&mut self) -> Option<String> {
        let trouble = self.trouble.take()?;
        self.conflict = false;
        Some(trouble)
    }

    /// So many of several balancers share the traffic.
    pub fn set_sharing(&mut self, number: u32) {
        self.sharing = Some(number);
    }

    /// How many share it, of so many that do not know of each other's requests.
    pub fn sharing(&self, of: u32) -> u32 {
        self.sharing.map_or(of, |number| number.clamp(1, of.max(1)))
    }

    /// Some of several balancers cannot be steered, for this reason, or all can; returns whether that is news.
    pub fn set_degraded(&mut self, reason: Option<String>) -> bool {
        let is_news = self.degraded != reason;
        self.degraded = reason;
        is_news
    }
}
