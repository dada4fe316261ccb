//! A blocking client of the API: no proxies, no redirects, bounded in time and size.

use std::time::Duration;

use plimsoll_api::wire::ErrorBody;
use plimsoll_terminal::printable;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::StatusCode;

use super::failure::Failure;

/// A daemon that has not accepted after this long is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A daemon that has not answered after this long does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read, bytes: over a thousand backends with all their points.
const MAX_ANSWER: u64 = 64 << 20;

/// Asks one daemon, over one kept connection.
pub struct Client {
    agent: ureq::Agent,
    api: String,
}

impl Client {
    /// A client of the daemon at this URL, without a slash at its end.
    pub fn new(api: &str) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(ANSWER_TIMEOUT))
            .user_agent(concat!("plimsoll/", env!("CARGO_PKG_VERSION")))
            .build();
        Client { agent: config.into(), api: api.to_owned() }
    }

    /// What is at this path.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let answer = self.get_if_there(path)?;
        answer.ok_or_else(|| self.strange(format!("{path}: HTTP 404")))
    }

    /// What is at this path; nothing when the daemon says that nothing is.
    pub fn get_if_there<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Failure> {
        let url = format!("{}{path}", self.api);
        let mut answer = self.agent.get(&url).call().map_err(|error| self.failed(error))?;
        let status = answer.status();
        let body = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
        let body = body.map_err(|error| self.failed(error))?;
        if status == StatusCode::OK {
            let read = serde_json::from_slice(&body).and_then(|answer| {
                let mut answer: Value = answer;
                escape(&mut answer);
                serde_json::from_value(answer)
            });
            return read.map(Some).map_err(|error| self.strange(format!("{path}: {error}")));
        }
        match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(_) if status == StatusCode::NOT_FOUND => Ok(None),
            Ok(ErrorBody { error }) => Err(self.strange(format!("{path}: {error}"))),
            Err(_) => Err(self.strange(format!("{path}: HTTP {}", status.as_u16()))),
        }
    }

    fn strange(&self, why: String) -> Failure {
        Failure::NotPlimsoll { api: self.api.clone(), why }
    }

    fn failed(&self, error: ureq::Error) -> Failure {
        let why = match error {
            ureq::Error::Io(error) => match error.raw_os_error() {
                // The system's own words come with a number; the kind's are enough.
                Some(_) => error.kind().to_string(),
                None => error.to_string(),
            },
            ureq::Error::Timeout(_) => "no answer in time".to_owned(),
            ureq::Error::HostNotFound => "host not found".to_owned(),
            ureq::Error::ConnectionFailed => "connection failed".to_owned(),
            other => return self.strange(other.to_string()),
        };
        Failure::NoDaemon { api: self.api.clone(), why }
    }
}

/// Whatever a daemon answers is fit to be shown from here on: it may quote what backends and balancers said.
fn escape(answer: &mut Value) {
    match answer {
        Value::String(text) => *text = printable(text),
        Value::Array(all) => all.iter_mut().for_each(escape),
        // The keys are ours: no type has others.
        Value::Object(fields) => fields.values_mut().for_each(escape),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
