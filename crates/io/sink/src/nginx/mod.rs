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
    ServerStatus, SinkLimits,
};

pub use config::NginxConfig;
pub use reload::{NginxReloadConfig, NginxReloadSink};
pub use snippet::{NginxPool, NginxServer, nginx_snippet};

use crate::found::{FoundPool, FoundServer, LeftAlone};
use crate::servers::{checked, planned};
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
    /// In order of [`BackendId`].
    servers: Vec<(BackendId, String)>,
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
            servers: checked(servers, check_name)?,
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

    async fn ask(&mut self) -> Result<(u64, Pool), SinkError> {
        let path = format!("/{}", self.upstream);
        let asked = self.link.ask(Verb::GET, &path, "").await;
        let answer = asked.map_err(|error| self.link.error(error))?;
        let (answer, pool) = self.done(answer, 0)?;
        let missing: Vec<String> = self
            .servers
            .iter()
            .filter(|(_, name)| find(&pool, name).is_none())
            .map(|(_, name)| name.clone())
            .collect();
        if missing.is_empty() {
            return Ok((answer.generation, pool));
        }
        let exist = pool.servers.into_iter().map(|server| server.name).collect();
        Err(SinkError::UnknownServers { backend: self.upstream.clone(), missing, exist })
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

    async fn apply_plan(&mut self, plan: &Plan) -> Result<Applied, SinkError> {
        let wanted = planned(plan, &self.servers, &WEIGHTS, "the Lua balancer's")?;
        let (_, before) = self.ask().await?;
        let held = |pool: &Pool, name: &str| find(pool, name).map(|server| server.weight);
        let differ = wanted.iter().any(|(name, weight)| held(&before, name) != Some(*weight));
        // Weights that happen to be as configured are ours only once they were set.
        if !differ && before.epoch.is_some() {
            return Ok(self.applied(plan.epoch, &before, 0));
        }
        let lines: String =
            wanted.iter().map(|(name, weight)| format!("{name} {weight}\n")).collect();
        let body = format!("epoch {}\n{lines}", plan.epoch);
        let path = format!("/{}", self.upstream);
        match self.link.ask(Verb::PUT, &path, &body).await {
            Ok(answer) => {
                let (answer, pool) = self.done(answer, plan.epoch)?;
                Ok(self.applied(plan.epoch, &pool, answer.changed))
            }
            Err(error @ LinkError::Connect(_)) => Err(self.link.error(error)),
            Err(error) => {
                let error = self.link.error(error);
                self.interrupted(error, &before, plan.epoch, &wanted).await
            }
        }
    }

    /// A plan was sent and its answer was lost: looks what NGINX holds. It does all of a plan or nothing, so that there
    /// is nothing to put back.
    async fn interrupted(
        &mut self,
        error: SinkError,
        before: &Pool,
        epoch: u64,
        wanted: &[(String, u32)],
    ) -> Result<Applied, SinkError> {
        let held = |pool: &Pool, name: &str| find(pool, name).map(|server| server.weight);
        let mut unrestored = Vec::new();
        match self.ask().await {
            Ok((_, now)) => {
                let all = wanted.iter().all(|(name, weight)| held(&now, name) == Some(*weight));
                if all && now.epoch == Some(epoch) {
                    return Ok(self.applied(epoch, &now, 0));
                }
            }
            Err(_) => {
                for (name, weight) in wanted {
                    let was = held(before, name).filter(|was| was != weight);
                    unrestored.extend(was.map(|was| (name.clone(), was)));
                }
            }
        }
        let (backend, source) = (self.upstream.clone(), Box::new(error));
        Err(SinkError::Interrupted { backend, source, restored: Vec::new(), unrestored })
    }

    fn applied(&self, epoch: u64, pool: &Pool, commands: u32) -> Applied {
        let weights =
            self.servers.iter().filter_map(|(id, name)| Some((*id, find(pool, name)?.weight)));
        Applied { epoch, weights: weights.collect(), commands }
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
        self.servers = checked(servers, check_name)?;
        Ok(())
    }

    async fn apply(&mut self, plan: &Plan) -> Result<Applied, SinkError> {
        self.apply_plan(plan).await
    }
}

impl ReportSource for NginxSink {
    async fn read(&mut self) -> Result<BalancerReport, SinkError> {
        let (generation, pool) = self.ask().await?;
        let at = Nanos::ZERO + self.origin.elapsed();
        let servers = self
            .servers
            .iter()
            .filter_map(|(id, name)| find(&pool, name).map(|server| server_report(*id, server)))
            .collect();
        Ok(BalancerReport { at, method: method(&pool.method), generation, servers })
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

/// NGINX tells no state of a server: who is down shows by what fails.
fn server_report(backend: BackendId, server: &Server) -> ServerReport {
    ServerReport {
        backend,
        weight: server.weight,
        status: ServerStatus::Up,
        // Workers count one after the other: a difference may be less than nothing for a moment.
        in_flight: u32::try_from(server.in_flight.max(0)).unwrap_or(u32::MAX),
        queued: 0,
        started_total: server.started,
        errors_total: server.failed.min(server.started),
        answered_total: Some(server.answered),
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
