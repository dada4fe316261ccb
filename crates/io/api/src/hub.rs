//! Where the daemon leaves what the API shows.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_control::{Record, ServiceView};

use crate::counters::Counters;
use crate::finite::finite;
use crate::ring::Ring;
use crate::wire::{Event, NotReady, Readiness, ServiceEvents, ServiceSummary};

/// All that the API knows; cloning it is cheap and shares it.
#[derive(Clone, Debug)]
pub struct Hub(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    version: String,
    started_unix_ms: i64,
    services: RwLock<Vec<Arc<Slot>>>,
}

/// What is known of one service.
#[derive(Debug)]
pub(crate) struct Slot {
    name: String,
    view: RwLock<Arc<ServiceView>>,
    ring: Mutex<Ring>,
    counters: Counters,
}

/// The daemon's end of one service; cloning it is cheap and shares it.
#[derive(Clone, Debug)]
pub struct Publisher(Arc<Slot>);

impl Hub {
    /// A hub without services, for a daemon of this version that starts now.
    pub fn new(version: &str) -> Self {
        Hub(Arc::new(Inner {
            version: version.to_owned(),
            started_unix_ms: unix_ms(SystemTime::now()),
            services: RwLock::default(),
        }))
    }

    /// Shows a service from now on, with this first view. One of the same name is replaced and its
    /// counters begin anew.
    pub fn add(&self, view: ServiceView) -> Publisher {
        let name = view.service.clone();
        let slot = Arc::new(Slot {
            name: name.clone(),
            view: RwLock::new(Arc::new(finite(view))),
            ring: Mutex::default(),
            counters: Counters::default(),
        });
        let mut services = self.0.services.write().unwrap_or_else(PoisonError::into_inner);
        match services.iter_mut().find(|s| s.name == name) {
            Some(old) => *old = Arc::clone(&slot),
            None => services.push(Arc::clone(&slot)),
        }
        Publisher(slot)
    }

    /// Shows a service no longer; what its publisher still says goes nowhere.
    pub fn remove(&self, name: &str) {
        let mut services = self.0.services.write().unwrap_or_else(PoisonError::into_inner);
        services.retain(|s| s.name != name);
    }

    /// Whether every service has read its balancer and has no trouble, and which have not.
    pub fn readiness(&self) -> Readiness {
        let mut reasons: Vec<NotReady> =
            self.slots().iter().filter_map(|s| s.not_ready()).collect();
        if self.slots().is_empty() {
            let reason = "no service is running yet".to_owned();
            reasons.push(NotReady { service: String::new(), reason });
        }
        Readiness { ready: reasons.is_empty(), reasons }
    }

    pub(crate) fn version(&self) -> &str {
        &self.0.version
    }

    pub(crate) fn started_unix_ms(&self) -> i64 {
        self.0.started_unix_ms
    }

    pub(crate) fn slots(&self) -> Vec<Arc<Slot>> {
        self.0.services.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn slot(&self, name: &str) -> Option<Arc<Slot>> {
        let services = self.0.services.read().unwrap_or_else(PoisonError::into_inner);
        services.iter().find(|s| s.name == name).cloned()
    }

    pub(crate) fn events(&self, slot: &Slot, after: Option<u64>, limit: usize) -> ServiceEvents {
        let ring = slot.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ServiceEvents {
            service: slot.name.clone(),
            instance: self.0.started_unix_ms.unsigned_abs(),
            last_seq: ring.last_seq(),
            events: ring.read(after, limit),
        }
    }
}

impl Slot {
    pub(crate) fn view(&self) -> Arc<ServiceView> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn summary(&self) -> ServiceSummary {
        ServiceSummary::of(&self.view(), self.not_ready().is_none())
    }

    pub(crate) fn not_ready(&self) -> Option<NotReady> {
        let reason = match &self.view().trouble {
            Some(trouble) => trouble.clone(),
            None if self.counters.has_polled() => return None,
            None => "the balancer has not been read yet".to_owned(),
        };
        Some(NotReady { service: self.name.clone(), reason })
    }
}

impl Publisher {
    /// Shows this view from now on. Numbers that JSON cannot hold are left out or bounded.
    pub fn publish(&self, view: ServiceView) {
        let view = Arc::new(finite(view));
        *self.0.view.write().unwrap_or_else(PoisonError::into_inner) = view;
    }

    /// Shows and counts a decision; gives the event as it was numbered, to be kept in the store.
    pub fn record(&self, at: SystemTime, record: Record) -> Event {
        self.0.counters.recorded(record.kind);
        self.0.ring.lock().unwrap_or_else(PoisonError::into_inner).push(unix_ms(at), record)
    }

    /// Shows events of earlier runs, oldest first; the next one goes on from their numbers. Those not
    /// newer than the last are ignored.
    pub fn restore(&self, events: impl IntoIterator<Item = Event>) {
        let mut ring = self.0.ring.lock().unwrap_or_else(PoisonError::into_inner);
        events.into_iter().for_each(|event| ring.keep(event));
    }

    /// What the machinery around this service counts.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }
}

fn unix_ms(at: SystemTime) -> i64 {
    match at.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    }
}
