use std::io;
use std::time::Duration;

/// Why a balancer could not be read or programmed. Every message says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// No process answers at the socket, or it was cut.
    #[error("{socket}: {reason}")]
    Unreachable {
        /// The socket, as configured.
        socket: String,
        /// What happened, and what to look at.
        reason: String,
        /// The system's own error, where there is one.
        #[source]
        source: Option<io::Error>,
    },
    /// No complete answer in time.
    #[error("{socket}: no complete answer within {limit:?}")]
    Timeout {
        /// The socket, as configured.
        socket: String,
        /// The time-out of one exchange.
        limit: Duration,
    },
    /// The socket may not be opened, or does not allow what is asked.
    #[error("{socket}: {reason}")]
    Permission {
        /// The socket, as configured.
        socket: String,
        /// What is missing.
        reason: String,
    },
    /// A name or address that cannot exist in the balancer; nothing was sent.
    #[error("{name:?} is not a valid {what}: {reason}")]
    InvalidName {
        /// The name as given.
        name: String,
        /// What it was meant to name.
        what: &'static str,
        /// The rule it breaks.
        reason: String,
    },
    /// A plan that must not be programmed; nothing was sent.
    #[error("plan {epoch} refused: {reason}")]
    InvalidPlan {
        /// The plan's epoch.
        epoch: u64,
        /// The rule it breaks.
        reason: String,
    },
    /// The balancer has no such backend.
    #[error("HAProxy has no backend {backend:?}; it has {}", list(exist))]
    UnknownBackend {
        /// The configured name.
        backend: String,
        /// The backends it has.
        exist: Vec<String>,
    },
    /// The layer-4 balancer has no such service.
    #[error("{socket}: the layer-4 balancer has no service {vip:?}; it has {}", list(exist))]
    UnknownVip {
        /// The socket, as configured.
        socket: String,
        /// The configured name.
        vip: String,
        /// The services it has.
        exist: Vec<String>,
    },
    /// The proxy has no such pool.
    #[error("{socket}: the proxy has no pool {pool:?}; it has {}", list(exist))]
    UnknownPool {
        /// The socket, as configured.
        socket: String,
        /// The configured name.
        pool: String,
        /// The pools it has.
        exist: Vec<String>,
    },
    /// NGINX has no such upstream.
    #[error("{socket}: the Lua balancer has no upstream {upstream:?}; it has {}", list(exist))]
    UnknownUpstream {
        /// The socket, as configured.
        socket: String,
        /// The configured name.
        upstream: String,
        /// The upstreams it has.
        exist: Vec<String>,
    },
    /// The backend has no such servers; nothing was sent.
    #[error("backend {backend:?} has no server {}; it has {}", list(missing), list(exist))]
    UnknownServers {
        /// The backend.
        backend: String,
        /// The configured names that are not there.
        missing: Vec<String>,
        /// The servers it has.
        exist: Vec<String>,
    },
    /// An agent-check may set weights too; two hands on one wheel are refused.
    #[error(
        "backend {backend:?}: an agent-check is active on {} and may set the weights as well; remove \
         it from the configuration or run `disable agent {backend}/{}`",
        list(servers),
        servers.first().map_or("", String::as_str)
    )]
    AgentCheck {
        /// The backend.
        backend: String,
        /// The servers with an active agent-check.
        servers: Vec<String>,
    },
    /// The method takes no weights while the balancer runs.
    #[error(
        "backend {backend:?} uses `balance {method}`{}, which takes no weights at run time; use \
         leastconn or roundrobin, or `hash-type consistent` where requests must stick to a server",
        if hash_method(method) { " with a map-based hash" } else { "" }
    )]
    NoLiveWeights {
        /// The backend.
        backend: String,
        /// The balancer's name of its method.
        method: String,
    },
    /// The policy of a layer-4 service takes no weights from others.
    #[error("{reason}")]
    PolicyWithoutWeights {
        /// The service.
        vip: String,
        /// What the balancer says.
        reason: String,
    },
    /// The balancer took a plan and could not carry it out; it does all of one or nothing.
    #[error("service {vip:?}: {reason}; no weight was changed")]
    Failed {
        /// The service.
        vip: String,
        /// What the balancer says.
        reason: String,
    },
    /// The balancer refused a weight; those already changed were put back.
    #[error(
        "backend {backend:?}: weight {weight} of {server:?} refused: {answer}; {}",
        undone(restored, unrestored)
    )]
    Rejected {
        /// The backend.
        backend: String,
        /// The first server that was refused.
        server: String,
        /// The weight it was to get.
        weight: u32,
        /// The balancer's answer.
        answer: String,
        /// Servers put back, with the weight they have again.
        restored: Vec<(String, u32)>,
        /// Servers that could not be put back, with the weight they should have had again.
        unrestored: Vec<(String, u32)>,
    },
    /// The connection failed in the middle of a batch.
    #[error("backend {backend:?}: batch interrupted ({source}); {}", undone(restored, unrestored))]
    Interrupted {
        /// The backend.
        backend: String,
        /// What failed.
        source: Box<SinkError>,
        /// Servers put back, with the weight they have again.
        restored: Vec<(String, u32)>,
        /// Servers whose weight is not known, with the weight they had before.
        unrestored: Vec<(String, u32)>,
    },
    /// The other end does not speak the runtime API as we know it.
    #[error("{socket}: not understood: {reason}")]
    Protocol {
        /// The socket, as configured.
        socket: String,
        /// What was wrong with the answer.
        reason: String,
    },
}

/// The kinds of [`SinkError`], for metrics and decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkErrorKind {
    /// [`SinkError::Unreachable`].
    Unreachable,
    /// [`SinkError::Timeout`].
    Timeout,
    /// [`SinkError::Permission`].
    Permission,
    /// [`SinkError::InvalidName`].
    InvalidName,
    /// [`SinkError::InvalidPlan`].
    InvalidPlan,
    /// [`SinkError::UnknownBackend`], [`SinkError::UnknownVip`], [`SinkError::UnknownPool`],
    /// [`SinkError::UnknownUpstream`].
    UnknownBackend,
    /// [`SinkError::UnknownServers`].
    UnknownServers,
    /// [`SinkError::AgentCheck`].
    Conflict,
    /// [`SinkError::NoLiveWeights`], [`SinkError::PolicyWithoutWeights`].
    NoLiveWeights,
    /// [`SinkError::Rejected`], [`SinkError::Failed`].
    Rejected,
    /// [`SinkError::Interrupted`].
    Interrupted,
    /// [`SinkError::Protocol`].
    Protocol,
}

impl SinkErrorKind {
    /// The kind in snake case, for a metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            SinkErrorKind::Unreachable => "unreachable",
            SinkErrorKind::Timeout => "timeout",
            SinkErrorKind::Permission => "permission",
            SinkErrorKind::InvalidName => "invalid_name",
            SinkErrorKind::InvalidPlan => "invalid_plan",
            SinkErrorKind::UnknownBackend => "unknown_backend",
            SinkErrorKind::UnknownServers => "unknown_servers",
            SinkErrorKind::Conflict => "conflict",
            SinkErrorKind::NoLiveWeights => "no_live_weights",
            SinkErrorKind::Rejected => "rejected",
            SinkErrorKind::Interrupted => "interrupted",
            SinkErrorKind::Protocol => "protocol",
        }
    }
}

impl SinkError {
    /// Which kind of error this is.
    pub fn kind(&self) -> SinkErrorKind {
        match self {
            SinkError::Unreachable { .. } => SinkErrorKind::Unreachable,
            SinkError::Timeout { .. } => SinkErrorKind::Timeout,
            SinkError::Permission { .. } => SinkErrorKind::Permission,
            SinkError::InvalidName { .. } => SinkErrorKind::InvalidName,
            SinkError::InvalidPlan { .. } => SinkErrorKind::InvalidPlan,
            SinkError::UnknownBackend { .. }
            | SinkError::UnknownVip { .. }
            | SinkError::UnknownPool { .. }
            | SinkError::UnknownUpstream { .. } => SinkErrorKind::UnknownBackend,
            SinkError::UnknownServers { .. } => SinkErrorKind::UnknownServers,
            SinkError::AgentCheck { .. } => SinkErrorKind::Conflict,
            SinkError::NoLiveWeights { .. } | SinkError::PolicyWithoutWeights { .. } => {
                SinkErrorKind::NoLiveWeights
            }
            SinkError::Rejected { .. } | SinkError::Failed { .. } => SinkErrorKind::Rejected,
            SinkError::Interrupted { .. } => SinkErrorKind::Interrupted,
            SinkError::Protocol { .. } => SinkErrorKind::Protocol,
        }
    }

    /// Whether the same call may succeed later without anybody changing a configuration.
    pub fn retryable(&self) -> bool {
        matches!(
            self.kind(),
            SinkErrorKind::Unreachable
                | SinkErrorKind::Timeout
                | SinkErrorKind::Rejected
                | SinkErrorKind::Interrupted
        )
    }
}

/// Whether the method hashes, so that `hash-type` decides if it takes live weights.
pub(crate) fn hash_method(name: &str) -> bool {
    matches!(name, "source" | "uri" | "url_param" | "hdr" | "rdp-cookie" | "hash")
}

/// No message gets longer than a screen, however many servers there are.
const NAMES_SHOWN: usize = 20;

fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    let mut text = names.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > NAMES_SHOWN {
        text.push_str(&format!(" and {} more", names.len() - NAMES_SHOWN));
    }
    text
}

fn undone(restored: &[(String, u32)], unrestored: &[(String, u32)]) -> String {
    let pairs = |all: &[(String, u32)]| {
        list(&all.iter().map(|(name, weight)| format!("{name}={weight}")).collect::<Vec<_>>())
    };
    match (restored.is_empty(), unrestored.is_empty()) {
        (true, true) => "no weight was changed".to_owned(),
        (false, true) => format!("put back: {}", pairs(restored)),
        (true, false) => format!("could not be put back: {}", pairs(unrestored)),
        (false, false) => {
            format!("put back: {}; could not be put back: {}", pairs(restored), pairs(unrestored))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_and_counted() {
        let names: Vec<String> = (0..25).map(|i| format!("s{i}")).collect();
        let text = list(&names);
        assert!(text.ends_with("s19 and 5 more"), "{text}");
        assert_eq!(list(&[]), "none");
    }

    #[test]
    fn a_rejection_says_what_was_put_back() {
        let error = SinkError::Rejected {
            backend: "shop".into(),
            server: "s2".into(),
            weight: 7,
            answer: "No such server.".into(),
            restored: vec![("s1".into(), 10)],
            unrestored: vec![("s3".into(), 30)],
        };
        assert_eq!(
            error.to_string(),
            "backend \"shop\": weight 7 of \"s2\" refused: No such server.; put back: s1=10; could \
             not be put back: s3=30"
        );
        assert_eq!(error.kind().as_str(), "rejected");
        assert!(error.retryable());
    }

    #[test]
    fn a_map_based_hash_is_named_as_such() {
        let of = |method: &str| SinkError::NoLiveWeights {
            backend: "shop".into(),
            method: method.into(),
        };
        assert!(of("uri").to_string().contains("with a map-based hash"));
        assert!(!of("static-rr").to_string().contains("hash,"));
        assert!(!of("uri").retryable());
    }
}
