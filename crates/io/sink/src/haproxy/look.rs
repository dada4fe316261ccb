//! Which backends and servers a HAProxy has, and which of them can be steered.

use std::time::Duration;

use plimsoll_model::{Method, MethodKind};

use super::link::{Link, LinkError};
use super::stat::{BACKEND_ROW, SERVER_ROW, Stat, StatRow, StatTable};
use super::state::{ServerState, StateTable};
use super::table::number;
use super::{AccessLevel, SocketAddress, method, names};
use crate::SinkError;
use crate::found::{FoundPool, FoundServer, LeftAlone};

/// HAProxy's word in `addr` for a server on a Unix socket.
const UNIX: &[u8] = b"unix";
/// Of a hash whose kind this socket does not tell.
const HASH_UNKNOWN: &str =
    "whether its hash takes weights (`hash-type consistent`) can be seen at `level admin` only";
/// A sentence that names agents stops here.
const AGENTS_NAMED: usize = 3;

/// Asks on a connection of its own, which is closed again: what answers is always the process that serves now.
pub(super) async fn look(
    socket: &SocketAddress,
    timeout: Duration,
) -> Result<Vec<FoundPool>, SinkError> {
    let mut link = Link::new(socket.clone(), timeout);
    let asked = ask(&mut link).await;
    let level = asked.map_err(|error| link.error(error))?;
    if level == Some(AccessLevel::User) {
        return Err(SinkError::Permission {
            socket: socket.to_string(),
            reason:
                "it has level user, which does not tell how a backend picks: write `stats socket … \
                     level admin` in haproxy.cfg (operator is enough for --observe)"
                    .to_owned(),
        });
    }
    let mut pools = read(&link).map_err(|reason| link.error(LinkError::Protocol(reason)))?;
    settle_hashes(&mut link, &mut pools).await.map_err(|error| link.error(error))?;
    Ok(pools.into_iter().map(|raw| raw.pool).collect())
}

async fn ask(link: &mut Link) -> Result<Option<AccessLevel>, LinkError> {
    link.open().await?;
    let level = AccessLevel::parse(link.exchange("show cli level\n").await?.get(0));
    link.exchange("show servers state\nshow stat -1 6 -1\n").await?;
    Ok(level)
}

/// A pool while it is read.
struct Raw {
    pool: FoundPool,
    /// The hash whose kind is still to be asked for.
    hash: bool,
}

fn read(link: &Link) -> Result<Vec<Raw>, String> {
    let mut states: Vec<(u64, Vec<u8>, ServerState)> = Vec::new();
    StateTable::new().read(link.answers().get(0), |id, name, state| {
        states.push((id, name.to_vec(), state));
        Ok(())
    })?;
    // Both tables have the same order within a backend, whose rows stand together, its own last.
    states.sort_by_key(|(id, ..)| *id);
    let mut pools: Vec<Raw> = Vec::new();
    let (mut servers, mut agents): (Vec<FoundServer>, Vec<String>) = (Vec::new(), Vec::new());
    let mut hint = 0;
    StatTable::new().read(link.answers().get(1), |row| {
        match row.get(Stat::Kind) {
            SERVER_ROW => {
                let id = number("iid", row.get(Stat::Id))?;
                let name = row.get(Stat::Server);
                let state = find(&states, &mut hint, id, name);
                let text = String::from_utf8_lossy(name).into_owned();
                if state.is_some_and(ServerState::agent_active) {
                    agents.push(text.clone());
                }
                servers.push(FoundServer { name: text, place: place(&row, state) });
            }
            BACKEND_ROW => {
                let (servers, agents) = (std::mem::take(&mut servers), std::mem::take(&mut agents));
                pools.push(raw(&row, servers, agents));
            }
            _ => {}
        }
        Ok(())
    })?;
    pools.retain(|raw| names::check("backend name", &raw.pool.name).is_ok());
    Ok(pools)
}

/// The state of a server, looked for where the last one was found and behind it first.
fn find<'a>(
    states: &'a [(u64, Vec<u8>, ServerState)],
    hint: &mut usize,
    id: u64,
    name: &[u8],
) -> Option<&'a ServerState> {
    let is_it = |(of, called, _): &(u64, Vec<u8>, ServerState)| *of == id && called == name;
    let at = match states.get(*hint).is_some_and(is_it) {
        true => Some(*hint),
        false => states.iter().position(is_it),
    }?;
    *hint = at + 1;
    Some(&states[at].2)
}

fn raw(row: &StatRow<'_>, servers: Vec<FoundServer>, agents: Vec<String>) -> Raw {
    let text = |column| String::from_utf8_lossy(row.get(column)).into_owned();
    let (method, hash) = match method::from_algo(&text(Stat::Algorithm)) {
        method::Known::Method(method) => (method, false),
        method::Known::Hash(name) => (Method { name, kind: MethodKind::Split }, true),
    };
    let shown = agents.iter().take(AGENTS_NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more = if agents.len() > AGENTS_NAMED { " …" } else { "" };
    let conflict = (!agents.is_empty()).then(|| {
        format!(
            "an agent-check sets weights too, on {} of its servers ({shown}{more}): remove it, or run `disable agent`",
            agents.len()
        )
    });
    let pool = FoundPool { name: text(Stat::Proxy), method, servers, conflict, unknown: None };
    Raw { pool, hash }
}

fn place(
    row: &StatRow<'_>,
    state: Option<&ServerState>,
) -> Result<std::net::SocketAddr, LeftAlone> {
    let name = String::from_utf8_lossy(row.get(Stat::Server));
    if names::check("server name", &name).is_err() {
        return Err(LeftAlone::Name);
    }
    if row.get(Stat::Backup) == b"1" {
        return Err(LeftAlone::Backup);
    }
    let address = match row.get(Stat::Address) {
        UNIX => return Err(LeftAlone::UnixSocket),
        b"" => return Err(LeftAlone::Unresolved),
        text => std::str::from_utf8(text).ok().and_then(|t| t.parse::<std::net::SocketAddr>().ok()),
    };
    let address = address.filter(|a| a.port() != 0 && !a.ip().is_unspecified());
    let address = address.ok_or(LeftAlone::NoAddress)?;
    match state {
        // It joined between the two answers: the next look sees it whole.
        None => Err(LeftAlone::Unresolved),
        Some(state) if state.initial_weight == 0 => Err(LeftAlone::WeightZero),
        Some(_) => Ok(address),
    }
}

/// `show stat` does not tell a consistent hash from a map: see [`method::question`].
async fn settle_hashes(link: &mut Link, pools: &mut [Raw]) -> Result<(), LinkError> {
    let hashes = || pools.iter().filter(|raw| raw.hash && !raw.pool.servers.is_empty());
    let lines: String =
        hashes().map(|raw| method::question(&raw.pool.name, &raw.pool.servers[0].name)).collect();
    if lines.is_empty() {
        return Ok(());
    }
    let answers = link.exchange(&lines).await?;
    let asked = pools.iter_mut().filter(|raw| raw.hash && !raw.pool.servers.is_empty());
    for (at, raw) in asked.enumerate() {
        let name = std::mem::take(&mut raw.pool.method.name);
        raw.pool.method = method::from_answer(name, answers.get(at));
        raw.pool.unknown = method::is_unanswered(answers.get(at)).then_some(HASH_UNKNOWN);
    }
    Ok(())
}
