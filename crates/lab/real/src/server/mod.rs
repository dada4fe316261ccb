//! The lab's own server: real CPU work over keep-alive HTTP/1.1.
//!
//! `GET /work?work_us=N` burns N microseconds of its thread's CPU; `GET /health` waits in the same queue
//! for the same threads. How it behaves is changed on standard input, at once.

mod burn;
mod connection;
mod engine;
mod mode;
mod request;
mod workers;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::ValueEnum;

pub use mode::{Behaviour, Mode};

/// What does the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Model {
    /// Several threads, which share the CPU among the requests under way.
    #[default]
    Threads,
    /// One thread that does everything, one request after the other.
    EventLoop,
}

impl Model {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Model::Threads => "threads",
            Model::EventLoop => "event-loop",
        }
    }
}

/// How the server works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What does the work.
    pub model: Model,
    /// How many of them, in the thread model.
    pub threads: usize,
    /// CPU time of a request that does not say how much it wants.
    pub work: Duration,
    /// CPU time of a health check.
    pub health: Duration,
    /// How it behaves.
    pub behaviour: Behaviour,
}

/// Serves until it is killed.
///
/// # Errors
/// When the address cannot be bound, or the system refuses a thread or an epoll.
pub fn serve(settings: &Settings) -> io::Result<()> {
    engine::Engine::new(settings)?.run()
}
