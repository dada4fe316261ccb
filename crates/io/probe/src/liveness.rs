use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_model::{BackendId, Outcome};
use rand::Rng;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use crate::cadence::chance;
use crate::conn::Dialer;
use crate::failure::{Detail, Failure, LocalFault, Stop};
use crate::tally::Tally;
use crate::{Clock, LivenessEvent, PlanError, Probe, ProbeResult, Prober, SpecError};

/// So many rounds may overlap at the most.
const MAX_INTERVALS: u128 = 1_000;

/// What a liveness check does.
#[derive(Clone, Debug)]
pub enum LivenessCheck {
    /// Sends a light request, on connections that the measuring probes do not share. The time-out of
    /// the [`LivenessSpec`] replaces that of the probe.
    Http(Arc<Probe>),
    /// Opens a TCP connection and closes it in order. The kernel answers for a process that hangs: this tells a
    /// machine that is there and a socket that listens, no more.
    Connect,
}

/// How a backend is watched: `requests` checks at once in every round (KnapsackLB §4.5: 3 every 100 ms). How often is
/// said by [`Scheduler::set_watch`](crate::Scheduler::set_watch). Rounds begin on time even while earlier ones hang.
#[derive(Clone, Debug)]
pub struct LivenessSpec {
    check: LivenessCheck,
    requests: u32,
    timeout: Duration,
}

impl LivenessSpec {
    /// A watch of `requests` checks at once, of which each may take `timeout`.
    ///
    /// # Errors
    /// When a value is outside what [`PlanError`] says.
    pub fn new(check: LivenessCheck, requests: u32, timeout: Duration) -> Result<Self, PlanError> {
        if !(1..=16).contains(&requests) {
            return Err(PlanError::Requests);
        }
        let bounds = Duration::from_millis(1)..=Duration::from_secs(60);
        if !bounds.contains(&timeout) {
            return Err(PlanError::Timeout);
        }
        Ok(LivenessSpec { check, requests, timeout })
    }

    /// Whether both watch in the same way, on the very same probe.
    pub(crate) fn same(&self, other: &LivenessSpec) -> bool {
        let check = match (&self.check, &other.check) {
            (LivenessCheck::Http(a), LivenessCheck::Http(b)) => Arc::ptr_eq(a, b),
            (LivenessCheck::Connect, LivenessCheck::Connect) => true,
            _ => false,
        };
        check && (self.requests, self.timeout) == (other.requests, other.timeout)
    }

    /// How many rounds are under way at this interval when all hang, and one for a round that is late to end.
    fn max_rounds(&self, interval: Duration) -> u128 {
        let intervals = self.timeout.as_nanos().div_ceil(interval.as_nanos().max(1));
        intervals.min(MAX_INTERVALS) + 1
    }
}

/// How often a backend is watched.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pace {
    /// Time between rounds; without it there are none.
    pub interval: Option<Duration>,
    /// How often a round was asked for at once.
    pub at_once: u64,
}

/// Watches one backend.
pub(crate) struct Watch {
    backend: BackendId,
    spec: LivenessSpec,
    checker: Arc<Checker>,
    clock: Clock,
    tally: Arc<Tally>,
    events: mpsc::Sender<LivenessEvent>,
    pace: watch::Receiver<Pace>,
}

enum Checker {
    Http(Prober),
    Connect(Arc<Dialer>),
}

impl Watch {
    pub fn new(
        backend: BackendId,
        spec: LivenessSpec,
        dialer: Arc<Dialer>,
        clock: Clock,
        tally: Arc<Tally>,
        events: mpsc::Sender<LivenessEvent>,
        pace: watch::Receiver<Pace>,
    ) -> Result<Self, SpecError> {
        let checker = match &spec.check {
            LivenessCheck::Http(probe) => {
                let keep = spec.requests as usize;
                Checker::Http(Prober::sharing(dialer, probe.clone(), keep)?)
            }
            LivenessCheck::Connect => Checker::Connect(dialer),
        };
        Ok(Watch { backend, spec, checker: Arc::new(checker), clock, tally, events, pace })
    }

    /// Starts rounds on request until the receiver is gone. Dropping it stops the rounds under way.
    pub async fn run(mut self, seed: u64) {
        let mut chance = chance(seed, self.backend, 1);
        let mut pace = *self.pace.borrow_and_update();
        // Backends that begin together are not checked together.
        let mut due = Instant::now() + pace.interval.unwrap_or_default().mul_f64(chance.random());
        if pace.at_once > 0 {
            due = Instant::now();
        }
        let mut rounds = JoinSet::new();
        loop {
            let sleep = async {
                match pace.interval {
                    Some(_) => sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep => {
                    while rounds.try_join_next().is_some() {}
                    let interval = pace.interval.unwrap_or_default();
                    if (rounds.len() as u128) < self.spec.max_rounds(interval) {
                        rounds.spawn(self.round());
                    } else {
                        self.tally.skip(self.backend);
                    }
                    // After a stall rounds are not made up for.
                    due = (due + interval).max(Instant::now());
                }
                changed = self.pace.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let was = std::mem::replace(&mut pace, *self.pace.borrow_and_update());
                    let now = Instant::now();
                    if pace.at_once != was.at_once {
                        due = now;
                    } else if let Some(interval) = pace.interval {
                        let left = due.saturating_duration_since(now);
                        due = match was.interval {
                            Some(_) => now + left.min(interval),
                            None => now + interval.mul_f64(chance.random()),
                        };
                    }
                }
                () = self.events.closed() => return,
            }
        }
    }

    /// One round: its checks at once, and its event as soon as the last of them has ended.
    fn round(&self) -> impl Future<Output = ()> + Send + use<> {
        let (backend, clock) = (self.backend, self.clock);
        let (checker, tally, events) =
            (self.checker.clone(), self.tally.clone(), self.events.clone());
        let (requests, limit) = (self.spec.requests, self.spec.timeout);
        async move {
            let started = clock.now();
            let mut checks = JoinSet::new();
            for _ in 0..requests {
                let checker = checker.clone();
                checks.spawn(async move { checker.check(limit).await });
            }
            let mut event = LivenessEvent {
                backend,
                successes: 0,
                failures: 0,
                first_failure: None,
                detail: Detail::Borrowed(""),
                started,
                at: started,
            };
            while let Some(Ok(done)) = checks.join_next().await {
                match done {
                    Ok(result) => count(&mut event, result),
                    Err(fault) => tally.fault(backend, &fault),
                }
            }
            event.at = clock.now();
            if event.successes + event.failures > 0 {
                // The receiver is gone: the watch itself sees that and ends.
                let _ = events.send(event).await;
            }
        }
    }
}

fn count(event: &mut LivenessEvent, result: ProbeResult) {
    match result.outcome {
        Outcome::Success => event.successes += 1,
        Outcome::Failure(kind) => {
            event.failures += 1;
            if event.first_failure.is_none() {
                event.first_failure = Some(kind);
                event.detail = result.detail;
            }
        }
    }
}

impl Checker {
    async fn check(&self, limit: Duration) -> Result<ProbeResult, LocalFault> {
        match self {
            Checker::Http(prober) => prober.probe_within(limit).await,
            Checker::Connect(dialer) => check_connect(dialer, limit).await,
        }
    }
}

async fn check_connect(dialer: &Dialer, limit: Duration) -> Result<ProbeResult, LocalFault> {
    let started = Instant::now();
    let connected = timeout(limit, async {
        dialer.dial(&dialer.resolver().resolve().await?).await?;
        Ok(())
    });
    let failure = match connected.await {
        Ok(Ok(())) => None,
        Ok(Err(Stop::Backend(failure))) => Some(failure),
        Ok(Err(Stop::Local(fault))) => return Err(fault),
        Err(_) => Some(Failure::timeout()),
    };
    let (outcome, detail) = match failure {
        None => (Outcome::Success, Detail::Borrowed("")),
        Some(failure) => (Outcome::Failure(failure.kind), failure.detail),
    };
    Ok(ProbeResult { outcome, latency: started.elapsed(), status: None, detail })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_that_cannot_be_kept_are_refused() {
        let spec = |requests, timeout| {
            LivenessSpec::new(LivenessCheck::Connect, requests, Duration::from_millis(timeout))
        };
        let rounds = |ms| spec(3, 1000).unwrap().max_rounds(Duration::from_millis(ms));
        assert_eq!((rounds(100), rounds(300), rounds(0)), (11, 5, 1_001));
        for requests in [0, 17] {
            assert_eq!(spec(requests, 1000).err(), Some(PlanError::Requests));
        }
        for timeout in [0, 60_001] {
            assert_eq!(spec(3, timeout).err(), Some(PlanError::Timeout));
        }
    }
}
