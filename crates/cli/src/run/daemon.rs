//! The daemon's beginning, its changes and its end.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_api::{Hub, MAX_EVENTS, Part, Publisher, serve};
use plimsoll_config::ConfigError;
use plimsoll_control::{Controller, Memory, Record, RecordKind};
use plimsoll_model::Nanos;
use plimsoll_sink::Steering;
use plimsoll_store::{Holder, Store, StoreError};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::descriptors;
use super::file::Follow;
use super::keeper::{Keeper, KeeperThread};
use super::log;
use super::looker::{Base, Looker};
use super::pace::Pace;
use super::record;
use super::service::{Service, Shared};
use super::supervise::{BACKOFF, keep_running};
use super::translate::{self, ServiceSetup};
use crate::config::{self, Config};
use crate::hangup;

/// How often to look whether the configuration file has changed.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// How long services may take to end.
const END_WITHIN: Duration = Duration::from_secs(3);

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration file, where there is one.
    pub file: Option<PathBuf>,
    /// Program nothing.
    pub observe: bool,
    /// What chance does.
    pub seed: u64,
}

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A part cannot take what the configuration says; complete lines.
    #[error("{0}")]
    Config(String),
    /// The balancer that was named in the place of a file cannot be helped.
    #[error("{0}")]
    Balancer(String),
    /// The store cannot be opened.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The API cannot listen.
    #[error("api.listen: cannot listen on {address}: {source}{hint}")]
    Api {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
        /// What to look at.
        hint: &'static str,
    },
    /// The system refuses a thread or a signal.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Runs until a signal ends it.
///
/// # Errors
/// When it cannot start; what goes wrong later is logged and lived with.
pub async fn run(options: Options, base: Base) -> Result<(), StartError> {
    let origin = Instant::now();
    let (mut stop, mut reload) = signals()?;
    let mut follow = options.file.clone().map(Follow::new);
    let hub = Hub::new(env!("CARGO_PKG_VERSION"));
    hub.count_lost_log_lines(log::lost());
    let looking = Looker::start(base, hub.clone()).await;
    let (mut looker, config) = looking.map_err(StartError::Balancer)?;
    let (mut daemon, thread) = Daemon::start(options, config, hub, origin).await?;
    let (stop_api, api_stopped) = watch::channel(());
    // A port that is taken is reported before any service starts; early requests wait until all are there.
    let listener = daemon.listen().await?;
    daemon.start_all().await?;
    let api = daemon.answer(listener, api_stopped);
    let mut look = interval(FOLLOW_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    if hangup::came() {
        daemon.reload("SIGHUP", follow.as_mut(), &looker).await;
    }
    loop {
        tokio::select! {
            () = stop.next() => break,
            _ = reload.recv() => {
                daemon.reload("SIGHUP", follow.as_mut(), &looker).await;
            }
            found = looker.next() => {
                let is_taken = daemon.take_up(found.config, &found.why, found.is_again).await;
                // Nobody listens where it has ended.
                let _ = found.taken.send(is_taken);
            }
            _ = look.tick(), if follow.is_some() => {
                if follow.as_mut().is_some_and(Follow::has_changed) {
                    daemon.reload("the file has changed", follow.as_mut(), &looker).await;
                }
            }
        }
    }
    tracing::info!("stopping");
    daemon.end().await;
    drop(stop_api);
    // It drains for two seconds at the most.
    let _ = timeout(END_WITHIN, api).await;
    let _ = spawn_blocking(move || thread.stop()).await;
    Ok(())
}

/// From here on, signals are received and no longer kill: those that end the daemon, and the one to reload.
fn signals() -> io::Result<(Stop, Signal)> {
    let interrupt = signal(SignalKind::interrupt())?;
    let stop = Stop { interrupt, terminate: signal(SignalKind::terminate())? };
    Ok((stop, signal(SignalKind::hangup())?))
}

struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A service at work.
struct Running {
    config: config::Service,
    setup: Arc<ServiceSetup>,
    /// Dropped, it ends the service.
    setups: watch::Sender<Arc<ServiceSetup>>,
    task: JoinHandle<()>,
    publisher: Publisher,
}

struct Daemon {
    options: Options,
    config: Config,
    shared: Shared,
    store: Arc<Store>,
    hub: Hub,
    running: BTreeMap<String, Running>,
}

impl Daemon {
    async fn start(
        options: Options,
        config: Config,
        hub: Hub,
        origin: Instant,
    ) -> Result<(Self, KeeperThread), StartError> {
        let holder = Holder::this_process(&config.api.listen.to_string());
        let path = config.store.path.clone();
        let store = spawn_blocking(move || Store::open(&path, &holder));
        let store = Arc::new(store.await.map_err(io::Error::other)??);
        let (keeper, thread) = Keeper::start(store.clone())?;
        let steering = Steering::new(origin);
        let shared = Shared { seed: options.seed, keeper, steering, pace: Pace::default() };
        let running = BTreeMap::new();
        Ok((Daemon { options, config, shared, store, hub, running }, thread))
    }

    /// Takes the port: what asks from now on waits until it is answered.
    async fn listen(&self) -> Result<TcpListener, StartError> {
        let address = self.config.api.listen;
        TcpListener::bind(address).await.map_err(|source| {
            let hint = match source.kind() {
                io::ErrorKind::AddrInUse => ": is another plimsoll running?",
                _ => "",
            };
            StartError::Api { address, source, hint }
        })
    }

    /// Answers questions from now on.
    fn answer(&self, listener: TcpListener, mut stopped: watch::Receiver<()>) -> JoinHandle<()> {
        let hub = self.hub.clone();
        tokio::spawn(async move {
            let until = async move {
                // An error is the sender's end, which is what is waited for.
                let _ = stopped.changed().await;
            };
            if let Err(error) = serve(listener, hub, until).await {
                tracing::error!("the API has ended: {error}");
            }
        })
    }

    /// Starts every service of the configuration.
    async fn start_all(&mut self) -> Result<(), StartError> {
        descriptors::raise(descriptors::needed(&self.config));
        let services = self.config.services.clone();
        let mut setups = Vec::new();
        for service in &services {
            setups.push(
                self.setup(service)
                    .await?
                    .map_err(|error| StartError::Config(error.to_string()))?,
            );
        }
        let backends: usize = services.iter().map(|service| service.backends.len()).sum();
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            services = services.len(),
            backends,
            api = %self.config.api.listen,
            store = %self.config.store.path.display(),
            seed = self.options.seed,
            observe = self.options.observe,
            "started"
        );
        for (service, setup) in services.into_iter().zip(setups) {
            self.start_service(service, setup).await;
        }
        Ok(())
    }

    /// The setup of a service, with the identities that its backends have in the store.
    async fn setup(
        &self,
        service: &config::Service,
    ) -> Result<Result<ServiceSetup, ConfigError>, StartError> {
        let (store, wanted) = (self.store.clone(), service.clone());
        let before = self.running.get(&service.name).map(|r| (r.config.clone(), r.setup.clone()));
        let observe = self.options.observe;
        let made = spawn_blocking(move || {
            let names: Vec<&str> = wanted.backends.iter().map(|b| b.name.as_str()).collect();
            let ids = store.backend_ids(&wanted.name, &names)?;
            let before = before.as_ref().map(|(config, setup)| (config, setup.as_ref()));
            Ok(translate::service(&wanted, &ids, observe, before))
        });
        made.await.map_err(io::Error::other)?
    }

    async fn start_service(&mut self, config: config::Service, setup: ServiceSetup) {
        let name = config.name.clone();
        let first = Controller::new(setup.spec.clone(), None, Nanos::ZERO, self.options.seed);
        let publisher = self.hub.add(first.view(Nanos::ZERO));
        let store = self.store.clone();
        let past = {
            let name = name.clone();
            spawn_blocking(move || store.last_events(&name, MAX_EVENTS)).await
        };
        match past {
            Ok(Ok(events)) => publisher.restore(record::restored(events)),
            Ok(Err(error)) => tracing::warn!(service = %name, "no events of earlier: {error}"),
            Err(error) => tracing::warn!(service = %name, "no events of earlier: {error}"),
        }
        let setup = Arc::new(setup);
        let (setups, receiver) = watch::channel(setup.clone());
        let task = self.spawn(name.as_str().into(), receiver, publisher.clone());
        self.running.insert(name, Running { config, setup, setups, task, publisher });
    }

    fn spawn(
        &self,
        name: Arc<str>,
        setups: watch::Receiver<Arc<ServiceSetup>>,
        publisher: Publisher,
    ) -> JoinHandle<()> {
        let (shared, store, keeper) =
            (self.shared.clone(), self.store.clone(), self.shared.keeper.clone());
        let (told, service, shown) = (publisher.clone(), name.clone(), publisher.clone());
        let start = move || {
            let (shared, store, publisher) = (shared.clone(), store.clone(), shown.clone());
            let (mut setups, name) = (setups.clone(), name.clone());
            async move {
                let _at_work = publisher.at_work(Part::Service);
                let memory = recall(store, name).await;
                let setup = setups.borrow_and_update().clone();
                Service::start(&shared, setup, memory, publisher)?.run(setups).await
            }
        };
        let failed = move |why: &str| {
            let reason = format!("the service failed and starts anew ({why}): please report this");
            let warning = Record { kind: RecordKind::Warning, backend: None, reason };
            record::note(&service, &told, &keeper, warning);
        };
        tokio::spawn(async move {
            let _at_work = publisher.at_work(Part::Supervisor);
            keep_running(BACKOFF, start, failed).await;
        })
    }

    /// Reads the configuration file as it is now, and has balancers asked what it leaves to them. What is wrong with
    /// it is logged, and the old one stays.
    async fn reload(&mut self, why: &str, follow: Option<&mut Follow>, looker: &Looker) {
        if let Some(follow) = follow {
            follow.was_read();
        }
        let Some(file) = &self.options.file else { return looker.look(None, why) };
        match config::load(file) {
            Ok(config) => looker.look(Some(config), why),
            Err(problems) => self.refuse(problems.iter().map(ToString::to_string).collect()),
        }
    }

    /// Runs this configuration from now on, where it can be run; whether it does. What was refused before is not said
    /// once more.
    async fn take_up(&mut self, config: Config, why: &str, is_again: bool) -> bool {
        if config == self.config {
            tracing::info!("{why}: the configuration is the same");
            return true;
        }
        let mut setups = Vec::new();
        let mut problems = Vec::new();
        for service in &config.services {
            match self.setup(service).await {
                Ok(Ok(setup)) => setups.push(setup),
                Ok(Err(error)) => problems.push(error.to_string()),
                Err(error) => problems.push(error.to_string()),
            }
        }
        if !problems.is_empty() {
            if !is_again {
                self.refuse(problems);
            }
            return false;
        }
        self.note_what_stays(&config);
        descriptors::raise(descriptors::needed(&config));
        let kept: Vec<String> = config.services.iter().map(|s| s.name.clone()).collect();
        let gone: Vec<String> =
            self.running.keys().filter(|name| !kept.contains(name)).cloned().collect();
        for name in gone {
            tracing::info!(service = %name, "no longer configured");
            self.end_service(&name).await;
            self.hub.remove(&name);
        }
        for (service, setup) in config.services.iter().zip(setups) {
            self.change(service.clone(), setup).await;
        }
        self.config = config;
        tracing::info!("{why}: the configuration was taken up");
        true
    }

    fn refuse(&self, problems: Vec<String>) {
        for problem in &problems {
            tracing::error!("{problem}");
        }
        let reason = format!(
            "the changed configuration is wrong, the old one stays ({} in all): {}",
            problems.len(),
            problems.first().map_or("", String::as_str)
        );
        for (name, running) in &self.running {
            let warning =
                Record { kind: RecordKind::Warning, backend: None, reason: reason.clone() };
            record::note(&name.as_str().into(), &running.publisher, &self.shared.keeper, warning);
        }
    }

    /// Some things are settled at the start.
    fn note_what_stays(&mut self, config: &Config) {
        if config.api != self.config.api {
            tracing::warn!("api: takes effect at the next start of the daemon");
        }
        if config.store != self.config.store {
            tracing::warn!("store: takes effect at the next start of the daemon");
        }
    }

    /// Starts a service, or has it go on with another setup. Behind another balancer it starts anew,
    /// from what it has learned.
    async fn change(&mut self, service: config::Service, setup: ServiceSetup) {
        let Some(running) = self.running.get_mut(&service.name) else {
            return self.start_service(service, setup).await;
        };
        if running.config == service {
            return;
        }
        // A log names servers by their addresses, which its listener learns at its start.
        let same_source = running.config.source == service.source
            && (service.source.is_none() || running.config.backends == service.backends);
        if running.config.sink == service.sink && same_source {
            running.setup = Arc::new(setup);
            running.config = service;
            running.setups.send_replace(running.setup.clone());
            return;
        }
        self.end_service(&service.name).await;
        // The new one goes on from what the old one has just put.
        self.shared.keeper.written().await;
        self.start_service(service, setup).await;
    }

    async fn end_service(&mut self, name: &str) {
        let Some(Running { setups, task, .. }) = self.running.remove(name) else { return };
        drop(setups);
        let abort = task.abort_handle();
        if timeout(END_WITHIN, task).await.is_err() {
            abort.abort();
        }
    }

    async fn end(&mut self) {
        // All are asked to end before any is waited for.
        let running = std::mem::take(&mut self.running);
        let tasks: Vec<JoinHandle<()>> = running.into_values().map(|r| r.task).collect();
        let all = async {
            for task in tasks {
                let _ = task.await;
            }
        };
        if timeout(END_WITHIN, all).await.is_err() {
            tracing::warn!("some services did not end in time");
        }
    }
}

/// What the controller of a service knew; nothing where that cannot be read.
async fn recall(store: Arc<Store>, service: Arc<str>) -> Option<Memory> {
    let name = service.clone();
    let bytes = spawn_blocking(move || store.load_memory(&name)).await;
    let read = match bytes {
        Ok(Ok(None)) => return None,
        Ok(Ok(Some(bytes))) => serde_json::from_slice(&bytes).map_err(|e| e.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    read.inspect_err(|error| {
        tracing::warn!(service = %service, "what was learned cannot be read, learning anew: {error}");
    })
    .ok()
}
