use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_model::BackendId;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::liveness::Watch;
use crate::measure::Measure;
use crate::resolve::Resolver;
use crate::tally::Tally;
use crate::{
    Address, Clock, LivenessEvent, LivenessSpec, Probe, ProbeEvent, ProbePlan, Prober, SpecError,
};

/// A backend to be measured and watched.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it listens.
    pub address: Address,
    /// What measures it; nothing is sent before it has a [`ProbePlan`].
    pub probe: Arc<Probe>,
    /// What watches whether it lives, from the start on.
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
        liveness
            && self.address == other.address
            && self.max_in_flight == other.max_in_flight
            && Arc::ptr_eq(&self.probe, &other.probe)
    }
}

/// Probes backends as it is told, and sends what was found.
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
        let running = self.start(backend, target, plan)?;
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
    ) -> Result<Running, SpecError> {
        let resolver = Arc::new(Resolver::new(target.address.clone()));
        let max_in_flight = target.max_in_flight.max(1);
        let prober = Prober::sharing(resolver.clone(), target.probe.clone(), max_in_flight)?;
        let (sender, receiver) = watch::channel(plan);
        let mut tasks = JoinSet::new();
        if let Some(spec) = target.liveness.clone() {
            let (tally, events) = (self.tally.clone(), self.liveness.clone());
            let watch = Watch::new(backend, spec, resolver, self.clock, tally, events)?;
            tasks.spawn_on(watch.run(self.seed), &self.runtime);
        }
        let measure = Measure {
            backend,
            prober: Arc::new(prober),
            max_in_flight,
            clock: self.clock,
            tally: self.tally.clone(),
            events: self.probes.clone(),
            plan: receiver,
        };
        tasks.spawn_on(measure.run(self.seed), &self.runtime);
        Ok(Running { target, plan: sender, _tasks: tasks })
    }
}
