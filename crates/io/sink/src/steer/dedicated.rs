//! The task that reads and programs one service of one balancer, on a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_model::MethodKind;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Loss, Orders, Poll, RETRY, Refusal, SinkEnd, SinkHandle, SinkReport, left_alone};
use crate::{ReportSource, WeightSink};

/// A plan waits so long for a reading under way, which takes a millisecond on a healthy balancer.
const GIVE_WAY: Duration = Duration::from_millis(10);

/// Starts it on the runtime of the caller; it ends when the handle is dropped.
pub fn start<B: WeightSink + ReportSource + 'static>(balancer: B, poll: Poll) -> SinkHandle {
    let (handle, end) = SinkHandle::new();
    let interval = match poll {
        Poll::ByReading => MethodKind::Split.poll_interval(),
        Poll::Every(time) => time,
    };
    tokio::spawn(Dedicated { balancer, poll, interval, end, refusal: Refusal::default() }.run());
    handle
}

struct Dedicated<B> {
    balancer: B,
    poll: Poll,
    /// Between two readings.
    interval: Duration,
    end: SinkEnd,
    refusal: Refusal,
}

impl<B: WeightSink + ReportSource> Dedicated<B> {
    async fn run(mut self) {
        let bell = Arc::new(Notify::new());
        self.end.mailbox.ring(&bell);
        let mut next = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = bell.notified() => {
                    let Some(orders) = self.end.mailbox.take() else { continue };
                    if orders.closed {
                        return;
                    }
                    self.carry_out(orders).await;
                }
                () = sleep_until(next) => {
                    let began = Instant::now();
                    let rest = self.read(&bell).await;
                    next = (began + rest).max(left_alone(began, Instant::now()));
                }
            }
        }
    }

    async fn carry_out(&mut self, orders: Orders) {
        if let Some(servers) = orders.servers
            && let Err(error) = self.balancer.set_servers(servers)
        {
            self.end.tell(SinkReport::Lost(Loss::from(&error)));
        }
        let Some(plan) = orders.plan else { return };
        self.end.tell(match self.balancer.apply(&plan).await {
            Ok(applied) => SinkReport::Applied(applied),
            Err(error) => {
                self.refusal.note(&error);
                SinkReport::Failed(plan.epoch, Loss::from(&error))
            }
        });
    }

    /// Reads the balancer; returns how long to wait for the next reading. One that hangs gives way to a plan:
    /// dropping it closes the connection, and the plan opens another.
    async fn read(&mut self, bell: &Notify) -> Duration {
        let began = Instant::now();
        let ordered = async {
            bell.notified().await;
            bell.notify_one();
            sleep(GIVE_WAY).await;
        };
        let read = tokio::select! {
            biased;
            read = self.balancer.read() => read,
            () = ordered => return self.interval,
        };
        match read {
            Err(error) => {
                self.end.tell(SinkReport::Lost(Loss::from(&error)));
                RETRY
            }
            Ok(report) => {
                if self.poll == Poll::ByReading {
                    self.interval = report.method.kind.poll_interval();
                }
                self.end.tell(match self.refusal.standing() {
                    Some(loss) => SinkReport::Lost(loss),
                    None => SinkReport::Read(report, began.elapsed()),
                });
                self.interval
            }
        }
    }
}
