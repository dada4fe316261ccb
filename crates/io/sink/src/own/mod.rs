//! Plimsoll's own balancers, layer 4 and the layer-7 proxy, through their daemons' sockets: what both say is in
//! [`wire`], what differs in [`Daemon`].
//!
//! A daemon is the one hand on its weights; it sets all of a plan at once or none.

mod l4;
mod link;
mod look;
mod proxy;
pub mod wire;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use plimsoll_model::{
    Applied, BackendId, BalancerReport, GREATEST_WEIGHT, Method, Nanos, Plan, ResponseTimes,
    ServerReport, SinkLimits, Traffic,
};

use crate::servers::Roster;
use crate::whole::{Unanswered, Whole, complete, program};
use crate::{ReportSource, Servers, SinkError, WeightSink};
pub use l4::L4SinkConfig;
use link::{Link, LinkError};
use look::look;
pub use proxy::ProxySinkConfig;
use wire::{Answer, Question, Refusal, Report, Server};

/// Layer 4 goes through a list of 8,192 places: 32 servers fit with the greatest weight each, and of more servers
/// weights are rounded. The proxy takes the same.
const WEIGHTS: RangeInclusive<u32> = 0..=GREATEST_WEIGHT;
/// A programming costs layer 4 a few milliseconds, the proxy microseconds; this only keeps a caller that runs wild from
/// keeping them busy.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
/// A new list is gone through from the next connection on; the turns of the proxy's `round_robin` go on.
const PICKS_PER_WEIGHT: u32 = 0;

/// Which balancer it is: names for people.
#[derive(Debug)]
struct Daemon {
    /// What is to run.
    command: &'static str,
    /// The key of its socket.
    key: &'static str,
    /// Who may write to it.
    permission: &'static str,
    /// It does not have this service.
    unknown: fn(socket: String, name: String, exist: Vec<String>) -> SinkError,
}

/// Where one is, and which of its services is steered.
#[derive(Clone, Debug)]
struct Place {
    socket: PathBuf,
    service: String,
    timeout: Duration,
}

/// Steers one service.
///
/// All calls may be dropped while they wait: the connection is then closed, and the next call opens a new
/// one.
pub struct OwnSink {
    daemon: &'static Daemon,
    service: String,
    roster: Roster,
    link: Link,
    origin: Instant,
}

impl OwnSink {
    /// Connects on first use. [`BalancerReport::at`] counts from now.
    ///
    /// # Errors
    /// [`SinkError::InvalidName`] for names that the balancer could not have, or that come twice.
    fn new(daemon: &'static Daemon, place: Place, servers: Servers) -> Result<Self, SinkError> {
        check_name("service name", &place.service)?;
        Ok(OwnSink {
            daemon,
            roster: Roster::new(servers, check_name)?,
            service: place.service,
            link: Link::new(daemon, place.socket, place.timeout),
            origin: Instant::now(),
        })
    }

    /// Counts [`BalancerReport::at`] from this instant.
    #[must_use]
    pub fn with_origin(mut self, origin: Instant) -> Self {
        self.origin = origin;
        self
    }

    /// What was done, or the error for what was refused.
    fn done(&self, answer: Answer, epoch: u64) -> Result<Report, SinkError> {
        let (reason, message, exist) = match answer {
            Answer::Done(report) => return Ok(report),
            Answer::Refused { reason, message, exist } => (reason, message, exist),
        };
        let (vip, socket) = (self.service.clone(), self.link.path().display().to_string());
        Err(match reason {
            Refusal::UnknownVip => (self.daemon.unknown)(socket, vip, exist),
            // Read a moment ago, a reload has taken it away since.
            Refusal::UnknownServer => SinkError::InvalidPlan { epoch, reason: message },
            Refusal::NoLiveWeights => SinkError::PolicyWithoutWeights { vip, reason: message },
            Refusal::InvalidPlan => SinkError::InvalidPlan { epoch, reason: message },
            Refusal::NotUnderstood => SinkError::Protocol { socket, reason: message },
            Refusal::Failed => SinkError::Failed { vip, reason: message },
        })
    }
}

impl Whole for OwnSink {
    type State = Report;
    const WEIGHTS: RangeInclusive<u32> = WEIGHTS;
    const WHOSE: &'static str = "the balancer's";

    fn service(&self) -> &str {
        &self.service
    }

    fn roster(&self) -> &Roster {
        &self.roster
    }

    fn held(report: &Report, server: &str) -> Option<u32> {
        find(report, server).map(|server| u32::from(server.weight))
    }

    fn in_force(report: &Report) -> Option<u64> {
        report.steered.then_some(report.epoch)
    }

    async fn ask(&mut self) -> Result<Report, SinkError> {
        let question = Question::Read { vip: self.service.clone() };
        let answer = self.link.ask(&question).await.map_err(|error| self.link.error(error))?;
        let report = self.done(answer, 0)?;
        complete(self, report, |report| report.servers.into_iter().map(|one| one.name).collect())
    }

    async fn send(
        &mut self,
        epoch: u64,
        weights: &[(String, u32)],
    ) -> Result<(Report, u32), Unanswered> {
        let question = Question::Apply {
            vip: self.service.clone(),
            epoch,
            who: format!("plimsoll run, process {}", std::process::id()),
            weights: weights.iter().map(|(name, weight)| (name.clone(), *weight as u16)).collect(),
        };
        match self.link.ask(&question).await {
            Ok(answer) => {
                let report = self.done(answer, epoch).map_err(Unanswered::Unsent)?;
                let changed = report.changed;
                Ok((report, changed))
            }
            Err(error @ LinkError::Connect(_)) => Err(Unanswered::Unsent(self.link.error(error))),
            Err(error) => Err(Unanswered::Lost(self.link.error(error))),
        }
    }
}

fn limits() -> SinkLimits {
    SinkLimits { range: WEIGHTS, min_interval: MIN_INTERVAL, picks_per_weight: PICKS_PER_WEIGHT }
}

impl WeightSink for OwnSink {
    fn limits(&self) -> SinkLimits {
        limits()
    }

    fn set_servers(&mut self, servers: Servers) -> Result<(), SinkError> {
        self.roster.set(servers)
    }

    async fn apply(&mut self, plan: &Plan) -> Result<Applied, SinkError> {
        program(self, plan).await
    }
}

impl ReportSource for OwnSink {
    async fn read(&mut self) -> Result<BalancerReport, SinkError> {
        let report = self.ask().await?;
        let at = Nanos::ZERO + self.origin.elapsed();
        let found = |_, id, name: &str| find(&report, name).map(|server| server_report(id, server));
        let servers = self.roster.report(found);
        let method = Method { name: report.policy, kind: report.kind };
        Ok(BalancerReport {
            at,
            method,
            generation: report.generation,
            traffic: Traffic::Counted,
            servers,
        })
    }
}

fn find<'a>(report: &'a Report, name: &str) -> Option<&'a Server> {
    report.servers.iter().find(|server| server.name == name)
}

/// Where a balancer does not tell an answer from an error, failures are the probes' to find.
fn server_report(backend: BackendId, server: &Server) -> ServerReport {
    ServerReport {
        backend,
        weight: u32::from(server.weight),
        status: server.status,
        checked: false,
        in_flight: u32::try_from(server.open_connections).unwrap_or(u32::MAX),
        queued: 0,
        started_total: server.new_connections,
        errors_total: server.errors.unwrap_or(0),
        answered_total: server.answered,
        response_times: server
            .measured
            .zip(server.latency_us)
            .map(|(count, sum_us)| ResponseTimes { count, sum_us }),
    }
}

/// As the configuration of either takes them.
fn check_name(what: &'static str, name: &str) -> Result<(), SinkError> {
    let reason = match name {
        "" => "it is empty",
        long if long.len() > 63 => "it has more than 63 bytes",
        odd if odd.contains(char::is_control) => "it has control characters",
        _ => return Ok(()),
    };
    Err(SinkError::InvalidName { name: name.to_owned(), what, reason: reason.to_owned() })
}
