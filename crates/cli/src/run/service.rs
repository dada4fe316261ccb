//! One service at work: takes what the world tells, one event at a time, and carries out what its
//! controller asks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use plimsoll_api::Publisher;
use plimsoll_control::{Action, Controller, Event, Memory, Record, RecordKind, ServiceSpec};
use plimsoll_model::{BackendId, MethodKind, Outcome, Plan};
use plimsoll_probe::{Clock, LivenessEvent, ProbeEvent, ProbePlan, Scheduler, Target};
use plimsoll_sink::{SinkHandle, SinkReport, Steered, Steering};
use plimsoll_store::{PlanRecord, PlanRecordEntry};
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, interval_at, timeout};

use super::keeper::Keeper;
use super::leaving::Leaving;
use super::pace::Pace;
use super::record::{self, unix_ms};
use super::rounds::Rounds;
use super::translate::ServiceSetup;

/// The balancer has so long to answer the last plan.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// Probes and rounds that wait to be taken.
const WAITING: usize = 1_024;

/// What the services share.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The rng of phases, jitter and the models.
    pub seed: u64,
    /// Keeps what was learned.
    pub keeper: Keeper,
    /// Holds the connections to balancers, and the origin of every [`plimsoll_model::Nanos`] in the daemon.
    pub steering: Steering,
    /// How often things are done.
    pub pace: Pace,
}

/// One service, from its start to its end or its panic.
pub struct Service {
    name: Arc<str>,
    origin: Instant,
    /// Names by identity, for the store.
    names: BTreeMap<BackendId, Arc<str>>,
    clock: Clock,
    setup: Arc<ServiceSetup>,
    controller: Controller,
    measures: Scheduler,
    watches: Scheduler,
    sink: SinkHandle,
    probes: mpsc::Receiver<ProbeEvent>,
    rounds: Rounds,
    keeper: Keeper,
    publisher: Publisher,
    shown: Instant,
    leaving: Leaving,
    pace: Pace,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.pace.set_backends(self.names.len(), 0);
    }
}

/// What a service waits for.
enum Told {
    /// An event for the controller.
    Event(Event),
    /// Another setup, or none: the end.
    Setup(Option<Arc<ServiceSetup>>),
    /// Whether the store can be written has changed.
    Store(Option<String>),
    /// A part is gone that should be there.
    Broken,
}

impl Service {
    /// A service that begins to measure and to read its balancer now.
    ///
    /// # Errors
    /// When a part refuses its setup, which [`super::translate::service`] has checked.
    pub fn start(
        shared: &Shared,
        setup: Arc<ServiceSetup>,
        memory: Option<Memory>,
        publisher: Publisher,
    ) -> Result<Self, String> {
        let clock = Clock::new(shared.steering.origin);
        let runtime = tokio::runtime::Handle::current();
        let (probe_sender, probes) = mpsc::channel(WAITING);
        let (round_sender, rounds) = mpsc::channel(WAITING);
        let scheduler = || {
            let (probes, rounds) = (probe_sender.clone(), round_sender.clone());
            Scheduler::new(runtime.clone(), clock, shared.seed, probes, rounds)
        };
        let steered = Steered {
            service: setup.spec.name.clone(),
            servers: setup.servers.clone(),
            observe: setup.spec.observe,
            source: setup.source.clone(),
        };
        let sink =
            setup.sink.start(&shared.steering, steered).map_err(|error| error.to_string())?;
        let mut service = Service {
            name: setup.spec.name.as_str().into(),
            origin: shared.steering.origin,
            names: BTreeMap::new(),
            clock,
            controller: Controller::new(setup.spec.clone(), memory, clock.now(), shared.seed),
            measures: scheduler(),
            watches: scheduler(),
            sink,
            setup: setup.clone(),
            probes,
            rounds: Rounds::new(rounds),
            keeper: shared.keeper.clone(),
            publisher,
            shown: shared.steering.origin,
            leaving: Leaving::default(),
            pace: shared.pace.clone(),
        };
        service.aim(&setup)?;
        Ok(service)
    }

    /// Works until the setup's other end is dropped; then keeps what was learned, leaves every healthy backend with a
    /// weight, and ends.
    ///
    /// # Errors
    /// When a part of it has died.
    pub async fn run(
        mut self,
        mut setups: watch::Receiver<Arc<ServiceSetup>>,
    ) -> Result<(), String> {
        let mut store = self.keeper.trouble();
        let mut tick = self.clock_of_controller();
        self.show();
        loop {
            match self.next(&mut setups, &mut store, &mut tick).await {
                Told::Event(event) => self.step(event),
                Told::Setup(Some(setup)) => self.reconfigure(setup),
                Told::Setup(None) => break,
                Told::Store(trouble) => self.note_store(trouble),
                Told::Broken => return Err("the balancer's connection has died".to_owned()),
            }
        }
        self.leave().await;
        self.show();
        Ok(())
    }

    /// Leaves the balancer with weights that need no controller.
    async fn leave(&mut self) {
        let before = self.controller.epoch();
        self.step(Event::Stopping);
        // The weights that are kept are those before: the next daemon goes on with them.
        self.save();
        let epoch = self.controller.epoch();
        if epoch == before {
            return;
        }
        let answered = async {
            while let Some(report) = self.sink.reports.recv().await {
                match report {
                    SinkReport::Applied(applied) if applied.epoch == epoch => return,
                    SinkReport::Failed(failed, loss) if failed == epoch => {
                        tracing::warn!(service = %self.name, "the last plan failed: {}", loss.reason);
                        return;
                    }
                    _ => {}
                }
            }
        };
        if timeout(LEAVE_WITHIN, answered).await.is_err() {
            tracing::warn!(service = %self.name, "the balancer did not answer the last plan");
        }
    }

    /// The most urgent thing to do: what became of a plan, then which backends died, then all else.
    async fn next(
        &mut self,
        setups: &mut watch::Receiver<Arc<ServiceSetup>>,
        store: &mut watch::Receiver<Option<String>>,
        tick: &mut Interval,
    ) -> Told {
        loop {
            tokio::select! {
                biased;
                changed = setups.changed() => {
                    let setup = changed.is_ok().then(|| setups.borrow_and_update().clone());
                    return Told::Setup(setup);
                }
                report = self.sink.reports.recv() => {
                    let Some(report) = report else { return Told::Broken };
                    if let Some(event) = self.sink_event(report) {
                        return Told::Event(event);
                    }
                }
                Some(round) = self.rounds.next() => return Told::Event(liveness(&round)),
                _ = tick.tick() => {
                    if tick.period() != self.pace.between_ticks() {
                        *tick = self.clock_of_controller();
                    }
                    return Told::Event(Event::Tick);
                }
                Some(probe) = self.probes.recv() => {
                    if let Some(event) = self.probe_event(&probe) {
                        return Told::Event(event);
                    }
                }
                Ok(()) = store.changed() => {
                    return Told::Store(store.borrow_and_update().clone());
                }
            }
        }
    }

    /// An event for the controller, if it is one.
    fn sink_event(&mut self, report: SinkReport) -> Option<Event> {
        if self.setup.auto && self.leaving.holds_back(&report, self.names.len()) {
            return None;
        }
        let counters = self.publisher.counters();
        Some(match report {
            SinkReport::Note(reason) => {
                self.note(Record { kind: RecordKind::Warning, backend: None, reason });
                return None;
            }
            SinkReport::Divided(reason) => {
                self.note(Record { kind: RecordKind::Balancer, backend: None, reason });
                return None;
            }
            SinkReport::Read(report, took) => {
                counters.polled(took);
                if report.method.kind == MethodKind::NoLiveWeights {
                    // No plan will come that could be taken.
                    self.publisher.plan_taken();
                }
                Event::Balancer(report)
            }
            SinkReport::Lost(loss) => {
                counters.sink_failed();
                Event::BalancerLost { reason: loss.reason, conflict: !loss.retryable }
            }
            SinkReport::Degraded(degraded) => {
                if degraded.is_some() {
                    counters.sink_failed();
                }
                Event::BalancersDegraded(degraded.map(|loss| loss.reason))
            }
            SinkReport::Sharing(number) => Event::BalancersSharing(number),
            SinkReport::Applied(applied) => {
                counters.applied(applied.commands);
                self.publisher.plan_taken();
                Event::Applied(applied)
            }
            SinkReport::Failed(epoch, loss) => {
                counters.sink_failed();
                self.publisher.plan_refused(epoch, &loss.reason);
                // What has left will not be in the next plan.
                let retryable = loss.retryable || (loss.absent && self.setup.auto);
                Event::ApplyFailed { epoch, reason: loss.reason, retryable }
            }
        })
    }

    /// Counts a probe; none for a backend that has left meanwhile.
    fn probe_event(&mut self, probe: &ProbeEvent) -> Option<Event> {
        let name = self.names.get(&probe.backend)?;
        let result = &probe.result;
        self.publisher.counters().probe(name, result.outcome, result.latency);
        let latency_us = result.latency.as_secs_f64() * 1e6;
        if result.outcome != Outcome::Success {
            tracing::debug!(service = %self.name, backend = %name, "probe failed: {}", result.detail);
        }
        Some(Event::Probe {
            backend: probe.backend,
            outcome: result.outcome,
            latency_us,
            detail: result.detail.clone().into_owned(),
        })
    }

    fn step(&mut self, event: Event) {
        let began = Instant::now();
        let actions = self.controller.step(self.clock.now(), event);
        let took = began.elapsed();
        let mut show = false;
        for action in actions {
            show |= self.carry_out(action, took);
        }
        if show || self.shown.elapsed() >= self.pace.between_views() {
            self.show();
        }
    }

    /// Does what the controller asks. True when people should see it at once.
    fn carry_out(&mut self, action: Action, took: Duration) -> bool {
        match action {
            Action::Program(plan) => {
                self.publisher.counters().solved(took);
                self.program(plan);
                true
            }
            Action::Correct(plan) => {
                self.sink.program(plan);
                false
            }
            Action::ProbeRate { backend, interval, requests } => {
                self.set_rate(backend, interval, requests);
                false
            }
            Action::CheckRate { backend, interval, at_once } => {
                let interval = interval.map(|interval| self.stretched(interval, at_once));
                let scheduler = match self.setup.probes.watched.contains_key(&backend) {
                    true => &self.watches,
                    false => &self.measures,
                };
                scheduler.set_watch(backend, interval, at_once);
                false
            }
            Action::Record(record) => {
                let urgent = !matches!(record.kind, RecordKind::Joined | RecordKind::Left);
                self.note(record);
                urgent
            }
            Action::SaveMemory => {
                self.save();
                false
            }
        }
    }

    fn program(&mut self, plan: Plan) {
        let named = plan.entries.iter().filter_map(|entry| {
            let backend = self.names.get(&entry.backend)?.to_string();
            Some(PlanRecordEntry { backend, share: entry.share, weight: entry.weight })
        });
        let kept = PlanRecord {
            unix_ms: unix_ms(SystemTime::now()),
            epoch: plan.epoch,
            reason: plan.reason.clone(),
            entries: named.collect(),
        };
        self.keeper.plan(&self.name, kept);
        self.sink.program(plan);
    }

    fn set_rate(&self, backend: BackendId, interval: Duration, requests: u32) {
        let plan = match interval {
            Duration::ZERO => Ok(ProbePlan::PAUSED),
            interval => ProbePlan::new(interval, requests, self.setup.probes.jitter),
        };
        match plan {
            Ok(plan) => {
                self.measures.set_plan(backend, plan);
            }
            Err(error) => tracing::warn!(service = %self.name, %backend, "not probed: {error}"),
        }
    }

    /// As often as this backend is checked, by what the controller asks for. What an operator has set stays.
    fn stretched(&self, interval: Duration, suspect: bool) -> Duration {
        let is_blind = !self.setup.reports_losses();
        let is_urgent = interval < Duration::from_secs(1) && (suspect || is_blind);
        if is_urgent || self.setup.spec.checks.interval.is_some() {
            return interval;
        }
        self.pace.between_checks(interval)
    }

    fn note(&self, record: Record) {
        record::note(&self.name, &self.publisher, &self.keeper, record);
    }

    fn note_store(&self, trouble: Option<String>) {
        let reason = match trouble {
            Some(why) => {
                self.publisher.counters().store_failed();
                format!("what is learned cannot be kept: {why}")
            }
            None => "what is learned is kept again".to_owned(),
        };
        self.note(Record { kind: RecordKind::Warning, backend: None, reason });
    }

    fn save(&self) {
        match serde_json::to_vec(&self.controller.memory()) {
            Ok(bytes) => self.keeper.memory(&self.name, bytes),
            Err(error) => {
                tracing::error!(service = %self.name, "what was learned cannot be written: {error}");
            }
        }
    }

    /// Ticks for all services at once: a machine that wakes seldom does the same with less.
    fn clock_of_controller(&self) -> Interval {
        let period = self.pace.between_ticks();
        let passed = self.origin.elapsed().as_nanos() % period.as_nanos();
        let left = period.saturating_sub(Duration::from_nanos(u64::try_from(passed).unwrap_or(0)));
        let mut tick = interval_at((Instant::now() + left).into(), period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        tick
    }

    fn show(&mut self) {
        self.shown = Instant::now();
        let mut view = self.controller.view(self.clock.now());
        for (backend, suspect) in view.backends.iter_mut().zip(self.controller.suspected()) {
            let stretched =
                |s: f64| self.stretched(Duration::from_secs_f64(s), suspect).as_secs_f64();
            backend.check_interval_s = backend.check_interval_s.map(stretched);
        }
        view.plan.told_by = self.setup.source.as_ref().map(|(source, _)| source.kind().to_owned());
        self.publisher.publish(view);
    }

    /// Goes on with another setup of the same service behind the same balancer.
    fn reconfigure(&mut self, setup: Arc<ServiceSetup>) {
        if setup.servers != self.setup.servers {
            self.sink.set_servers(setup.servers.clone());
        }
        if let Err(error) = self.aim(&setup) {
            tracing::error!(service = %self.name, "{error}");
        }
        let changed = setup.spec != self.setup.spec;
        self.setup = setup;
        if changed {
            let spec: ServiceSpec = self.setup.spec.clone();
            self.step(Event::Reconfigured(Box::new(spec)));
        }
    }

    /// Points the probes and the watch at the backends of a setup.
    fn aim(&mut self, setup: &ServiceSetup) -> Result<(), String> {
        point(&mut self.measures, &setup.probes.measured)?;
        point(&mut self.watches, &setup.probes.watched)?;
        self.pace.set_backends(self.names.len(), setup.spec.backends.len());
        self.names = setup.spec.backends.iter().map(|b| (b.id, b.name.as_str().into())).collect();
        Ok(())
    }
}

fn point(scheduler: &mut Scheduler, targets: &BTreeMap<BackendId, Target>) -> Result<(), String> {
    let gone: Vec<BackendId> =
        scheduler.backends().filter(|id| !targets.contains_key(id)).collect();
    for id in gone {
        scheduler.remove(id);
    }
    for (id, target) in targets {
        scheduler.set(*id, target.clone()).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn liveness(round: &LivenessEvent) -> Event {
    Event::Liveness {
        backend: round.backend,
        successes: round.successes,
        failure: round.first_failure,
        started: round.started,
    }
}
