use std::sync::Arc;

use plimsoll_model::BackendId;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::cadence::{Cadence, chance};
use crate::tally::Tally;
use crate::{Clock, ProbeEvent, ProbePlan, Prober};

/// Measures one backend as its plan says.
pub(crate) struct Measure {
    pub backend: BackendId,
    pub prober: Arc<Prober>,
    /// The most probes under way. One that is due beyond is skipped and not delayed: a backend that
    /// hangs must not find a queue of probes when it comes back.
    pub max_in_flight: usize,
    pub clock: Clock,
    pub tally: Arc<Tally>,
    pub events: mpsc::Sender<ProbeEvent>,
    pub plan: watch::Receiver<ProbePlan>,
}

impl Measure {
    /// Sends probes until the receiver and the planner are gone. Dropping it stops those under way.
    pub async fn run(mut self, seed: u64) {
        let plan = *self.plan.borrow_and_update();
        let mut cadence = Cadence::new(chance(seed, self.backend, 0), plan, self.clock.now());
        let mut running = JoinSet::new();
        loop {
            let due = cadence.due().map(|due| self.clock.instant(due));
            tokio::select! {
                changed = self.plan.changed() => match changed {
                    Ok(()) => {
                        let plan = *self.plan.borrow_and_update();
                        cadence.change(plan, self.clock.now());
                    }
                    Err(_) => return,
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.fire(&mut cadence, &mut running);
                }
                () = self.events.closed() => return,
            }
        }
    }

    /// Sends every probe that is due.
    fn fire(&self, cadence: &mut Cadence, running: &mut JoinSet<()>) {
        while running.try_join_next().is_some() {}
        let now = self.clock.now();
        while cadence.due().is_some_and(|due| due <= now) {
            cadence.advance(now);
            if running.len() < self.max_in_flight {
                running.spawn(self.one());
            } else {
                self.tally.skip(self.backend);
            }
        }
    }

    fn one(&self) -> impl Future<Output = ()> + Send + use<> {
        let (backend, clock) = (self.backend, self.clock);
        let (prober, tally, events) =
            (self.prober.clone(), self.tally.clone(), self.events.clone());
        async move {
            match prober.probe().await {
                Ok(result) => {
                    let at = clock.now();
                    // The receiver is gone: the loop itself sees that and ends.
                    let _ = events.send(ProbeEvent { backend, result, at }).await;
                }
                Err(fault) => tally.fault(backend, &fault),
            }
        }
    }
}
