//! The proxy at work: its threads, another configuration, its end.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use plimsoll_sink::wire;
use thiserror::Error;
use tokio::sync::watch as signal;
use tokio::task::LocalSet;
use tracing::warn;

use crate::config::ProxyConfig;
use crate::listen::ListenError;
use crate::room::OpenFiles;
use crate::seat::Seat;
use crate::shared::Core;
use crate::status::Status;
use crate::{report, steer, watch};

/// Why the proxy does not start, or does not take up another configuration.
#[derive(Debug, Error)]
pub enum ProxyError {
    /// An address that cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A thread or its runtime was refused by the system.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// A setting that only a policy or an admission knows to be wrong.
    #[error("{0}")]
    Setting(String),
    /// The access log cannot be written.
    #[error("proxy.access_log.file: cannot write {file}: {error}")]
    Log {
        /// The file.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// What a running proxy cannot change.
    #[error("{key} differs from what the proxy was started with: restart it to change that")]
    Fixed {
        /// The key.
        key: &'static str,
    },
}

/// A running proxy. Dropped, it ends at once; [`Proxy::stop`] lets requests finish.
pub struct Proxy {
    core: Arc<Core>,
    stop: signal::Sender<Option<Duration>>,
    threads: Vec<JoinHandle<()>>,
}

impl Proxy {
    /// Listens and serves, from when this returns.
    ///
    /// # Errors
    /// [`ProxyError`]; nothing is listened on then.
    pub fn start(config: &ProxyConfig) -> Result<Self, ProxyError> {
        check(config)?;
        let threads = config.thread_count();
        let core = Core::start(config, threads)?;
        say_room(config, core.room.most);
        let (stop, stopping) = signal::channel(None);
        let mut proxy = Proxy { core, stop, threads: Vec::new() };
        for thread in 0..threads {
            let (core, stopping) = (proxy.core.clone(), stopping.clone());
            proxy.spawn(format!("proxy-{thread}"), async move || {
                Seat::new(thread, core).serve(stopping).await;
            })?;
        }
        let core = proxy.core.clone();
        proxy.spawn("proxy-watch".to_owned(), async move || watch::run(core, stopping).await)?;
        Ok(proxy)
    }

    /// Runs this on a thread and a runtime of its own.
    fn spawn(
        &mut self,
        name: String,
        work: impl AsyncFnOnce() + Send + 'static,
    ) -> Result<(), ProxyError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ProxyError::Thread)?;
        let thread = thread::Builder::new()
            .name(name)
            .spawn(move || LocalSet::new().block_on(&runtime, work()))
            .map_err(ProxyError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Where entries really listen, by name: of all ingress entries, then of all egress entries.
    pub fn addresses(&self) -> Vec<(String, SocketAddr)> {
        self.core.now().addresses()
    }

    /// What it says of itself, now.
    pub fn status(&self) -> Status {
        report::status(&self.core)
    }

    /// For others to ask and steer it, for as long as they like.
    pub fn handle(&self) -> Handle {
        Handle { core: self.core.clone() }
    }

    /// Accepts no more connections, lets requests under way finish for up to `drain`, and ends. Blocks until then.
    pub fn stop(mut self, drain: Duration) {
        self.end(drain);
    }

    fn end(&mut self, drain: Duration) {
        // It fails only when all threads have ended.
        let _ = self.stop.send(Some(drain));
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                warn!("a thread of the proxy had ended by a panic");
            }
        }
        if let Some(log) = &self.core.now().log {
            log.flush();
        }
    }
}

/// Asks and steers a running proxy, from any thread. It may outlive it.
#[derive(Clone)]
pub struct Handle {
    core: Arc<Core>,
}

impl Handle {
    /// What the proxy says of itself, now.
    pub fn status(&self) -> Status {
        report::status(&self.core)
    }

    /// Where entries really listen, by name: of all ingress entries, then of all egress entries.
    pub fn addresses(&self) -> Vec<(String, SocketAddr)> {
        self.core.now().addresses()
    }

    /// How long requests are to have to finish when it ends: [`ProxyConfig::drain`].
    pub fn drain_time(&self) -> Duration {
        self.core.now().config.drain
    }

    /// Sends a backend no more requests, in all entries; those under way go on. `undo` gives it its weight back. `pool`
    /// says which is meant where several have a backend of this name.
    ///
    /// # Errors
    /// In words, when there is no such backend, or it is the last of its pool; nothing has changed then.
    pub fn drain(&self, backend: &str, pool: Option<&str>, undo: bool) -> Result<(), String> {
        steer::drain(&self.core, backend, pool, undo)
    }

    /// Reads a pool for a controller, or sets its weights.
    pub fn steer(&self, question: wire::Question) -> wire::Answer {
        steer::answer(&self.core, question)
    }

    /// Takes up another configuration. Entries that stay, by name and address, keep their listeners and connections, the
    /// next request on which goes by the new configuration; requests under way end as they began. Pools that stay, by name
    /// and policy, keep what they have learned, and their connections to backends that stay. What is drained, steered or
    /// known to be down stays so.
    ///
    /// # Errors
    /// [`ProxyError`]; the configuration in force stays so then.
    pub fn reload(&self, config: &ProxyConfig) -> Result<(), ProxyError> {
        let _one_at_a_time = self.core.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        check(config)?;
        let old = self.core.now();
        let fixed = [
            ("proxy.threads", old.config.threads != config.threads),
            ("proxy.socket", old.config.socket != config.socket),
            ("proxy.metrics", old.config.metrics != config.metrics),
        ];
        if let Some((key, _)) = fixed.into_iter().find(|(_, differs)| *differs) {
            return Err(ProxyError::Fixed { key });
        }
        let next = self.core.next(config)?;
        self.core.put(next);
        Ok(())
    }
}

/// Says so where the process may have fewer clients than its entries.
fn say_room(config: &ProxyConfig, most: usize) {
    let files = OpenFiles::of(config);
    let wanted = files.connections;
    if most < wanted {
        warn!(
            "the limit of open files leaves room for {most} connections of clients, fewer than the {wanted} of \
             limits.connections together; more are turned away. {} open files would do (`LimitNOFILE=`)",
            files.needed()
        );
    }
}

/// Makes everything once where an error can be returned: policies are not sent to threads, they are made there.
fn check(config: &ProxyConfig) -> Result<(), ProxyError> {
    let setting = |error: &dyn std::fmt::Display| ProxyError::Setting(error.to_string());
    for entry in &config.ingress {
        plimsoll_admission::Admission::new(&entry.admission).map_err(|error| setting(&error))?;
    }
    for pool in &config.pools {
        pool.policy.build(&pool.weights(), &pool.settings).map_err(|error| setting(&error))?;
        pool.retries.check().map_err(|error| setting(&error))?;
        if let Some(queue) = &pool.queue {
            queue.check().map_err(|error| setting(&error))?;
        }
    }
    Ok(())
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}
