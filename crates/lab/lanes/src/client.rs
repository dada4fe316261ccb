//! A blocking client of a daemon's API on this machine, bounded in time and size.

use std::net::SocketAddr;
use std::time::Duration;

use serde::de::DeserializeOwned;

/// A daemon that has not answered after this long does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read, bytes: over a thousand backends with all their points.
const MAX_ANSWER: u64 = 64 << 20;

/// Asks one daemon, over one kept connection.
pub struct Client {
    agent: ureq::Agent,
    api: SocketAddr,
}

impl Client {
    /// A client of the daemon that listens there.
    pub fn new(api: SocketAddr) -> Self {
        let config = ureq::Agent::config_builder()
            .proxy(None)
            .max_redirects(0)
            .timeout_global(Some(ANSWER_TIMEOUT))
            .build();
        Client { agent: config.into(), api }
    }

    /// What is at this path, or why it could not be had.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        let url = format!("http://{}{path}", self.api);
        let mut answer = self.agent.get(&url).call().map_err(|error| error.to_string())?;
        let body = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
        let body = body.map_err(|error| error.to_string())?;
        serde_json::from_slice(&body).map_err(|error| format!("{path}: {error}"))
    }
}
