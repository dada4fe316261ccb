//! What is said over the socket of a balancer of Plimsoll's own, a service being one of layer 4 or a pool of the
//! proxy: one JSON value a line, one answer for each question, in
//! order. Fields that are not known are ignored, so that either side may be the newer one.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use plimsoll_model::{MethodKind, ServerStatus};
use serde::{Deserialize, Serialize};

/// The longest line, bytes: more than any service can fill.
pub const MAX_LINE: usize = 8 << 20;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// How is this service?
    Read {
        /// Its name.
        vip: String,
    },
    /// Set these weights, all or none.
    Apply {
        /// The service's name.
        vip: String,
        /// The plan's.
        epoch: u64,
        /// The client's name, for people.
        who: String,
        /// By the servers' names; those not named keep theirs.
        weights: BTreeMap<String, u16>,
    },
    /// Go back to the configured weights.
    Release {
        /// The service's name.
        vip: String,
    },
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It was done; this is how the service is then.
    Done(Report),
    /// It was not, and nothing has changed.
    Refused {
        /// What kind of reason.
        reason: Refusal,
        /// For people.
        message: String,
        /// The names that there are, where one was not known.
        #[serde(default)]
        exist: Vec<String>,
    },
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// There is no such service.
    UnknownVip,
    /// It has no such server.
    UnknownServer,
    /// Its policy takes no weights.
    NoLiveWeights,
    /// Weights that must not be.
    InvalidPlan,
    /// The line was no question.
    NotUnderstood,
    /// The kernel's tables could not be written or read.
    Failed,
}

/// A service at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The policy's name.
    pub policy: String,
    /// What its weights mean.
    pub kind: MethodKind,
    /// Another one when counters and weights began anew.
    pub generation: u64,
    /// Whether a controller's weights are in force.
    pub steered: bool,
    /// The plan that is in force, if one is.
    pub epoch: u64,
    /// How many weights the question changed.
    #[serde(default)]
    pub changed: u32,
    /// The servers that are configured.
    pub servers: Vec<Server>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Where it is; older daemons do not tell.
    #[serde(default)]
    pub address: Option<SocketAddr>,
    /// The weight in force.
    pub weight: u16,
    /// What it takes.
    pub status: ServerStatus,
    /// Connections, or requests, begun and not ended.
    pub open_connections: u64,
    /// Connections, or requests, begun.
    pub new_connections: u64,
    /// Packets from clients.
    #[serde(default)]
    pub packets_in: u64,
    /// Their bytes.
    #[serde(default)]
    pub bytes_in: u64,
    /// Packets to clients.
    #[serde(default)]
    pub packets_out: u64,
    /// Their bytes.
    #[serde(default)]
    pub bytes_out: u64,
    /// Requests without a good answer, where the balancer tells answers from errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
    /// Requests that the server has answered, well or not, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<u64>,
    /// The sum of the response times of those that were answered well, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<u64>,
    /// How many those are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<u64>,
}

impl Server {
    /// One with so many connections, or requests, open and begun.
    pub fn new(name: &str, weight: u16, status: ServerStatus, (open, begun): (u64, u64)) -> Self {
        Server {
            name: name.to_owned(),
            address: None,
            weight,
            status,
            open_connections: open,
            new_connections: begun,
            packets_in: 0,
            bytes_in: 0,
            packets_out: 0,
            bytes_out: 0,
            errors: None,
            answered: None,
            latency_us: None,
            measured: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_over_the_wire_is_fixed() {
        let weights = BTreeMap::from([("s1".to_owned(), 5)]);
        let who = "me".to_owned();
        let apply = Question::Apply { vip: "shop".to_owned(), epoch: 7, who, weights };
        let text = r#"{"apply":{"vip":"shop","epoch":7,"who":"me","weights":{"s1":5}}}"#;
        assert_eq!(serde_json::to_string(&apply).expect("JSON"), text);
        let newer = r#"{"read":{"vip":"shop","since":3}}"#;
        let read: Question = serde_json::from_str(newer).expect("understood");
        assert_eq!(read, Question::Read { vip: "shop".to_owned() });
        let refused = r#"{"refused":{"reason":"unknown_vip","message":"no"}}"#;
        let answer: Answer = serde_json::from_str(refused).expect("understood");
        assert!(matches!(answer, Answer::Refused { reason: Refusal::UnknownVip, .. }));
    }
}
