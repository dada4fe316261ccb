//! The balancer that a service has, whichever kind it is.

use std::time::{Duration, Instant};

use plimsoll_model::{Applied, BackendId, BalancerReport, Plan, SinkLimits};
use plimsoll_sink::{
    AccessLevel, AgentState, HaproxyConfig, HaproxySink, Inspection, L4Sink, L4SinkConfig,
    SinkError, WeightSink,
};
use tokio::time::timeout;

/// The longest look for what stands in the way.
const LOOK: Duration = Duration::from_secs(2);

/// Where a balancer is.
#[derive(Clone, Debug)]
pub enum Place {
    /// An HAProxy.
    Haproxy(HaproxyConfig),
    /// Plimsoll's own layer-4 balancer.
    L4(L4SinkConfig),
}

/// A balancer that is steered.
pub enum Sink {
    /// An HAProxy.
    Haproxy(Box<HaproxySink>),
    /// Plimsoll's own layer-4 balancer.
    L4(Box<L4Sink>),
}

impl Sink {
    /// A sink that steers these servers; its readings count from `origin`.
    ///
    /// # Errors
    /// For names that the balancer could not have, or that come twice.
    pub fn new(
        place: Place,
        servers: Vec<(BackendId, String)>,
        origin: Instant,
    ) -> Result<Self, Box<SinkError>> {
        Ok(match place {
            Place::Haproxy(config) => {
                Sink::Haproxy(Box::new(HaproxySink::new(config, servers)?.with_origin(origin)))
            }
            Place::L4(config) => {
                Sink::L4(Box::new(L4Sink::new(config, servers)?.with_origin(origin)))
            }
        })
    }

    /// What the balancer bears.
    pub fn limits(&self) -> SinkLimits {
        match self {
            Sink::Haproxy(sink) => sink.limits(),
            Sink::L4(sink) => sink.limits(),
        }
    }

    /// See [`WeightSink::apply`].
    pub async fn apply(&mut self, plan: &Plan) -> Result<Applied, SinkError> {
        match self {
            Sink::Haproxy(sink) => sink.apply(plan).await,
            Sink::L4(sink) => sink.apply(plan).await,
        }
    }

    /// See [`WeightSink::read_back`].
    pub async fn read_back(&mut self) -> Result<BalancerReport, SinkError> {
        match self {
            Sink::Haproxy(sink) => sink.read_back().await,
            Sink::L4(sink) => sink.read_back().await,
        }
    }

    /// Replaces the servers that are steered.
    ///
    /// # Errors
    /// As [`Sink::new`]; the present servers then stay.
    pub fn set_servers(&mut self, servers: Vec<(BackendId, String)>) -> Result<(), Box<SinkError>> {
        let done = match self {
            Sink::Haproxy(sink) => sink.set_servers(servers),
            Sink::L4(sink) => sink.set_servers(servers),
        };
        Ok(done?)
    }

    /// What an administrator must change before this balancer can be steered though it can be read;
    /// `None` when it does not tell.
    pub async fn in_the_way(&mut self) -> Option<Option<String>> {
        match self {
            Sink::Haproxy(sink) => {
                let inspection = timeout(LOOK, sink.inspect()).await;
                inspection.ok().and_then(Result::ok).map(|found| in_the_way(&found))
            }
            // Whoever may read may set, and nobody else sets.
            Sink::L4(_) => Some(None),
        }
    }
}

/// What an administrator must change before this balancer can be steered.
fn in_the_way(inspection: &Inspection) -> Option<String> {
    if let Some(level) = inspection.level.filter(|level| *level != AccessLevel::Admin) {
        return Some(format!(
            "HAProxy's socket has level {}, which may not set weights: write `stats socket … level \
             admin` in haproxy.cfg",
            level.as_str()
        ));
    }
    let agents: Vec<&str> = inspection
        .servers
        .iter()
        .filter(|server| server.backend.is_some() && server.agent == AgentState::Active)
        .map(|server| server.name.as_str())
        .collect();
    let first = agents.first()?;
    Some(format!(
        "an agent-check is active on {} and may set the weights as well: remove it, or run `disable \
         agent BACKEND/{first}`",
        agents.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::{Method, MethodKind, ServerStatus};
    use plimsoll_sink::InspectedServer;

    #[test]
    fn a_level_and_an_agent_stand_in_the_way() {
        let server = |agent| InspectedServer {
            name: "s1".to_owned(),
            backend: Some(BackendId(1)),
            address: String::new(),
            status: ServerStatus::Up,
            status_text: "UP".to_owned(),
            weight: 1,
            effective_weight: 1,
            initial_weight: 1,
            maxconn: None,
            checked: false,
            check_status: String::new(),
            agent,
        };
        let of = |level, agent| {
            in_the_way(&Inspection {
                version: String::new(),
                pid: 1,
                started_at: 0,
                threads: 1,
                maxconn: 1,
                level,
                method: Method { name: "leastconn".to_owned(), kind: MethodKind::InFlight },
                servers: vec![server(agent)],
                missing: Vec::new(),
            })
        };
        let admin = Some(AccessLevel::Admin);
        assert_eq!(of(admin, AgentState::Absent), None);
        assert_eq!(of(None, AgentState::Disabled), None);
        assert!(of(admin, AgentState::Active).is_some_and(|why| why.contains("active on s1")));
        let operator = of(Some(AccessLevel::Operator), AgentState::Absent);
        assert!(operator.is_some_and(|why| why.contains("level operator")));
    }
}
