//! Blocking HTTP clients of programs on this machine, bounded in time and size.

use std::io;
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
        Client { agent: agent(ANSWER_TIMEOUT), api }
    }

    /// What is at this path, or why it could not be had.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        let url = format!("http://{}{path}", self.api);
        let mut answer = self.agent.get(&url).call().map_err(|error| error.to_string())?;
        if !answer.status().is_success() {
            return Err(format!("{path} answered with status {}", answer.status().as_u16()));
        }
        let body = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
        let body = body.map_err(|error| error.to_string())?;
        serde_json::from_slice(&body).map_err(|error| format!("{path}: {error}"))
    }
}

/// Asks a server once, on a connection of its own, for this path of this host.
///
/// # Errors
/// When it cannot be reached, does not answer within this time, or answers with another status than 200.
pub fn check_answer(
    address: SocketAddr,
    host: &str,
    path: &str,
    within: Duration,
) -> io::Result<()> {
    let request = agent(within).get(format!("http://{address}{path}")).header("Host", host);
    let answer = request.call().map_err(ureq::Error::into_io)?;
    match answer.status().as_u16() {
        200 => Ok(()),
        status => Err(io::Error::other(format!("{path} answered with status {status}"))),
    }
}

fn agent(within: Duration) -> ureq::Agent {
    let config = ureq::Agent::config_builder().proxy(None).max_redirects(0);
    config.http_status_as_error(false).timeout_global(Some(within)).build().into()
}
