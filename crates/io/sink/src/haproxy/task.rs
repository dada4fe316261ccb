//! The task that holds the connection to one HAProxy: it reads it for all services behind it at once,
//! carries out their plans one after the other, and tells each what became of both.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::{BalancerReport, MethodKind};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until};

use super::tasks::{HaproxyTasks, Message, Twin};
use super::{HaproxyConnection, SocketAddress, SteeredBackend};
use crate::SinkError;
use crate::steer::{Loss, Orders, Poll, RETRY, Refusal, SinkEnd, SinkReport, left_alone};

/// A server costs HAProxy about 3 µs to be read: at so long for each, reading takes no more than a twentieth of a core.
const PER_SERVER: Duration = Duration::from_micros(65);
/// However many there are, they are read this often: response times cannot be had from readings further apart.
const LONGEST: Duration = Duration::from_millis(200);
/// Services whose time comes within this are read together.
const TOGETHER: Duration = Duration::from_millis(10);
/// A plan waits so long for a reading under way, which takes a millisecond on a healthy HAProxy, and 20 with 3,000 servers.
const GIVE_WAY: Duration = Duration::from_millis(100);
/// Another task that may have the same HAProxy, and could not prove it, is asked again after this.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Where there is nothing to read.
const NEVER: Duration = Duration::from_secs(3600);

/// A service that is steered on the connection.
pub struct Subscriber {
    service: String,
    /// The HAProxy as its configuration spells it.
    address: SocketAddress,
    backend: SteeredBackend,
    timeout: Duration,
    poll: Poll,
    /// No plan will come: nothing stands in its way.
    observe: bool,
    end: SinkEnd,
    /// How its backend picks, as last seen.
    kind: MethodKind,
    next: Instant,
    refusal: Refusal,
    /// Another service that steers the same backend.
    rival: Option<String>,
}

impl Subscriber {
    /// A service and its HAProxy as they are named; `timeout` bounds each exchange.
    pub fn new(
        (service, address): (String, SocketAddress),
        backend: SteeredBackend,
        timeout: Duration,
        poll: Poll,
        observe: bool,
        end: SinkEnd,
    ) -> Self {
        Subscriber {
            service,
            address,
            backend,
            timeout,
            poll,
            observe,
            end,
            kind: MethodKind::Split,
            next: Instant::now(),
            refusal: Refusal::default(),
            rival: None,
        }
    }

    /// The HAProxy as its configuration spells it.
    pub fn address(&self) -> &SocketAddress {
        &self.address
    }

    /// Between two readings, where a poll costs HAProxy as much as so many servers.
    fn interval(&self, rows: usize) -> Duration {
        match self.poll {
            Poll::Every(time) => time,
            Poll::ByReading => {
                let rows = u32::try_from(rows).unwrap_or(u32::MAX);
                self.kind.poll_interval().max(PER_SERVER.saturating_mul(rows).min(LONGEST))
            }
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let early = match self.poll {
            Poll::Every(time) => TOGETHER.min(time / 2),
            Poll::ByReading => TOGETHER,
        };
        self.next <= now + early
    }

    /// Tells the service what was read.
    fn tell(
        &mut self,
        read: Result<BalancerReport, SinkError>,
        refusal: Option<&SinkError>,
        took: Duration,
    ) -> bool {
        let loss = match read {
            Err(error) => Loss::from(&error),
            Ok(report) => {
                self.kind = report.method.kind;
                let refused = || refusal.map(Loss::from).or_else(|| self.refusal.standing());
                match refused().filter(|_| !self.observe) {
                    Some(loss) => loss,
                    None => {
                        self.end.tell(SinkReport::Read(report, took));
                        return true;
                    }
                }
            }
        };
        self.end.tell(SinkReport::Lost(loss));
        false
    }
}

/// The task; see the top of this file.
pub struct HaproxyTask {
    number: u64,
    connection: HaproxyConnection,
    subscribers: Vec<Subscriber>,
    /// Some came by another spelling of the socket.
    has_strangers: bool,
    inbox: mpsc::UnboundedReceiver<Message>,
    tasks: HaproxyTasks,
    origin: std::time::Instant,
    /// Rung when a service wants something.
    bell: Arc<Notify>,
    /// Whose orders are looked at first.
    turn: usize,
    /// HAProxy is not read before.
    quiet_until: Instant,
    /// The opening of the connection for which a twin was looked for, and when to look again.
    looked: u64,
    look_again: Option<Instant>,
}

impl HaproxyTask {
    /// A task that is known to the others by its number.
    pub fn new(
        number: u64,
        address: SocketAddress,
        subscribers: Vec<Subscriber>,
        inbox: mpsc::UnboundedReceiver<Message>,
        tasks: HaproxyTasks,
        origin: std::time::Instant,
    ) -> Self {
        let mut task = HaproxyTask {
            number,
            connection: HaproxyConnection::new(address, Duration::ZERO, origin),
            subscribers: Vec::new(),
            has_strangers: false,
            inbox,
            tasks,
            origin,
            bell: Arc::new(Notify::new()),
            turn: 0,
            quiet_until: Instant::now(),
            looked: 0,
            look_again: None,
        };
        task.join(subscribers);
        task
    }

    /// Ends when it steers for no service any more, or another task does for all.
    pub async fn run(mut self) {
        let mut rung = false;
        loop {
            while let Ok(message) = self.inbox.try_recv() {
                self.take(message).await;
            }
            self.send_strangers_home();
            if self.subscribers.is_empty() && self.tasks.leave(self.number, &self.inbox) {
                return;
            }
            if !rung {
                let next = self.next_reading();
                tokio::select! {
                    biased;
                    message = self.inbox.recv() => {
                        if let Some(message) = message {
                            self.take(message).await;
                        }
                        continue;
                    }
                    () = self.bell.notified() => rung = true,
                    () = sleep_until(next) => {}
                }
            }
            // One order at a time, and readings between them: no service keeps the others waiting.
            if rung {
                rung = self.carry_out_next().await;
            }
            if Instant::now() >= self.next_reading() {
                self.read().await;
                if self.ends_in_a_twin().await {
                    return;
                }
            }
        }
    }

    async fn take(&mut self, message: Message) {
        match message {
            Message::Join(subscribers) => self.join(subscribers),
            Message::Testify(answer) => {
                if let Ok(witness) = self.connection.witness().await {
                    let _ = answer.send(witness);
                }
            }
            Message::LookForTwin => self.look_again = Some(Instant::now()),
        }
    }

    fn join(&mut self, subscribers: Vec<Subscriber>) {
        for mut subscriber in subscribers {
            subscriber.backend.leave_connection();
            subscriber.next = Instant::now();
            subscriber.end.mailbox.ring(&self.bell);
            self.subscribers.push(subscriber);
        }
        self.members_changed();
    }

    fn members_changed(&mut self) {
        let longest = self.subscribers.iter().map(|s| s.timeout).max();
        self.connection.set_timeout(longest.unwrap_or_default());
        let address = self.connection.address();
        self.has_strangers = self.subscribers.iter().any(|s| &s.address != address);
        self.connection.may_reopen(!self.has_strangers);
        for at in 0..self.subscribers.len() {
            let name = self.subscribers[at].backend.name();
            let earlier = self.subscribers[..at]
                .iter()
                .find(|s| s.backend.name() == name && !s.end.mailbox.is_closed());
            let rival = earlier.map(|s| s.service.clone());
            self.subscribers[at].rival = rival;
        }
    }

    /// A service that came by another spelling was proven to be behind this process: when its connection is gone, that
    /// spelling may lead elsewhere.
    fn send_strangers_home(&mut self) {
        if !self.has_strangers || self.connection.is_open() || self.connection.opened() == 0 {
            return;
        }
        let address = self.connection.address();
        let strange: Vec<Subscriber> =
            self.subscribers.extract_if(.., |s| &s.address != address).collect();
        for subscriber in strange {
            self.tasks.subscribe(subscriber, self.origin);
        }
        self.members_changed();
    }

    fn next_reading(&self) -> Instant {
        let next = self.subscribers.iter().map(|s| s.next).min();
        next.unwrap_or_else(|| Instant::now() + NEVER).max(self.quiet_until)
    }

    /// Carries out the orders of the next service that has any. False when none has.
    async fn carry_out_next(&mut self) -> bool {
        for step in 0..self.subscribers.len() {
            let at = (self.turn + step) % self.subscribers.len();
            if let Some(orders) = self.subscribers[at].end.mailbox.take() {
                self.turn = at + 1;
                self.carry_out(at, orders).await;
                return true;
            }
        }
        false
    }

    async fn carry_out(&mut self, at: usize, orders: Orders) {
        if orders.closed {
            self.subscribers.remove(at);
            return self.members_changed();
        }
        let subscriber = &mut self.subscribers[at];
        if let Some(servers) = orders.servers
            && let Err(error) = subscriber.backend.set_servers(servers)
        {
            subscriber.end.tell(SinkReport::Lost(Loss::from(&error)));
        }
        let Some(plan) = orders.plan else { return };
        if let Some(loss) = subscriber.rivalry() {
            return subscriber.end.tell(SinkReport::Failed(plan.epoch, loss));
        }
        let report = match subscriber.backend.apply(&mut self.connection, &plan).await {
            Ok(applied) => SinkReport::Applied(applied),
            Err(error) => {
                subscriber.refusal.note(&error);
                SinkReport::Failed(plan.epoch, Loss::from(&error))
            }
        };
        subscriber.end.tell(report);
    }

    /// Reads HAProxy for those whose time has come. A reading that hangs gives way to a plan: dropping it
    /// closes the connection, and the plan opens another.
    async fn read(&mut self) {
        let began = Instant::now();
        let HaproxyTask { connection, subscribers, bell, .. } = self;
        let mut due: Vec<&mut Subscriber> =
            subscribers.iter_mut().filter(|s| s.is_due(began)).collect();
        due.retain_mut(|s| {
            let Some(loss) = s.rivalry() else { return true };
            s.end.tell(SinkReport::Lost(loss));
            s.next = began + RETRY;
            false
        });
        if due.is_empty() {
            return;
        }
        let mut backends: Vec<&mut SteeredBackend> =
            due.iter_mut().map(|s| &mut s.backend).collect();
        let ordered = async {
            bell.notified().await;
            bell.notify_one();
            sleep(GIVE_WAY).await;
        };
        let read = tokio::select! {
            biased;
            read = connection.read(&mut backends) => read,
            () = ordered => return,
        };
        let done = Instant::now();
        match read {
            Ok(reports) => {
                for (s, report) in due.into_iter().zip(reports) {
                    let refusal = connection.refusal(&s.backend);
                    let found = s.tell(report, refusal.as_ref(), done - began);
                    s.next = began + if found { Duration::ZERO } else { RETRY };
                }
            }
            // Strangers go home, and the others are read on a new connection at once.
            Err(_) if self.has_strangers && !connection.is_open() => return,
            Err(error) => {
                for s in due {
                    s.end.tell(SinkReport::Lost(Loss::from(&error)));
                    s.next = began + RETRY;
                }
            }
        }
        let rows = connection.rows(subscribers.iter().map(|s| &s.backend));
        for s in subscribers.iter_mut().filter(|s| s.next == began) {
            s.next = began + s.interval(rows);
        }
        self.quiet_until = left_alone(began, done);
    }

    /// Looks for an older task with the same HAProxy under another spelling, once for every connection, and
    /// hands over to it.
    async fn ends_in_a_twin(&mut self) -> bool {
        let opened = self.connection.opened();
        let again = self.look_again.is_some_and(|at| at <= Instant::now());
        if !self.connection.is_open() || (opened == self.looked && !again) {
            return false;
        }
        self.looked = opened;
        self.look_again = None;
        let twin = match self.tasks.twin(self.number, &mut self.connection).await {
            Twin::Task(twin) => twin,
            Twin::Unproven => {
                self.look_again = Some(Instant::now() + LOOK_AGAIN);
                return false;
            }
            Twin::None => return false,
        };
        let subscribers = std::mem::take(&mut self.subscribers);
        match self.tasks.hand_over(self.number, twin, subscribers, &mut self.inbox) {
            Ok(()) => true,
            Err(back) => {
                self.join(back);
                self.look_again = Some(Instant::now() + LOOK_AGAIN);
                false
            }
        }
    }
}

impl Subscriber {
    /// Two controllers would undo each other's weights.
    fn rivalry(&self) -> Option<Loss> {
        let rival = self.rival.as_ref()?;
        let reason = format!(
            "service {rival:?} already steers backend {:?} of this HAProxy ({}): give each service a \
             backend of its own",
            self.backend.name(),
            self.address
        );
        Some(Loss { reason, retryable: false, absent: false })
    }
}

#[cfg(test)]
mod tests;
