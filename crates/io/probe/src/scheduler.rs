use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_config::Address;
use plimsoll_model::BackendId;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::conn::Dialer;
use crate::liveness::{Pace, Watch};
use crate::measure::Measure;
use crate::tally::Tally;
use crate::{Clock, LivenessEvent, LivenessSpec, Probe, ProbeEvent, ProbePlan, Prober, SpecError};

/// Rounds of checks are no closer than this.
const LEAST_INTERVAL: Duration = Duration::from_millis(1);

/// A backend to be measured and watched.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it listens.
    pub address: Address,
    /// What measures it, if anything does; nothing is sent before it has a [`ProbePlan`].
    pub probe: Option<Arc<Probe>>,
    /// What watches whether it lives; nothing is sent before [`Scheduler::set_watch`].
    pub liveness: Option<LivenessSpec>,
    /// The most measuring probes under way at once, at least one. A probe that is due beyond is
    /// skipped.
    pub max_in_flight: usize,
}

impl Target {
    /// What [`Target::max_in_flight`] is for want of a reason: 20 probes a second to a backend that
    /// answers within 800 ms.
    pub const DEFAULT_MAX_IN_FLIGHT: usize = 16;

    fn same(&self, other: &Target) -> bool {
        let liveness = match (&self.liveness, &other.liveness) {
            (Some(a), Some(b)) => a.same(b),
            (None, None) => true,
            _ => false,
        };
        let probe = match (&self.probe, &other.probe) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        liveness
            && probe
            && self.address == other.address
            && self.max_in_flight == other.max_in_flight
    }
}

/// Probes backends as planned, and sends what was found.
///
/// It decides nothing: rates come by [`Scheduler::set_plan`], and what a failed round means is for
/// whoever receives it. Backends come, change and go while it runs; events of one that has gone may
/// still lie in the channel. When a receiver does not keep up, probes are skipped and not queued; when
/// one is dropped, its part of the work ends. Dropping the scheduler ends everything.
#[derive(Debug)]
pub struct Scheduler {
    runtime: Handle,
    clock: Clock,
    seed: u64,
    probes: mpsc::Sender<ProbeEvent>,
    liveness: mpsc::Sender<LivenessEvent>,
    tally: Arc<Tally>,
    backends: BTreeMap<BackendId, Running>,
}

#[derive(Debug)]
struct Running {
    target: Target,
    plan: watch::Sender<ProbePlan>,
    pace: watch::Sender<Pace>,
    /// Dropped, it stops them; and with them go the connections.
    _tasks: JoinSet<()>,
}

impl Scheduler {
    /// A scheduler without backends, whose work runs on this runtime. `seed` decides the phases and
    /// the jitter of all its probes.
    pub fn new(
        runtime: Handle,
        clock: Clock,
        seed: u64,
        probes: mpsc::Sender<ProbeEvent>,
        liveness: mpsc::Sender<LivenessEvent>,
    ) -> Self {
        let tally = Arc::default();
        Scheduler { runtime, clock, seed, probes, liveness, tally, backends: BTreeMap::new() }
    }

    /// Adds a backend, or changes one: its probes and rounds under way are dropped, its plan is kept.
    /// Setting what is set already (the same address, limits and very [`Probe`]) changes nothing.
    ///
    /// # Errors
    /// As [`Prober::new`]; then nothing has changed.
    pub fn set(&mut self, backend: BackendId, target: Target) -> Result<(), SpecError> {
        let known = self.backends.get(&backend);
        if known.is_some_and(|running| running.target.same(&target)) {
            return Ok(());
        }
        let plan = known.map_or(ProbePlan::PAUSED, |running| *running.plan.borrow());
        let pace = known.map_or(Pace::default(), |running| *running.pace.borrow());
        let running = self.start(backend, target, plan, pace)?;
        self.backends.insert(backend, running);
        Ok(())
    }

    /// Changes how often a backend is measured. False when there is no such backend.
    pub fn set_plan(&self, backend: BackendId, plan: ProbePlan) -> bool {
        let Some(running) = self.backends.get(&backend) else { return false };
        running.plan.send_if_modified(|held| {
            let changed = *held != plan;
            *held = plan;
            changed
        });
        true
    }

    /// From now on a round of checks for life begins at this interval, or none at all; the first at once if that is
    /// asked. Rounds under way go on. False when there is no such backend.
    pub fn set_watch(&self, backend: BackendId, interval: Option<Duration>, at_once: bool) -> bool {
        let Some(running) = self.backends.get(&backend) else { return false };
        let interval = interval.map(|interval| interval.max(LEAST_INTERVAL));
        running.pace.send_modify(|pace| {
            *pace = Pace { interval, at_once: pace.at_once + u64::from(at_once) };
        });
        true
    }

    /// Stops a backend's probes and rounds and closes its connections. False when there is no such
    /// backend.
    pub fn remove(&mut self, backend: BackendId) -> bool {
        self.backends.remove(&backend).is_some()
    }

    /// The backends, in order.
    pub fn backends(&self) -> impl Iterator<Item = BackendId> {
        self.backends.keys().copied()
    }

    /// How many probes and rounds were due and not sent so far, because as many as allowed were under
    /// way.
    pub fn skipped(&self) -> u64 {
        self.tally.skipped()
    }

    /// How many probes this machine could not make so far, for want of descriptors or memory.
    pub fn local_faults(&self) -> u64 {
        self.tally.faults()
    }

    fn start(
        &self,
        backend: BackendId,
        target: Target,
        plan: ProbePlan,
        pace: Pace,
    ) -> Result<Running, SpecError> {
        let dialer = Arc::new(Dialer::new(target.address.clone()));
        let max_in_flight = target.max_in_flight.max(1);
        let prober = match &target.probe {
            Some(probe) => Some(Prober::sharing(dialer.clone(), probe.clone(), max_in_flight)?),
            None => None,
        };
        let (plan, planned) = watch::channel(plan);
        let (pace, paced) = watch::channel(pace);
        let mut tasks = JoinSet::new();
        if let Some(spec) = target.liveness.clone() {
            let (tally, events) = (self.tally.clone(), self.liveness.clone());
            let watch = Watch::new(backend, spec, dialer, self.clock, tally, events, paced)?;
            tasks.spawn_on(watch.run(self.seed), &self.runtime);
        }
        if let Some(prober) = prober {
            let measure = Measure {
                backend,
                prober: Arc::new(prober),
                max_in_flight,
                clock: self.clock,
                tally: self.tally.clone(),
                events: self.probes.clone(),
                plan: planned,
            };
            tasks.spawn_on(measure.run(self.seed), &self.runtime);
        }
        Ok(Running { target, plan, pace, _tasks: tasks })
    }
}
