//! Where the daemon leaves what the API shows.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
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
    lost_log_lines: OnceLock<&'static AtomicU64>,
    /// What the daemon waits for before it can have services.
    waiting: Mutex<Option<String>>,
}

/// What is known of one service.
#[derive(Debug)]
pub(crate) struct Slot {
    name: String,
    view: RwLock<Arc<ServiceView>>,
    ring: Mutex<Ring>,
    counters: Counters,
    /// Why the last plan was not taken; none when it was.
    refusal: Mutex<Option<String>>,
    /// What has ended and should be at work.
    ended: Mutex<BTreeSet<Part>>,
}

/// A task without which a service is not steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The one that drives the controller.
    Service,
    /// The one that starts it again when it fails.
    Supervisor,
}

/// A task at work; it ends, however it ends, with this.
#[derive(Debug)]
pub struct AtWork {
    slot: Arc<Slot>,
    part: Part,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        lock(&self.slot.ended).insert(self.part);
    }
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
            lost_log_lines: OnceLock::new(),
            waiting: Mutex::default(),
        }))
    }

    /// Shows this count of log lines that were lost. The first one is kept.
    pub fn count_lost_log_lines(&self, lost: &'static AtomicU64) {
        // An error is another one that is kept.
        let _ = self.0.lost_log_lines.set(lost);
    }

    pub(crate) fn lost_log_lines(&self) -> u64 {
        self.0.lost_log_lines.get().map_or(0, |lost| lost.load(Relaxed))
    }

    /// Says what the daemon waits for before it can have services; nothing any longer.
    pub fn wait_for(&self, what: Option<String>) {
        *lock(&self.0.waiting) = what;
    }

    /// What it waits for while it has no services.
    pub(crate) fn waiting(&self) -> Option<String> {
        lock(&self.0.waiting).clone().filter(|_| self.slots().is_empty())
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
            refusal: Mutex::default(),
            ended: Mutex::default(),
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

    /// Whether every service is at work, has read its balancer, has no trouble and has its plans taken, and
    /// which have not.
    pub fn readiness(&self) -> Readiness {
        let mut reasons: Vec<NotReady> =
            self.slots().iter().filter_map(|s| s.not_ready()).collect();
        if self.slots().is_empty() {
            let reason = self.waiting().unwrap_or("no service is running yet".to_owned());
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
        ServiceSummary::of(&self.view(), self.not_ready().map(|not| not.reason))
    }

    pub(crate) fn not_ready(&self) -> Option<NotReady> {
        // What has ended no longer says what is so.
        let ended = lock(&self.ended).first().map(|part| match part {
            Part::Service => "the service's task has ended: it is not steered".to_owned(),
            Part::Supervisor => "the task has ended that starts the service again".to_owned(),
        });
        let unread = || match self.counters.has_polled() {
            true => None,
            false => Some("the balancer has not been read yet".to_owned()),
        };
        let reason = ended
            .or_else(|| self.view().trouble.clone())
            .or_else(unread)
            .or_else(|| lock(&self.refusal).clone())?;
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

    /// A plan was not programmed: the service is not ready until one is.
    pub fn plan_refused(&self, epoch: u64, why: &str) {
        let refusal = format!("plan {epoch} was not programmed: {why}");
        *lock(&self.0.refusal) = Some(refusal);
    }

    /// A plan was programmed, or none is to be.
    pub fn plan_taken(&self) {
        *lock(&self.0.refusal) = None;
    }

    /// This part is at work until what this gives is dropped; the service is not ready afterwards, until it
    /// is at work again.
    pub fn at_work(&self, part: Part) -> AtWork {
        lock(&self.0.ended).remove(&part);
        AtWork { slot: self.0.clone(), part }
    }

    /// What the machinery around this service counts.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unix_ms(at: SystemTime) -> i64 {
    match at.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    }
}
