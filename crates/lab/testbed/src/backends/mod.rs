//! Emulated backends: real HTTP, cores that exist only on a schedule.

mod admin;
mod backend;
mod change;
mod conn;
mod engine;
mod listener;
mod mode;
mod queue;
mod reply;
mod service;
mod spec;
mod spec_file;

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use mio::Waker;
use serde::Serialize;

pub use backend::BackendStats;
pub use change::Change;
pub use mode::Mode;
pub use queue::Discipline;
pub use service::{Service, ServiceKind};
pub use spec::{BackendSpec, SpecProblem, TestbedSpec};
pub use spec_file::SpecFileError;

use crate::clock::Clock;
use backend::Backend;
use engine::{Command, Engine, admin_token, listener_token};
use listener::Listener;

/// Why a testbed did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The specification breaks rules.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Spec(Vec<SpecProblem>),
    /// A backend cannot listen.
    #[error("backend {name}: cannot listen on {address}: {source}")]
    Listen {
        /// Its name.
        name: String,
        /// Where it should have listened.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The admin API cannot listen.
    #[error("admin API: cannot listen on {address}: {source}")]
    Admin {
        /// Where it should have listened.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The system refuses a thread, an epoll or a timer.
    #[error("cannot start the testbed: {0}")]
    System(io::Error),
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// No backend has this name.
    #[error("no backend is called `{0}`")]
    Unknown(String),
    /// The change breaks these rules.
    #[error("{}", .0.join("; "))]
    Invalid(Vec<String>),
    /// The backend cannot listen again.
    #[error("backend {0} cannot listen again: {1}")]
    Listen(String, String),
    /// The testbed's thread has ended.
    #[error("the testbed has stopped")]
    Stopped,
}

/// How much later than on the ideal schedule replies were sent, microseconds. It delays replies; it
/// takes no capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lateness {
    /// How many replies this is over.
    pub replies: u64,
    /// Median.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// Greatest.
    pub max_us: u64,
}

/// What a testbed has done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TestbedStats {
    /// Since the start.
    pub uptime_seconds: f64,
    /// How precise the emulation is on this machine.
    pub lateness: Lateness,
    /// In order of the specification.
    pub backends: Vec<BackendStats>,
}

/// A running testbed; it ends when dropped.
pub struct Testbed {
    commands: Sender<Command>,
    waker: Waker,
    thread: Option<JoinHandle<io::Result<()>>>,
    addresses: Vec<(String, SocketAddr)>,
    admin: Option<SocketAddr>,
}

impl Testbed {
    /// Binds every address and serves from a thread of its own. When it returns, clients can connect.
    ///
    /// # Errors
    /// When the specification is not valid or the system refuses a socket; nothing listens then.
    pub fn start(spec: TestbedSpec) -> Result<Self, StartError> {
        let problems = spec.problems();
        if !problems.is_empty() {
            return Err(StartError::Spec(problems));
        }
        let clock = Clock::start();
        let now = clock.now();
        let admin_at = spec.admin;
        let refused_admin = |source, address| StartError::Admin { address, source };
        let admin = match admin_at {
            Some(address) => Some(
                Listener::bind(address, admin_token()).map_err(|e| refused_admin(e, address))?,
            ),
            None => None,
        };
        let mut listeners = Vec::with_capacity(spec.backends.len());
        for (i, backend) in spec.backends.iter().enumerate() {
            let bound = Listener::bind(backend.listen, listener_token(i));
            listeners.push(bound.map_err(|source| StartError::Listen {
                name: backend.name.clone(),
                address: backend.listen,
                source,
            })?);
        }
        let addresses: Vec<(String, SocketAddr)> = spec
            .backends
            .iter()
            .zip(&listeners)
            .map(|(b, l)| (b.name.clone(), l.address))
            .collect();
        let backends: Vec<Backend> = spec
            .backends
            .into_iter()
            .zip(&listeners)
            .map(|(backend, listener)| Backend::new(backend, listener.address, now))
            .collect();
        let admin_address = admin.as_ref().map(|l| l.address);
        let (commands, inbox) = channel();
        let (engine, waker) =
            Engine::new(backends, listeners, admin, inbox, clock).map_err(|(which, source)| {
                match which {
                    Some(i) => {
                        let (name, address) = addresses[i].clone();
                        StartError::Listen { name, address, source }
                    }
                    None => StartError::System(source),
                }
            })?;
        let thread = std::thread::Builder::new()
            .name("testbed".into())
            .spawn(move || engine.run())
            .map_err(StartError::System)?;
        Ok(Testbed { commands, waker, thread: Some(thread), addresses, admin: admin_address })
    }

    /// Where a backend listens, with the port that the system chose.
    pub fn address(&self, name: &str) -> Option<SocketAddr> {
        self.addresses.iter().find(|(n, _)| n == name).map(|(_, address)| *address)
    }

    /// Names and addresses in order of the specification.
    pub fn addresses(&self) -> &[(String, SocketAddr)] {
        &self.addresses
    }

    /// Where the admin API listens.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Changes a backend. When it returns, the change holds. Waits for the testbed's thread, for less
    /// than a millisecond on an idle machine.
    ///
    /// # Errors
    /// When there is no such backend, the change is not valid, or its port was lost.
    pub fn set(&self, name: &str, change: Change) -> Result<(), SetError> {
        let (answer, result) = channel();
        self.send(Command::Set(name.into(), change, answer)).map_err(|()| SetError::Stopped)?;
        result.recv().unwrap_or(Err(SetError::Stopped))
    }

    /// What it has done; `None` when its thread has ended.
    pub fn stats(&self) -> Option<TestbedStats> {
        let (answer, result) = channel();
        self.send(Command::Stats(answer)).ok()?;
        result.recv().ok()
    }

    /// Cuts every connection and frees the ports.
    ///
    /// # Errors
    /// When the testbed had already died of an error of the system.
    pub fn shutdown(mut self) -> io::Result<()> {
        self.stop()
    }

    fn send(&self, command: Command) -> Result<(), ()> {
        self.commands.send(command).map_err(|_| ())?;
        self.waker.wake().map_err(|_| ())
    }

    fn stop(&mut self) -> io::Result<()> {
        // A thread that has ended already cannot be signalled; joining says how it ended.
        let _ = self.send(Command::Stop);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the testbed's thread panicked")),
            None => Ok(()),
        }
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // Whoever wants to know calls shutdown.
        let _ = self.stop();
    }
}
