//! How a service's balancer is read and programmed, whichever kind it is: a task reads it as often as its method
//! needs, carries out plans, and reports what came of both.

mod dedicated;
mod handle;
mod several;
mod shares;
mod subsets;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plimsoll_config::Cursor;
use plimsoll_model::{BackendId, SinkLimits};

pub(crate) use dedicated::start as start_dedicated;
pub use handle::{Loss, SinkHandle, SinkReport};
pub(crate) use handle::{Orders, RETRY, Refusal, SinkEnd, left_alone};
pub(crate) use several::{Named, start as start_several};

use crate::found::FoundPool;
use crate::haproxy::HaproxyTasks;
use crate::{SinkError, Source};

/// Identities of servers, and their names in the balancer.
pub type Servers = Vec<(BackendId, String)>;

/// Bounds of `sink.*.timeout`.
const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(3_600);
/// Default of `sink.*.timeout`.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);
/// Bounds of `sink.*.poll`: readings of what is in flight farther apart than 200 ms are too few for a mean response
/// time to within 5 % in 20 s.
const POLLS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_millis(200);

/// Reads `sink.*.timeout`.
pub(crate) fn timeout(cursor: &Cursor<'_>) -> Option<Duration> {
    cursor.duration(TIMEOUTS)
}

/// Reads `sink.*.poll`.
pub(crate) fn poll(cursor: &Cursor<'_>) -> Option<Poll> {
    cursor.duration(POLLS).map(Poll::Every)
}

/// A socket's path as it holds in any working directory.
pub(crate) fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// A path as the file system has it, as far as it exists: two spellings are one socket.
pub(crate) fn spelled_out(path: &Path) -> PathBuf {
    let in_its_directory = || {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(directory.join(path.file_name()?))
    };
    let whole = path.canonicalize().ok().or_else(in_its_directory);
    whole.unwrap_or_else(|| path.to_owned())
}

/// Time between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Poll {
    /// By what the balancer was last seen to do.
    #[default]
    ByReading,
    /// The same whatever it does.
    Every(Duration),
}

/// What all services of a process share to be steered.
#[derive(Clone, Debug)]
pub struct Steering {
    /// Reports count from this instant.
    pub origin: Instant,
    pub(crate) haproxys: HaproxyTasks,
}

impl Steering {
    /// Nothing is steered yet. Reports count from `origin`.
    pub fn new(origin: Instant) -> Self {
        Steering { origin, haproxys: HaproxyTasks::default() }
    }
}

/// One service to steer.
#[derive(Clone, Debug)]
pub struct Steered {
    /// Its name, for messages.
    pub service: String,
    /// Its servers.
    pub servers: Servers,
    /// No plan will come: nothing stands in its way.
    pub observe: bool,
    /// What tells of requests in the place of the balancers' own counters, and the addresses by which it may call the
    /// servers.
    pub source: Option<(Source, Vec<(String, BackendId)>)>,
}

/// Where the balancer of a service is, as the service's `sink` names it: what a kind of balancer must be able to
/// say, and to do.
pub trait SinkConfig: Sized {
    /// The key in `sink`, such as `haproxy`.
    const KEY: &'static str;
    /// What stands there, such as `{ socket: …, backend: … }`.
    const FORM: &'static str;
    /// What one of its pools is, such as "an HAProxy backend", and the key that names it.
    const POOL: (&'static str, &'static str);
    /// Whether its reports count requests that were lost: where they do not, checks alone show that a server died.
    const REPORTS_LOSSES: bool;
    /// Whether it reports requests at all: where it does not, a [`Source`] must.
    const REPORTS_REQUESTS: bool = true;

    /// Reads it.
    fn read(cursor: &Cursor<'_>) -> Option<Self>;

    /// What the balancer can take.
    fn limits(&self) -> SinkLimits;

    /// Checks the names of servers, without a look at the balancer.
    ///
    /// # Errors
    /// [`SinkError::InvalidName`] for names that the balancer could not have, or that come twice.
    fn check(&self, servers: &Servers) -> Result<(), SinkError>;

    /// The balancer: with the pool's name what [`crate::Sinks`] knows by that two configurations steer the same.
    fn place(&self) -> String;

    /// The same with its paths as the file system has them ([`spelled_out`]).
    fn spelled_out(&self) -> Self;

    /// The pool's name in the balancer.
    fn pool(&self) -> &str;

    /// The same for another pool of this balancer.
    fn with_pool(&self, name: &str) -> Self;

    /// Its required keys with their values, as a configuration would have them.
    fn written(&self) -> Vec<(&'static str, String)>;

    /// Asks the balancer which pools and servers it has.
    ///
    /// # Errors
    /// When it cannot be reached or understood.
    fn look(&self) -> impl Future<Output = Result<Vec<FoundPool>, SinkError>> + Send;

    /// Begins to read the balancer, and to carry out plans, on the runtime of the caller; ends when the handle is
    /// dropped.
    ///
    /// # Errors
    /// As [`SinkConfig::check`].
    fn start(&self, steering: &Steering, steered: Steered) -> Result<SinkHandle, SinkError>;
}
