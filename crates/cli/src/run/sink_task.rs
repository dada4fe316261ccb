//! The task that owns the balancer's connection: it reads the balancer every so often, carries out
//! plans as they come, and says what became of both.

use std::time::Duration;

use plimsoll_control::poll_interval;
use plimsoll_model::{Applied, BackendId, BalancerReport, MethodKind, Plan};
use plimsoll_sink::{SinkError, SinkErrorKind};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::sink::Sink;

/// A balancer that cannot be read is tried again this often.
const RETRY: Duration = Duration::from_millis(500);
/// A balancer that takes long to answer has so many times as long to itself, so that no more than a tenth of its time
/// goes into being read, however many servers it has …
const LEFT_ALONE: u32 = 9;
/// … but no longer than this, or than it took: who is read less often is hardly steered any more.
const LEFT_ALONE_MOST: Duration = Duration::from_millis(500);
/// A plan waits so long for a reading under way, which takes a millisecond on a healthy balancer.
const GIVE_WAY: Duration = Duration::from_millis(10);
/// What refused a plan and cannot be seen from outside is tried again after this.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Orders and reports that wait; the controller has one plan under way at a time.
const WAITING: usize = 16;

/// Time between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// By what the balancer was last seen to do.
    ByReading,
    /// The same whatever it does.
    Every(Duration),
}

/// What the balancer is told.
#[derive(Debug)]
enum Order {
    Program(Plan),
    Servers(Vec<(BackendId, String)>),
}

/// What came of it.
#[derive(Debug)]
pub enum SinkReport {
    /// The balancer was read, in this time.
    Read(BalancerReport, Duration),
    /// It could not be read, or refuses to be steered.
    Lost(Loss),
    /// A plan was carried out.
    Applied(Applied),
    /// The plan of this epoch was not.
    Failed(u64, Loss),
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// For people.
    pub reason: String,
    /// Whether waiting can help.
    pub retryable: bool,
}

impl From<&SinkError> for Loss {
    fn from(error: &SinkError) -> Self {
        Loss { reason: error.to_string(), retryable: error.retryable() }
    }
}

/// The other end of the task; it ends when this is dropped.
#[derive(Debug)]
pub struct SinkHandle {
    orders: mpsc::Sender<Order>,
    /// What becomes of readings and plans.
    pub reports: mpsc::Receiver<SinkReport>,
    task: JoinHandle<()>,
}

impl Drop for SinkHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SinkHandle {
    /// Starts the task on the runtime of the caller. `observe` says that no plan will come, so that
    /// nothing stands in its way.
    pub fn start(sink: Sink, poll: Poll, observe: bool) -> Self {
        let (orders, inbox) = mpsc::channel(WAITING);
        let (outbox, reports) = mpsc::channel(WAITING);
        let task = SinkTask {
            sink,
            poll,
            interval: poll_interval(MethodKind::Split),
            observe,
            inbox,
            waiting: None,
            outbox,
            generation: None,
            refused: None,
        };
        SinkHandle { orders, reports, task: tokio::spawn(task.run()) }
    }

    /// Has a plan carried out. False when so many orders wait that this one was not taken.
    pub fn program(&self, plan: Plan) -> bool {
        self.orders.try_send(Order::Program(plan)).is_ok()
    }

    /// Steers these servers from now on. False as in [`SinkHandle::program`].
    pub fn set_servers(&self, servers: Vec<(BackendId, String)>) -> bool {
        self.orders.try_send(Order::Servers(servers)).is_ok()
    }
}

/// When to read next: at an even pace, but a balancer that takes long to answer has much longer to itself.
fn next(began: Instant, done: Instant, rest: Duration) -> Instant {
    let took = done.duration_since(began);
    let alone = (LEFT_ALONE * took).min(LEFT_ALONE_MOST).max(took);
    (began + rest).max(done + alone)
}

struct SinkTask {
    sink: Sink,
    poll: Poll,
    /// Between two readings, by what was last seen.
    interval: Duration,
    observe: bool,
    inbox: mpsc::Receiver<Order>,
    /// An order that was taken from the inbox and not yet carried out.
    waiting: Option<Order>,
    outbox: mpsc::Sender<SinkReport>,
    /// The life of the balancer that was last looked at.
    generation: Option<u64>,
    /// Why it refuses to be steered, and when to try again although nothing is seen.
    refused: Option<(Loss, Instant)>,
}

impl SinkTask {
    /// Ends when nobody gives orders or takes reports any more.
    async fn run(mut self) {
        let mut next_poll = Instant::now();
        loop {
            let order = match self.waiting.take() {
                Some(order) => Some(order),
                None => tokio::select! {
                    biased;
                    order = self.inbox.recv() => match order {
                        Some(order) => Some(order),
                        None => return,
                    },
                    () = sleep_until(next_poll) => None,
                },
            };
            let reports = match order {
                Some(order) => self.carry_out(order).await.into_iter().collect(),
                None => {
                    let began = Instant::now();
                    let reports = self.read().await;
                    let rest = self.rest(&reports);
                    next_poll = next(began, Instant::now(), rest);
                    reports
                }
            };
            for report in reports {
                if self.outbox.send(report).await.is_err() {
                    return;
                }
            }
        }
    }

    /// The time to the next reading.
    fn rest(&mut self, reports: &[SinkReport]) -> Duration {
        for report in reports {
            match report {
                SinkReport::Lost(_) => return RETRY,
                SinkReport::Read(read, _) => {
                    self.interval = poll_interval(read.method.kind);
                }
                SinkReport::Applied(_) | SinkReport::Failed(..) => {}
            }
        }
        match self.poll {
            Poll::ByReading => self.interval,
            Poll::Every(time) => time,
        }
    }

    async fn carry_out(&mut self, order: Order) -> Option<SinkReport> {
        match self.newest(order) {
            Order::Servers(servers) => match self.sink.set_servers(servers) {
                Ok(()) => None,
                Err(error) => Some(SinkReport::Lost(Loss::from(error.as_ref()))),
            },
            Order::Program(plan) => match self.sink.apply(&plan).await {
                Ok(applied) => Some(SinkReport::Applied(applied)),
                Err(error) => Some(self.failed(plan.epoch, &error)),
            },
        }
    }

    /// Of plans that wait behind one another only the last counts. What follows an order for other
    /// servers is left to wait.
    fn newest(&mut self, mut order: Order) -> Order {
        while matches!(order, Order::Program(_)) {
            match self.inbox.try_recv() {
                Ok(newer @ Order::Program(_)) => order = newer,
                Ok(servers @ Order::Servers(_)) => {
                    // The plan was made for the servers before: it is no longer what is wanted.
                    return servers;
                }
                Err(_) => return order,
            }
        }
        order
    }

    fn failed(&mut self, epoch: u64, error: &SinkError) -> SinkReport {
        let loss = Loss::from(error);
        // A plan that is wrong in itself says nothing of the next one, and a method that takes no
        // weights is in every reading.
        let passing =
            matches!(error.kind(), SinkErrorKind::InvalidPlan | SinkErrorKind::NoLiveWeights);
        if !loss.retryable && !passing {
            self.refused = Some((loss.clone(), Instant::now() + REFUSED_FOR));
        }
        SinkReport::Failed(epoch, loss)
    }

    /// Reads the balancer, and looks for what stands in the way of steering it. A reading that hangs
    /// gives way to a plan: dropping it closes the connection, and the plan opens another.
    async fn read(&mut self) -> Vec<SinkReport> {
        let began = Instant::now();
        let SinkTask { sink, inbox, waiting, .. } = self;
        let order = async {
            *waiting = inbox.recv().await;
            sleep(GIVE_WAY).await;
        };
        let done = tokio::select! {
            biased;
            done = sink.read_back() => done,
            () = order => return Vec::new(),
        };
        match done {
            Err(error) => vec![SinkReport::Lost(Loss::from(&error))],
            Ok(report) => {
                let took = began.elapsed();
                let generation = report.generation;
                match self.obstacle(generation).await {
                    Some(loss) => vec![SinkReport::Lost(loss)],
                    None => vec![SinkReport::Read(report, took)],
                }
            }
        }
    }

    /// What keeps the balancer from being steered though it can be read: looked for when it is new,
    /// and for as long as it refuses.
    async fn obstacle(&mut self, generation: u64) -> Option<Loss> {
        let known = self.generation == Some(generation);
        if self.observe || (known && self.refused.is_none()) {
            return None;
        }
        let Some(found) = self.sink.in_the_way().await else {
            return self.refused.as_ref().map(|(loss, _)| loss.clone());
        };
        self.generation = Some(generation);
        if let Some(reason) = found {
            let loss = Loss { reason, retryable: false };
            self.refused = Some((loss.clone(), Instant::now()));
            return Some(loss);
        }
        let still = self.refused.take().filter(|(_, until)| known && Instant::now() < *until);
        self.refused.clone_from(&still);
        still.map(|(loss, _)| loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::sink::Place;
    use plimsoll_model::{Method, Nanos};
    use plimsoll_sink::{HaproxyConfig, SocketAddress};

    fn plan(epoch: u64) -> Order {
        let entries = Vec::new();
        Order::Program(Plan { epoch, at: Nanos::ZERO, reason: String::new(), entries })
    }

    /// A task whose balancer is not there, with these orders waiting.
    fn task(orders: Vec<Order>) -> (SinkTask, mpsc::Sender<Order>, mpsc::Receiver<SinkReport>) {
        let config = HaproxyConfig {
            socket: SocketAddress::Unix("/no/such.sock".into()),
            backend: "shop".to_owned(),
            timeout: Duration::from_secs(1),
        };
        let (sender, inbox) = mpsc::channel(WAITING);
        orders.into_iter().for_each(|order| sender.try_send(order).expect("room"));
        let (outbox, reports) = mpsc::channel(WAITING);
        let task = SinkTask {
            sink: Sink::new(
                Place::Haproxy(config),
                vec![(BackendId(1), "s1".to_owned())],
                std::time::Instant::now(),
            )
            .expect("names"),
            poll: Poll::ByReading,
            interval: poll_interval(MethodKind::Split),
            observe: false,
            inbox,
            waiting: None,
            outbox,
            generation: None,
            refused: None,
        };
        (task, sender, reports)
    }

    #[test]
    fn of_plans_that_wait_only_the_last_counts_and_none_for_other_servers() {
        let (mut task, _orders, _reports) = task(vec![plan(2), plan(3)]);
        assert!(matches!(task.newest(plan(1)), Order::Program(plan) if plan.epoch == 3));
        let (mut task, _orders, _reports) =
            self::task(vec![plan(2), Order::Servers(Vec::new()), plan(4)]);
        assert!(matches!(task.newest(plan(1)), Order::Servers(_)));
        assert!(matches!(task.inbox.try_recv(), Ok(Order::Program(plan)) if plan.epoch == 4));
    }

    #[test]
    fn a_balancer_is_read_by_what_it_does_unless_told_otherwise() {
        let read = |kind| {
            let method = Method { name: String::new(), kind };
            let report =
                BalancerReport { at: Nanos::ZERO, method, generation: 1, servers: Vec::new() };
            [SinkReport::Read(report, Duration::ZERO)]
        };
        let ms = Duration::from_millis;
        let (mut task, ..) = task(Vec::new());
        assert_eq!(task.rest(&[]), ms(25), "nothing is known of it");
        assert_eq!(task.rest(&read(MethodKind::InFlight)), ms(50));
        assert_eq!(task.rest(&[]), ms(50), "a reading that gave way");
        assert_eq!(task.rest(&read(MethodKind::Split)), ms(25));
        task.poll = Poll::Every(ms(30));
        assert_eq!(task.rest(&read(MethodKind::InFlight)), ms(30));
        assert_eq!(task.rest(&read(MethodKind::Split)), ms(30));
        let loss = Loss { reason: String::new(), retryable: true };
        assert_eq!(task.rest(&[SinkReport::Lost(loss)]), RETRY);
    }

    #[test]
    fn a_balancer_that_answers_late_is_not_read_without_a_pause() {
        let (began, ms) = (Instant::now(), Duration::from_millis);
        let after = |took| next(began, began + ms(took), ms(25)).duration_since(began);
        assert_eq!([1, 2, 5, 40].map(after), [25, 25, 50, 400].map(ms));
        assert_eq!([100, 1_000].map(after), [600, 2_000].map(ms));
    }

    #[tokio::test]
    async fn a_balancer_that_is_not_there_is_lost_again_and_again_and_a_plan_fails() {
        let (task, orders, mut reports) = task(vec![plan(5)]);
        let running = tokio::spawn(task.run());
        let mut seen = Vec::new();
        while seen.len() < 2 {
            match reports.recv().await.expect("a report") {
                SinkReport::Failed(epoch, loss) => seen.push((epoch, loss.retryable)),
                SinkReport::Lost(loss) => seen.push((0, loss.retryable)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, [(5, true), (0, true)]);
        drop(orders);
        running.await.expect("no panic");
    }
}
