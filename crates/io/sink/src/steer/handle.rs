//! What a service and the task that reads its balancer exchange.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_model::{Applied, BalancerReport, Plan};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::Servers;
use crate::{SinkError, SinkErrorKind};

/// A balancer that cannot be read is tried again this often.
pub const RETRY: Duration = Duration::from_millis(500);
/// A balancer that takes long to answer has so many times as long to itself, so that no more than a tenth of its time
/// goes into being read, however many servers it has …
const LEFT_ALONE: u32 = 9;
/// … but no longer than this, or than it took: a balancer read less often is hardly steered any more.
const LEFT_ALONE_MOST: Duration = Duration::from_millis(500);
/// A refusal that no reading shows is tried again after this.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Reports that wait to be taken.
const WAITING: usize = 16;
/// Of these, some are kept for what becomes of plans.
const FOR_PLANS: usize = 4;

/// What came of reading the balancer, or of a plan.
#[derive(Debug)]
pub enum SinkReport {
    /// The balancer was read, in this time.
    Read(BalancerReport, Duration),
    /// It could not be read, or refuses to be steered.
    Lost(Loss),
    /// Of several balancers, some cannot be read or refuse to be steered, and the others are steered on; or the source
    /// tells nothing. Reported again while that lasts. None: all are there again.
    Degraded(Option<Loss>),
    /// A plan was carried out.
    Applied(Applied),
    /// The plan of this epoch was not.
    Failed(u64, Loss),
    /// How many balancers share the traffic, where that has changed: one that stands by does not.
    Sharing(u32),
    /// Which servers one of several balancers has, where that has changed.
    Divided(String),
    /// Something that people should know.
    Note(String),
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// For people.
    pub reason: String,
    /// Whether waiting can help.
    pub retryable: bool,
    /// The balancer is there, and servers that are steered are not among its own: they may have left on purpose.
    pub absent: bool,
}

impl From<&SinkError> for Loss {
    fn from(error: &SinkError) -> Self {
        let absent = error.kind() == SinkErrorKind::UnknownServers;
        Loss { reason: error.to_string(), retryable: error.retryable(), absent }
    }
}

/// The service's end; the task forgets the service when this is dropped.
#[derive(Debug)]
pub struct SinkHandle {
    mailbox: Arc<Mailbox>,
    /// What becomes of readings and plans.
    pub reports: mpsc::Receiver<SinkReport>,
}

/// The task's end.
#[derive(Debug)]
pub struct SinkEnd {
    /// What the service wants.
    pub mailbox: Arc<Mailbox>,
    outbox: mpsc::Sender<SinkReport>,
}

impl SinkHandle {
    /// Both ends.
    pub fn new() -> (Self, SinkEnd) {
        let mailbox = Arc::new(Mailbox::default());
        let (outbox, reports) = mpsc::channel(WAITING);
        (SinkHandle { mailbox: mailbox.clone(), reports }, SinkEnd { mailbox, outbox })
    }

    /// Has a plan carried out. Of plans that wait only the last one is.
    pub fn program(&self, plan: Plan) {
        self.mailbox.put(|orders| orders.plan = Some(plan));
    }

    /// Steers these servers from now on. A plan that waits was made for those before, and is dropped.
    pub fn set_servers(&self, servers: Servers) {
        self.mailbox.put(|orders| {
            orders.plan = None;
            orders.servers = Some(servers);
        });
    }
}

impl Drop for SinkHandle {
    fn drop(&mut self) {
        self.mailbox.put(|orders| orders.closed = true);
    }
}

impl SinkEnd {
    /// Tells the service. It is not waited for: what it does not take in time it can do without, but for
    /// what becomes of plans, for which room is kept.
    pub fn tell(&self, report: SinkReport) {
        self.offer(report);
    }

    /// Tells the service; false where there was no room.
    pub fn offer(&self, report: SinkReport) -> bool {
        let of_plan = matches!(report, SinkReport::Applied(_) | SinkReport::Failed(..));
        (of_plan || self.outbox.capacity() > FOR_PLANS) && self.outbox.try_send(report).is_ok()
    }
}

/// Orders that wait: the newest counts, so that there is never more than one of a kind.
#[derive(Debug, Default)]
pub struct Mailbox(Mutex<Orders>);

/// What a service wants.
#[derive(Debug, Default)]
pub struct Orders {
    /// First, to steer these servers.
    pub servers: Option<Servers>,
    /// Then, to carry out this plan.
    pub plan: Option<Plan>,
    /// Nothing any more.
    pub closed: bool,
    bell: Arc<Notify>,
}

impl Orders {
    fn any(&self) -> bool {
        self.closed || self.plan.is_some() || self.servers.is_some()
    }
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, order: impl FnOnce(&mut Orders)) {
        let mut orders = self.lock();
        order(&mut orders);
        orders.bell.notify_one();
    }

    /// Takes what waits, if anything does.
    pub fn take(&self) -> Option<Orders> {
        let mut orders = self.lock();
        orders.any().then(|| Orders {
            servers: orders.servers.take(),
            plan: orders.plan.take(),
            closed: orders.closed,
            bell: orders.bell.clone(),
        })
    }

    /// Whether the service is gone.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Rings this bell for what comes from now on, and for what waits already.
    pub fn ring(&self, bell: &Arc<Notify>) {
        let mut orders = self.lock();
        orders.bell = bell.clone();
        if orders.any() {
            bell.notify_one();
        }
    }
}

/// Why a balancer refuses to be steered although nothing is seen of it in a reading.
#[derive(Debug, Default)]
pub struct Refusal(Option<(Loss, Instant)>);

impl Refusal {
    /// A plan has failed so. Names, methods and agents are in every reading: what an operator corrects is
    /// seen there at once.
    pub fn note(&mut self, error: &SinkError) {
        if matches!(error.kind(), SinkErrorKind::Permission | SinkErrorKind::Protocol) {
            self.0 = Some((error.into(), Instant::now() + REFUSED_FOR));
        }
    }

    /// It still stands.
    pub fn standing(&self) -> Option<Loss> {
        let (loss, until) = self.0.as_ref()?;
        (Instant::now() < *until).then(|| loss.clone())
    }
}

/// When a balancer that was read from `began` to `done` may be read again: one that takes long to answer has
/// much longer to itself.
pub fn left_alone(began: Instant, done: Instant) -> Instant {
    let took = done.duration_since(began);
    done + (LEFT_ALONE * took).min(LEFT_ALONE_MOST).max(took)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::Nanos;

    fn plan(epoch: u64) -> Plan {
        Plan {
            epoch,
            at: Nanos::ZERO,
            kind: plimsoll_model::PlanKind::Packed,
            reason: String::new(),
            entries: Vec::new(),
        }
    }

    #[test]
    fn of_plans_that_wait_only_the_last_counts_and_none_for_other_servers() {
        let (handle, end) = SinkHandle::new();
        assert!(end.mailbox.take().is_none());
        handle.program(plan(1));
        handle.program(plan(2));
        assert_eq!(end.mailbox.take().and_then(|orders| orders.plan).map(|p| p.epoch), Some(2));
        handle.program(plan(3));
        handle.set_servers(Vec::new());
        let orders = end.mailbox.take().expect("other servers");
        assert!(orders.servers.is_some() && orders.plan.is_none() && !orders.closed);
        drop(handle);
        assert!(end.mailbox.take().is_some_and(|orders| orders.closed));
    }

    #[test]
    fn unread_readings_do_not_displace_the_outcome_of_a_plan() {
        let (mut handle, end) = SinkHandle::new();
        let loss = || Loss { reason: String::new(), retryable: true, absent: false };
        let lost = || SinkReport::Lost(loss());
        (0..2 * WAITING).for_each(|_| end.tell(lost()));
        end.tell(SinkReport::Failed(7, loss()));
        let mut last = None;
        while let Ok(report) = handle.reports.try_recv() {
            last = Some(report);
        }
        assert!(matches!(last, Some(SinkReport::Failed(7, _))), "{last:?}");
    }

    #[test]
    fn a_balancer_that_answers_late_is_not_read_without_a_pause() {
        let (began, ms) = (Instant::now(), Duration::from_millis);
        let after = |took| left_alone(began, began + ms(took)).duration_since(began);
        assert_eq!([1, 2, 5, 40].map(after), [10, 20, 50, 400].map(ms));
        assert_eq!([100, 1_000].map(after), [600, 2_000].map(ms));
    }

    #[test]
    fn corrected_server_name_is_not_held_against_the_next_reading() {
        let mut refusal = Refusal::default();
        refusal.note(&SinkError::UnknownServers {
            backend: "shop".to_owned(),
            missing: vec!["s9".to_owned()],
            exist: vec!["s1".to_owned()],
        });
        assert_eq!(refusal.standing(), None);
        let (socket, reason) = (String::new(), "level".to_owned());
        refusal.note(&SinkError::Permission { socket, reason });
        assert!(refusal.standing().is_some(), "what no reading shows is");
    }
}
