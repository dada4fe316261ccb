//! The proxy at work: its listeners, its threads, its end.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use thiserror::Error;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::MissedTickBehavior;
use tracing::warn;

use crate::balance::Balancer;
use crate::config::ProxyConfig;
use crate::egress::{Egress, Pool};
use crate::ingress::Ingress;
use crate::serve::{Stop, listen};
use crate::shared::Shared;
use crate::status::Status;

/// Connections that the kernel holds for a listener until they are accepted; it cuts this to `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;
/// How often each thread takes what others have told, and closes connections that have been idle for too long. While
/// it serves it does the former at every request.
const UPKEEP_EVERY: Duration = Duration::from_secs(1);

/// Why the proxy does not start.
#[derive(Debug, Error)]
pub enum ProxyError {
    /// An address that cannot be listened on.
    #[error("{entry}: cannot listen on {address}: {error}")]
    Listen {
        /// The entry's name.
        entry: String,
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// A thread or its runtime was refused by the system.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// A setting that only a policy or an admission knows to be wrong.
    #[error("{0}")]
    Setting(String),
}

/// A running proxy. Dropped, it ends at once; [`Proxy::stop`] lets requests finish.
pub struct Proxy {
    shared: Arc<Shared>,
    stop: watch::Sender<Option<Duration>>,
    threads: Vec<JoinHandle<()>>,
}

impl Proxy {
    /// Listens and serves, from when this returns.
    ///
    /// # Errors
    /// [`ProxyError`]; nothing is listened on then.
    pub fn start(config: &ProxyConfig) -> Result<Self, ProxyError> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = config.threads.unwrap_or(cores);
        let mut seats: Vec<Seat> = (0..threads).map(Seat::new).collect();
        let mut addresses = Vec::new();
        // An ingress has one owner of its admission: one thread.
        for (index, entry) in config.ingress.iter().enumerate() {
            let listener = bind(&entry.name, entry.listen)?;
            addresses.push(address(&entry.name, &listener, entry.listen)?);
            seats[index % threads].ingress.push((index, listener));
        }
        for (index, entry) in config.egress.iter().enumerate() {
            let mut at = entry.listen;
            for seat in &mut seats {
                let listener = bind(&entry.name, at)?;
                // All on the port that the first was given, where any would do.
                at = address(&entry.name, &listener, at)?;
                seat.egress.push((index, listener));
            }
            addresses.push(at);
        }
        let shared = Arc::new(Shared::new(config.clone(), threads, &addresses));
        let (stop, stopping) = watch::channel(None);
        let mut proxy = Proxy { shared, stop, threads: Vec::new() };
        for seat in seats {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(ProxyError::Thread)?;
            seat.check(&proxy.shared)?;
            let (shared, stopping) = (proxy.shared.clone(), stopping.clone());
            let name = format!("proxy-{}", seat.thread);
            let thread = thread::Builder::new()
                .name(name)
                .spawn(move || seat.work(&runtime, &shared, stopping))
                .map_err(ProxyError::Thread)?;
            proxy.threads.push(thread);
        }
        Ok(proxy)
    }

    /// Where entries really listen, by name: of all ingress entries, then of all egress entries.
    pub fn addresses(&self) -> Vec<(String, SocketAddr)> {
        let Shared { config, ingress, egress, .. } = &*self.shared;
        let of_ingress = config
            .ingress
            .iter()
            .zip(ingress)
            .map(|(entry, shared)| (entry.name.clone(), shared.listen));
        let of_egress = config
            .egress
            .iter()
            .zip(egress)
            .map(|(entry, shared)| (entry.name.clone(), shared.listen));
        of_ingress.chain(of_egress).collect()
    }

    /// What it says of itself, now.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// For others to ask and steer it, for as long as they like.
    pub fn handle(&self) -> Handle {
        Handle { shared: self.shared.clone() }
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
    }
}

/// Asks and steers a running proxy, from any thread. It may outlive it.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// What the proxy says of itself, now.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Sends a backend no more requests, in all entries; those under way go on. `undo` gives it its configured weight
    /// back. `pool` says which is meant where several have a backend of this name.
    ///
    /// # Errors
    /// In words, when there is no such backend, or it is the last of its pool; nothing has changed then.
    pub fn drain(&self, backend: &str, pool: Option<&str>, undo: bool) -> Result<(), String> {
        self.shared.drain(backend, pool, undo)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// One thread, and what it listens on.
struct Seat {
    thread: usize,
    ingress: Vec<(usize, TcpListener)>,
    egress: Vec<(usize, TcpListener)>,
}

impl Seat {
    fn new(thread: usize) -> Self {
        Seat { thread, ingress: Vec::new(), egress: Vec::new() }
    }

    /// Makes everything once where an error can be returned: policies are not sent to threads, they are made there.
    fn check(&self, shared: &Shared) -> Result<(), ProxyError> {
        let setting = |error: &dyn std::fmt::Display| ProxyError::Setting(error.to_string());
        for (index, _) in &self.ingress {
            let options = &shared.config.ingress[*index].admission;
            plimsoll_admission::Admission::new(options).map_err(|error| setting(&error))?;
        }
        for pool in &shared.config.pools {
            pool.policy.build(&pool.weights(), &pool.settings).map_err(|error| setting(&error))?;
            pool.retries.check().map_err(|error| setting(&error))?;
        }
        Ok(())
    }

    fn work(self, runtime: &Runtime, shared: &Shared, stopping: watch::Receiver<Option<Duration>>) {
        let tasks = LocalSet::new();
        tasks.block_on(runtime, async move {
            if let Err(error) = self.serve(shared, stopping).await {
                warn!("a thread of the proxy has ended: {error}");
            }
        });
    }

    async fn serve(
        self,
        shared: &Shared,
        mut stopping: watch::Receiver<Option<Duration>>,
    ) -> Result<(), ProxyError> {
        let stop = Rc::new(Stop::default());
        let (mut ingress, mut egress, mut doors) = (Vec::new(), Vec::new(), Vec::new());
        let wake = shared.wake[self.thread].clone();
        for (index, listener) in self.ingress {
            let of = &shared.ingress[index];
            let (clients, counts) = (of.clients.clone(), of.counts.clone());
            let entry = &shared.config.ingress[index];
            let entry = Ingress::new(entry, shared.clock, clients, counts)
                .map_err(|error| ProxyError::Setting(error.to_string()))?;
            let listener =
                tokio::net::TcpListener::from_std(listener).map_err(ProxyError::Thread)?;
            let door = listen(listener, entry.clone(), of.open.clone(), stop.clone());
            doors.push(tokio::task::spawn_local(door));
            ingress.push(entry);
        }
        for (index, listener) in self.egress {
            let entry = made(shared, index, self.thread)?;
            let listener =
                tokio::net::TcpListener::from_std(listener).map_err(ProxyError::Thread)?;
            let open = shared.egress[index].open.clone();
            let door = listen(listener, entry.clone(), open, stop.clone());
            doors.push(tokio::task::spawn_local(door));
            egress.push(entry);
        }
        let mut ticks = tokio::time::interval(UPKEEP_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let drain = loop {
            tokio::select! {
                drain = stopping.wait_for(Option::is_some) => {
                    break drain.ok().and_then(|drain| *drain).unwrap_or_default();
                }
                _ = ticks.tick() => {}
                () = wake.notified() => {}
            }
            ingress.iter().for_each(|entry| entry.upkeep());
            egress.iter().for_each(|entry| entry.upkeep());
        };
        stop.stop();
        let all_ended = async {
            for door in doors {
                // One that panicked accepts no more, either.
                let _ = door.await;
            }
            stop.all_closed().await;
        };
        if tokio::time::timeout(drain, all_ended).await.is_err() && !drain.is_zero() {
            warn!("some requests were not finished within {drain:?}");
        }
        Ok(())
    }
}

fn made(shared: &Shared, index: usize, thread: usize) -> Result<Rc<Egress>, ProxyError> {
    let (entry, of) = (&shared.config.egress[index], &shared.egress[index]);
    let pools = shared.config.pools.iter().zip(&of.pools).map(|(pool, of)| {
        let Some(of) = of else { return Ok(None) };
        let (logs, tally) = (of.logs.clone(), of.tallies[thread].clone());
        let weights = of.weights.clone();
        let balancer = Balancer::new(pool, (logs, thread), shared.clock, tally, weights)
            .map_err(|error| ProxyError::Setting(error.to_string()))?;
        Ok(Some(Pool::new(balancer, entry.timeouts, entry.limits)))
    });
    let pools: Vec<Option<Pool>> = pools.collect::<Result<_, ProxyError>>()?;
    Ok(Egress::new(entry, pools, of.clients[thread].clone()))
}

/// A listener that shares its port with those of other threads: the kernel gives each a part of the connections.
fn bind(entry: &str, address: SocketAddr) -> Result<TcpListener, ProxyError> {
    let bound = || {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        net::bind(&socket, &address)?;
        net::listen(&socket, BACKLOG)?;
        Ok(TcpListener::from(socket))
    };
    bound().map_err(|error: rustix::io::Errno| {
        let (entry, error) = (entry.to_owned(), error.into());
        ProxyError::Listen { entry, address, error }
    })
}

fn address(
    entry: &str,
    listener: &TcpListener,
    asked: SocketAddr,
) -> Result<SocketAddr, ProxyError> {
    listener.local_addr().map_err(|error| ProxyError::Listen {
        entry: entry.to_owned(),
        address: asked,
        error,
    })
}
