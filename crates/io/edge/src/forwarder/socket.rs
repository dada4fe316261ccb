//! The Unix socket of a running forwarder: a question a line, a JSON value a line in answer: `"status"`,
//! `{"where": "udp:…"}`, or `{"drain": {"node": …, "undo": …}}`.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::status::Where;
use super::table::{Flow, Table};
use super::{Forwarder, Shared, lock};
use crate::error::EdgeError;
use crate::wire::FlowKey;

const MOST_QUESTION: u64 = 4 << 10;
const MOST_ANSWER: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(5);
const BLINK: Duration = Duration::from_millis(20);

/// Listens; a socket that a process which is gone has left is taken.
pub(super) fn bind(path: &Path) -> Result<UnixListener, EdgeError> {
    let what = || format!("listen on {}", path.display());
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(EdgeError::system(what()))?;
    }
    if path.exists() && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path).map_err(EdgeError::system(what()))?;
    }
    let listener = UnixListener::bind(path).map_err(EdgeError::system(what()))?;
    let owner_alone = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, owner_alone).map_err(EdgeError::system(what()))?;
    listener.set_nonblocking(true).map_err(EdgeError::system(what()))?;
    Ok(listener)
}

/// What answers where a flow is.
pub(super) struct Lookup {
    table: Table,
    places: Vec<(u32, String, u32, String)>,
}

impl Lookup {
    pub(super) fn of(forwarder: &mut Forwarder) -> Lookup {
        let table = forwarder.kernel.table.take().expect("a forwarder is started once");
        let (config, forwarder) = (&forwarder.config, &*forwarder);
        let name = |(place, spec): (plimsoll_feedback::Place, super::places::Spec)| {
            let core = place.server * config.most_cores() + place.core;
            (
                u32::from(forwarder.places.number_at(core, spec.service)),
                config.nodes[spec.server].name.clone(),
                spec.cpu,
                config.services[spec.service].name.clone(),
            )
        };
        Lookup { table, places: forwarder.places.all().map(name).collect() }
    }

    fn find(&self, key: &FlowKey) -> Result<Option<Where>, EdgeError> {
        let Some(flow) = self.table.flow(key)? else { return Ok(None) };
        let place = self.places.iter().find(|(number, ..)| *number == flow.target);
        let (node, cpu, service) = match place {
            Some((_, node, cpu, service)) => (node.clone(), *cpu, service.clone()),
            None => ("(not configured any more)".to_owned(), 0, String::new()),
        };
        let Flow { idle_ms, answered, rewritten, .. } = flow;
        Ok(Some(Where { node, cpu, service, idle_ms, answered, rewritten }))
    }
}

/// Answers until the forwarder stops.
pub(super) fn serve(listener: &UnixListener, names: &[String], lookup: Lookup, shared: &Shared) {
    let path = listener.local_addr().ok().and_then(|at| at.as_pathname().map(Path::to_owned));
    while !shared.stop.load(Ordering::Relaxed) {
        match listener.accept() {
            // One that hangs up early has its reasons.
            Ok((stream, _)) => drop(converse(stream, names, &lookup, shared)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(BLINK),
            Err(_) => std::thread::sleep(BLINK),
        }
    }
    if let Some(path) = path {
        let _ = std::fs::remove_file(path);
    }
}

fn converse(
    stream: UnixStream,
    names: &[String],
    lookup: &Lookup,
    shared: &Shared,
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(&stream).take(MOST_QUESTION).read_line(&mut line)?;
    let answer = match serde_json::from_str::<Value>(&line) {
        Ok(question) => answer(&question, names, lookup, shared),
        Err(error) => json!({ "refused": format!("expected JSON: {error}") }),
    };
    (&stream).write_all(format!("{answer}\n").as_bytes())
}

fn answer(question: &Value, names: &[String], lookup: &Lookup, shared: &Shared) -> Value {
    let refused = |why: String| json!({ "refused": why });
    if question == "status" {
        return json!({ "status": *lock(&shared.status) });
    }
    if let Some(flow) = question.get("where").and_then(Value::as_str) {
        return match flow.parse::<FlowKey>().map(|key| lookup.find(&key)) {
            Ok(Ok(found)) => json!({ "where": found }),
            Ok(Err(error)) => refused(error.to_string()),
            Err(why) => refused(why),
        };
    }
    if let Some(drain) = question.get("drain") {
        let node = drain.get("node").and_then(Value::as_str).unwrap_or_default();
        let undo = drain.get("undo").and_then(Value::as_bool).unwrap_or(false);
        return match names.iter().position(|name| name == node) {
            Some(index) => {
                lock(&shared.drains).push((index, !undo));
                json!({ "done": true })
            }
            None => {
                refused(format!("no node is called {node:?}; expected one of {}", names.join(", ")))
            }
        };
    }
    refused("expected \"status\", {\"where\": FLOW} or {\"drain\": {\"node\": NAME}}".to_owned())
}

/// Asks a running forwarder: the value under `status`, `where` or `done` of its answer.
///
/// # Errors
/// When none answers at this socket, or it refuses.
pub fn ask(path: &Path, question: &Value) -> Result<Value, EdgeError> {
    let unreachable = |error: io::Error| {
        EdgeError::Asked(format!("no forwarder answers at {}: {error}", path.display()))
    };
    let stream = UnixStream::connect(path).map_err(unreachable)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(unreachable)?;
    (&stream).write_all(format!("{question}\n").as_bytes()).map_err(unreachable)?;
    let mut line = String::new();
    BufReader::new(&stream).take(MOST_ANSWER).read_line(&mut line).map_err(unreachable)?;
    let answer: Value = serde_json::from_str(&line)
        .map_err(|error| EdgeError::Asked(format!("expected a forwarder's answer: {error}")))?;
    if let Some(why) = answer.get("refused").and_then(Value::as_str) {
        return Err(EdgeError::Asked(why.to_owned()));
    }
    let value = ["status", "where", "done"].iter().find_map(|key| answer.get(key));
    value
        .cloned()
        .ok_or_else(|| EdgeError::Asked(format!("expected a forwarder's answer, found {answer}")))
}
