//! KnapsackLB's controller before a real balancer, which is read and programmed by the daemon's own sinks. Backends are
//! not checked: none dies in these lanes.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plimsoll_api::wire::Event as Entry;
use plimsoll_control::{Action, BackendSpec, Event, Phase, Record};
use plimsoll_model::{BackendId, Nanos};
use plimsoll_sim::knapsack::{ExploreMode, Knapsack};
use plimsoll_sink::{
    HaproxyConfig, ProxySinkConfig, Sink, SinkHandle, SinkReport, SocketAddress, Steered, Steering,
};

use crate::haproxy::SECTION;
use crate::{LaneError, Lb};

/// How often the controller gets the time.
const TICK: Duration = Duration::from_millis(100);

/// What the thread shows of the controller.
#[derive(Default)]
struct Shown {
    weights: Vec<u32>,
    phase: Option<Phase>,
    entries: Vec<Entry>,
    ended: Option<String>,
}

/// A controller that may run, or rest.
pub struct KnapsackDriver {
    servers: Vec<(BackendId, String)>,
    sink: Sink,
    /// Its clock's zero.
    origin: Instant,
    resting: Option<Knapsack>,
    thread: Option<JoinHandle<Knapsack>>,
    stops: Arc<AtomicBool>,
    shown: Arc<Mutex<Shown>>,
}

impl KnapsackDriver {
    /// One that rests, for these servers behind the balancer at this socket.
    pub fn new(
        servers: &[(String, SocketAddr)],
        lb: Lb,
        socket: &Path,
        mode: ExploreMode,
    ) -> Result<Self, LaneError> {
        let ended = |how: String| LaneError::Ended {
            name: "KnapsackLB's controller".to_owned(),
            how,
            said: String::new(),
        };
        let servers: Vec<(BackendId, String)> =
            (0..).map(BackendId).zip(servers.iter().map(|(name, _)| name.clone())).collect();
        let sink = match lb {
            Lb::Haproxy => {
                let socket = SocketAddress::Unix(socket.to_owned());
                Sink::Haproxy(HaproxyConfig::new(socket, SECTION))
            }
            Lb::Proxy => Sink::Proxy(ProxySinkConfig::new(socket.to_owned(), SECTION)),
        };
        let backend =
            |(id, name): &(BackendId, String)| BackendSpec { id: *id, name: name.clone() };
        let backends: Vec<BackendSpec> = servers.iter().map(backend).collect();
        let controller = Knapsack::new(&backends, sink.limits().range, mode);
        Ok(KnapsackDriver {
            resting: Some(controller.map_err(|error| ended(error.to_string()))?),
            shown: Arc::new(Mutex::new(Shown {
                weights: vec![1; servers.len()],
                ..Shown::default()
            })),
            servers,
            sink,
            origin: Instant::now(),
            thread: None,
            stops: Arc::default(),
        })
    }

    /// Lets it steer, with what it knew.
    pub fn start(&mut self) -> Result<(), LaneError> {
        let Some(mut controller) = self.resting.take() else { return Ok(()) };
        self.stops.store(false, Ordering::Relaxed);
        let (stops, shown) = (self.stops.clone(), self.shown.clone());
        let (sink, servers, origin) = (self.sink.clone(), self.servers.clone(), self.origin);
        let run = move || {
            let ended = drive(&mut controller, &sink, servers, origin, &stops, &shown);
            lock(&shown).ended = ended.err();
            controller
        };
        let thread = std::thread::Builder::new().name("knapsack".to_owned()).spawn(run);
        self.thread = Some(thread.map_err(LaneError::system("start a thread"))?);
        Ok(())
    }

    /// Ends its steering: the balancer keeps its weights.
    pub fn rest(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            self.resting = thread.join().ok();
        }
    }

    /// The weights that the balancer holds.
    pub fn weights(&self) -> Vec<u32> {
        lock(&self.shown).weights.clone()
    }

    /// Whether it explores or is steady, once it has seen the balancer.
    pub fn phase(&self) -> Option<Phase> {
        lock(&self.shown).phase
    }

    /// What it decided, with reasons.
    pub fn entries(&self) -> Vec<Entry> {
        lock(&self.shown).entries.clone()
    }

    /// That it has ended, if it has.
    pub fn ended(&self) -> Option<LaneError> {
        let how = lock(&self.shown).ended.clone()?;
        let name = "KnapsackLB's controller".to_owned();
        Some(LaneError::Ended { name, how, said: String::new() })
    }
}

impl Drop for KnapsackDriver {
    fn drop(&mut self) {
        self.rest();
    }
}

fn lock(shown: &Mutex<Shown>) -> MutexGuard<'_, Shown> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Steers until it is stopped.
fn drive(
    controller: &mut Knapsack,
    sink: &Sink,
    servers: Vec<(BackendId, String)>,
    origin: Instant,
    stops: &AtomicBool,
    shown: &Mutex<Shown>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let service = "demo".to_owned();
        let steered = Steered { service, servers, observe: false, source: None };
        let handle = sink.start(&Steering::new(origin), steered);
        let mut handle = handle.map_err(|error| error.to_string())?;
        let mut ticks = tokio::time::interval(TICK);
        while !stops.load(Ordering::Relaxed) {
            let event = tokio::select! {
                _ = ticks.tick() => Event::Tick,
                report = handle.reports.recv() => {
                    match told(report.ok_or("the balancer's task has ended")?, shown) {
                        Some(event) => event,
                        None => continue,
                    }
                }
            };
            let now = Nanos(origin.elapsed().as_nanos() as u64);
            let actions = controller.step(now, event);
            lock(shown).phase = Some(controller.phase());
            actions.into_iter().for_each(|action| carry_out(action, &handle, shown));
        }
        Ok(())
    })
}

fn told(report: SinkReport, shown: &Mutex<Shown>) -> Option<Event> {
    Some(match report {
        SinkReport::Read(report, _) => Event::Balancer(report),
        SinkReport::Lost(loss) => {
            Event::BalancerLost { reason: loss.reason, conflict: !loss.retryable }
        }
        SinkReport::Applied(applied) => {
            lock(shown).weights = applied.weights.iter().map(|(_, weight)| *weight).collect();
            Event::Applied(applied)
        }
        SinkReport::Failed(epoch, loss) => {
            Event::ApplyFailed { epoch, reason: loss.reason, retryable: loss.retryable }
        }
        SinkReport::Note(_)
        | SinkReport::Divided(_)
        | SinkReport::Sharing(_)
        | SinkReport::Degraded(_) => return None,
    })
}

fn carry_out(action: Action, handle: &SinkHandle, shown: &Mutex<Shown>) {
    match action {
        Action::Program(plan) | Action::Correct(plan) => handle.program(plan),
        Action::Record(Record { kind, backend, reason }) => {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let entries = &mut lock(shown).entries;
            let (seq, unix_ms) = (entries.len() as u64 + 1, since.as_millis() as i64);
            entries.push(Entry { seq, unix_ms, kind, backend, reason });
        }
        Action::ProbeRate { .. } | Action::CheckRate { .. } | Action::SaveMemory => {}
    }
}
