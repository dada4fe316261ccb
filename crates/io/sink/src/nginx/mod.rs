//! NGINX by way of a Lua balancer (`plimsoll.lua`, which `plimsoll nginx snippet` prints): weights and counters live in
//! a dictionary that its workers share, and are read and set over a local socket. No reload, no restart.

mod config;
mod link;
mod reload;
mod snippet;
mod text;
mod upstream_file;

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use hyper::{Method as Verb, StatusCode};
use plimsoll_model::{
    Applied, BackendId, BalancerReport, Method, MethodKind, Nanos, Plan, ServerReport,
    ServerStatus, SinkLimits, Traffic,
};

pub use config::NginxConfig;
pub use reload::{NginxReloadConfig, NginxReloadSink};
pub use snippet::{NginxPool, NginxServer, nginx_snippet};

use crate::found::{FoundPool, FoundServer, LeftAlone};
use crate::servers::Roster;
use crate::whole::{Unanswered, Whole, complete, program};
use crate::{ReportSource, Servers, SinkError, WeightSink};
use link::{Link, LinkError};
use text::{Answer, Pool, Server};

/// As the Lua balancer takes them.
const WEIGHTS: RangeInclusive<u32> = 0..=1_000;
/// A change costs NGINX less than a request; this only keeps a caller that runs wild from keeping it busy.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
/// Turns go on when weights change: they act from the next pick on.
const PICKS_PER_WEIGHT: u32 = 0;

/// Steers one upstream of NGINX.
///
/// All calls may be dropped while they wait: the connection is then closed, and the next call opens a new one.
pub struct NginxSink {
    upstream: String,
    roster: Roster,
    link: Link,
    origin: Instant,
}

impl NginxSink {
    /// A sink that steers `servers`, given with their names in the Lua balancer. Connects on first use.
    /// [`BalancerReport::at`] counts from now; see [`NginxSink::with_origin`].
    ///
    /// # Errors
    /// [`SinkError::InvalidName`] for names that the balancer could not have, or that come twice.
    pub fn new(config: NginxConfig, servers: Servers) -> Result<Self, SinkError> {
        check_name("upstream's name", &config.upstream)?;
        Ok(NginxSink {
            roster: Roster::new(servers, check_name)?,
            upstream: config.upstream,
            link: Link::new(config.socket, config.timeout),
            origin: Instant::now(),
        })
    }

    /// Counts [`BalancerReport::at`] from this instant.
    #[must_use]
    pub fn with_origin(mut self, origin: Instant) -> Self {
        self.origin = origin;
        self
    }

    /// What was answered, or the error for what was refused.
    fn done(&self, answer: (StatusCode, String), epoch: u64) -> Result<(Answer, Pool), SinkError> {
        let (status, text) = answer;
        let refusal = text.strip_prefix("refused ").map(str::trim_end);
        let (upstream, socket) = (self.upstream.clone(), self.link.place());
        if let Some((reason, rest)) = refusal.and_then(|refusal| refusal.split_once(' ')) {
            let message = rest.to_owned();
            return Err(match reason {
                "unknown_pool" => {
                    let exist = rest.split(' ').map(str::to_owned).collect();
                    SinkError::UnknownUpstream { socket, upstream, exist }
                }
                // Read a moment ago, a reload has taken it away since.
                "unknown_server" => {
                    SinkError::InvalidPlan { epoch, reason: format!("NGINX has no server {rest}") }
                }
                "invalid_plan" => SinkError::InvalidPlan { epoch, reason: message },
                "failed" => SinkError::Failed { vip: upstream, reason: message },
                _ => SinkError::Protocol { socket, reason: message },
            });
        }
        if status != StatusCode::OK {
            let reason = format!("status {status}: is this the socket of the Lua balancer?");
            return Err(SinkError::Protocol { socket, reason });
        }
        let mut answer = text::read(&text)
            .map_err(|reason| SinkError::Protocol { socket: socket.clone(), reason })?;
        let at = answer.pools.iter().position(|pool| pool.name == upstream);
        let pool = at.map(|at| answer.pools.swap_remove(at));
        let reason = "the answer is about another upstream".to_owned();
        Ok((answer, pool.ok_or(SinkError::Protocol { socket, reason })?))
    }
}

impl Whole for NginxSink {
    /// The generation, and the pool.
    type State = (u64, Pool);
    const WEIGHTS: RangeInclusive<u32> = WEIGHTS;
    const WHOSE: &'static str = "the Lua balancer's";

    fn service(&self) -> &str {
        &self.upstream
    }

    fn roster(&self) -> &Roster {
        &self.roster
    }

    fn held((_, pool): &Self::State, server: &str) -> Option<u32> {
        find(pool, server).map(|server| server.weight)
    }

    fn in_force((_, pool): &Self::State) -> Option<u64> {
        pool.epoch
    }

    async fn ask(&mut self) -> Result<Self::State, SinkError> {
        let path = format!("/{}", self.upstream);
        let asked = self.link.ask(Verb::GET, &path, "").await;
        let answer = asked.map_err(|error| self.link.error(error))?;
        let (answer, pool) = self.done(answer, 0)?;
        let names = |(_, pool): Self::State| pool.servers.into_iter().map(|one| one.name).collect();
        complete(self, (answer.generation, pool), names)
    }

    async fn send(
        &mut self,
        epoch: u64,
        weights: &[(String, u32)],
    ) -> Result<(Self::State, u32), Unanswered> {
        let lines: String =
            weights.iter().map(|(name, weight)| format!("{name} {weight}\n")).collect();
        let path = format!("/{}", self.upstream);
        match self.link.ask(Verb::PUT, &path, &format!("epoch {epoch}\n{lines}")).await {
            Ok(answer) => {
                let (answer, pool) = self.done(answer, epoch).map_err(Unanswered::Unsent)?;
                Ok(((answer.generation, pool), answer.changed))
            }
            Err(error @ LinkError::Connect(_)) => Err(Unanswered::Unsent(self.link.error(error))),
            Err(error) => Err(Unanswered::Lost(self.link.error(error))),
        }
    }
}

fn limits() -> SinkLimits {
    SinkLimits { range: WEIGHTS, min_interval: MIN_INTERVAL, picks_per_weight: PICKS_PER_WEIGHT }
}

impl WeightSink for NginxSink {
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

impl ReportSource for NginxSink {
    async fn read(&mut self) -> Result<BalancerReport, SinkError> {
        let (generation, pool) = self.ask().await?;
        let at = Nanos::ZERO + self.origin.elapsed();
        let found = |_, id, name: &str| find(&pool, name).map(|server| server_report(id, server));
        let servers = self.roster.report(found);
        Ok(BalancerReport {
            at,
            method: method(&pool.method),
            generation,
            traffic: Traffic::Counted,
            servers,
        })
    }
}

/// Which pools and servers NGINX has.
async fn look(config: &NginxConfig) -> Result<Vec<FoundPool>, SinkError> {
    let mut link = Link::new(config.socket.clone(), config.timeout);
    let asked = link.ask(Verb::GET, "/", "").await;
    let (status, text) = asked.map_err(|error| link.error(error))?;
    let read = match status {
        StatusCode::OK => text::read(&text),
        status => Err(format!("status {status}: is this the socket of the Lua balancer?")),
    };
    let answer = read.map_err(|reason| SinkError::Protocol { socket: link.place(), reason })?;
    let server = |server: Server| FoundServer {
        place: match (server.address, server.configured) {
            (_, 0) => Err(LeftAlone::WeightZero),
            (address, _) => address.ok_or(LeftAlone::NoAddress),
        },
        name: server.name,
    };
    let pool = |pool: Pool| FoundPool {
        method: method(&pool.method),
        name: pool.name,
        servers: pool.servers.into_iter().map(server).collect(),
        conflict: None,
        unknown: None,
    };
    Ok(answer.pools.into_iter().map(pool).collect())
}

fn method(name: &str) -> Method {
    let kind = match name {
        "roundrobin" => MethodKind::Split,
        "leastconn" => MethodKind::InFlight,
        // What its weights mean is not known.
        _ => MethodKind::NoLiveWeights,
    };
    Method { name: name.to_owned(), kind }
}

fn find<'a>(pool: &'a Pool, name: &str) -> Option<&'a Server> {
    pool.servers.iter().find(|server| server.name == name)
}

/// NGINX reports no state of a server: which is down shows by what fails.
fn server_report(backend: BackendId, server: &Server) -> ServerReport {
    ServerReport {
        backend,
        weight: server.weight,
        status: ServerStatus::Up,
        checked: false,
        // Workers count one after the other: a difference may be less than nothing for a moment.
        in_flight: u32::try_from(server.in_flight.max(0)).unwrap_or(u32::MAX),
        queued: 0,
        started_total: server.started,
        errors_total: server.failed.min(server.started),
        answered_total: Some(server.answered),
        response_times: None,
    }
}

/// Names stand in Lua's strings, in lines of words and in paths.
fn check_name(what: &'static str, name: &str) -> Result<(), SinkError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    let reason = match name.chars().find(|c| !allowed(*c)) {
        _ if name.is_empty() => "it is empty".to_owned(),
        _ if name.len() > 255 => "it has more than 255 bytes".to_owned(),
        None => return Ok(()),
        Some(c) => format!("{c:?} is not allowed; names hold letters, digits and `-` `_` `.` `:`"),
    };
    Err(SinkError::InvalidName { name: name.to_owned(), what, reason })
}
