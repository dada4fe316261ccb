use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_model::{BackendId, Outcome};
use rand::Rng;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at, timeout};

use crate::cadence::chance;
use crate::conn::dial;
use crate::failure::{Detail, Failure, LocalFault, Stop};
use crate::resolve::Resolver;
use crate::tally::Tally;
use crate::{Clock, LivenessEvent, PlanError, Probe, ProbeResult, Prober, SpecError};

/// How many intervals a time-out may span: about as many rounds may overlap.
const MAX_INTERVALS: u128 = 1_000;

/// What a liveness check does.
#[derive(Clone, Debug)]
pub enum LivenessCheck {
    /// Sends a light request, on connections that the measuring probes do not share. The time-out of
    /// the [`LivenessSpec`] replaces that of the probe.
    Http(Arc<Probe>),
    /// Opens a TCP connection and drops it. The kernel answers for a process that hangs: this tells a
    /// machine that is there and a socket that listens, no more.
    Connect,
}

/// How a backend is watched: `requests` checks at once in every `interval` (KnapsackLB §4.5: 3 every
/// 100 ms). Rounds begin on time even while earlier ones hang.
#[derive(Clone, Debug)]
pub struct LivenessSpec {
    check: LivenessCheck,
    interval: Duration,
    requests: u32,
    timeout: Duration,
}

impl LivenessSpec {
    /// A watch of `requests` checks at once, every `interval`, of which each may take `timeout`.
    ///
    /// # Errors
    /// When a value is outside what [`PlanError`] says.
    pub fn new(
        check: LivenessCheck,
        interval: Duration,
        requests: u32,
        timeout: Duration,
    ) -> Result<Self, PlanError> {
        let (least, most) = (Duration::from_millis(1), Duration::from_secs(24 * 3600));
        if !(least..=most).contains(&interval) {
            return Err(PlanError::Interval);
        }
        if !(1..=16).contains(&requests) {
            return Err(PlanError::Requests);
        }
        let bounded = (least..=Duration::from_secs(60)).contains(&timeout);
        let spec = LivenessSpec { check, interval, requests, timeout };
        if !bounded || spec.intervals() > MAX_INTERVALS {
            return Err(PlanError::Timeout);
        }
        Ok(spec)
    }

    /// Whether both watch in the same way, on the very same probe.
    pub(crate) fn same(&self, other: &LivenessSpec) -> bool {
        let check = match (&self.check, &other.check) {
            (LivenessCheck::Http(a), LivenessCheck::Http(b)) => Arc::ptr_eq(a, b),
            (LivenessCheck::Connect, LivenessCheck::Connect) => true,
            _ => false,
        };
        check
            && (self.interval, self.requests, self.timeout)
                == (other.interval, other.requests, other.timeout)
    }

    /// The time-out in intervals, rounded up.
    fn intervals(&self) -> u128 {
        self.timeout.as_nanos().div_ceil(self.interval.as_nanos())
    }

    /// How many rounds are under way when all hang, and one for a round that is late to end.
    fn max_rounds(&self) -> u128 {
        self.intervals() + 1
    }
}

/// Watches one backend.
pub(crate) struct Watch {
    backend: BackendId,
    spec: LivenessSpec,
    checker: Arc<Checker>,
    clock: Clock,
    tally: Arc<Tally>,
    events: mpsc::Sender<LivenessEvent>,
}

enum Checker {
    Http(Prober),
    Connect(Arc<Resolver>),
}

impl Watch {
    pub fn new(
        backend: BackendId,
        spec: LivenessSpec,
        resolver: Arc<Resolver>,
        clock: Clock,
        tally: Arc<Tally>,
        events: mpsc::Sender<LivenessEvent>,
    ) -> Result<Self, SpecError> {
        let checker = match &spec.check {
            LivenessCheck::Http(probe) => {
                let keep = spec.requests as usize;
                Checker::Http(Prober::sharing(resolver, probe.clone(), keep)?)
            }
            LivenessCheck::Connect => Checker::Connect(resolver),
        };
        Ok(Watch { backend, spec, checker: Arc::new(checker), clock, tally, events })
    }

    /// Starts rounds until nobody listens any more. Dropping it stops the rounds under way.
    pub async fn run(self, seed: u64) {
        let phase = chance(seed, self.backend, 1).random::<f64>();
        let first = tokio::time::Instant::now() + self.spec.interval.mul_f64(phase);
        let mut ticks = interval_at(first, self.spec.interval);
        // After a stall the rounds go on in their old phase, without making up for those missed.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut rounds = JoinSet::new();
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    while rounds.try_join_next().is_some() {}
                    if (rounds.len() as u128) < self.spec.max_rounds() {
                        rounds.spawn(self.round());
                    } else {
                        self.tally.skip(self.backend);
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
                // Nobody to tell: the watch itself sees that and ends.
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
            Checker::Connect(resolver) => check_connect(resolver, limit).await,
        }
    }
}

async fn check_connect(resolver: &Resolver, limit: Duration) -> Result<ProbeResult, LocalFault> {
    let started = Instant::now();
    let connected = timeout(limit, async {
        let stream = dial(&resolver.resolve().await?).await?;
        // Closed with a reset, as HAProxy does: thirty checks a second must not leave thirty sockets
        // a second waiting out their minute. That it may fail changes nothing of the finding.
        let _ = stream.set_zero_linger();
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
        let spec = |interval, requests, timeout| {
            let ms = Duration::from_millis;
            LivenessSpec::new(LivenessCheck::Connect, ms(interval), requests, ms(timeout))
        };
        assert_eq!(spec(100, 3, 1000).unwrap().max_rounds(), 11);
        assert_eq!(spec(300, 3, 1000).unwrap().max_rounds(), 5);
        assert_eq!(spec(0, 3, 1000).err(), Some(PlanError::Interval));
        for requests in [0, 17] {
            assert_eq!(spec(100, requests, 1000).err(), Some(PlanError::Requests));
        }
        for (interval, timeout) in [(100, 0), (100, 60_001), (1, 1_001)] {
            assert_eq!(spec(interval, 3, timeout).err(), Some(PlanError::Timeout));
        }
    }
}
