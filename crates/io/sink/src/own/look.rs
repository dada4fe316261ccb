//! Which services and servers a balancer of our own has.

use std::path::Path;
use std::time::Duration;

use plimsoll_model::Method;

use super::Daemon;
use super::link::Link;
use super::wire::{Answer, Question, Refusal};
use crate::SinkError;
use crate::found::{FoundPool, FoundServer, LeftAlone};

/// No service has this name: the refusal lists those that there are.
const NOBODY: &str = "";

/// Asks a daemon.
///
/// # Errors
/// When it cannot be reached or understood.
pub(crate) async fn look(
    daemon: &'static Daemon,
    socket: &Path,
    timeout: Duration,
) -> Result<Vec<FoundPool>, SinkError> {
    let mut link = Link::new(daemon, socket.to_owned(), timeout);
    let names = match ask(&mut link, NOBODY).await? {
        Answer::Refused { reason: Refusal::UnknownVip, exist, .. } => exist,
        other => return Err(not_understood(&link, &other)),
    };
    let mut pools = Vec::with_capacity(names.len());
    for name in names {
        let report = match ask(&mut link, &name).await? {
            Answer::Done(report) => report,
            // A reload has taken it away since.
            Answer::Refused { reason: Refusal::UnknownVip, .. } => continue,
            other => return Err(not_understood(&link, &other)),
        };
        let servers = report.servers.into_iter().map(|server| FoundServer {
            place: server.address.ok_or(LeftAlone::NoAddress),
            name: server.name,
        });
        let method = Method { name: report.policy, kind: report.kind };
        pools.push(FoundPool {
            name,
            method,
            servers: servers.collect(),
            conflict: None,
            unknown: None,
        });
    }
    Ok(pools)
}

async fn ask(link: &mut Link, vip: &str) -> Result<Answer, SinkError> {
    let question = Question::Read { vip: vip.to_owned() };
    link.ask(&question).await.map_err(|error| link.error(error))
}

fn not_understood(link: &Link, answer: &Answer) -> SinkError {
    let reason = match answer {
        Answer::Refused { message, .. } => message.clone(),
        Answer::Done(_) => "a service without a name".to_owned(),
    };
    SinkError::Protocol { socket: link.path().display().to_string(), reason }
}
