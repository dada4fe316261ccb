//! The admin API: the state of the backends as JSON, and changes to it.

use serde::Serialize;
use serde_json::json;

use super::change::Change;
use super::conn::AdminRequest;
use super::engine::Engine;
use super::reply::Reply;
use super::{SetError, TestbedStats};

/// Answers one request.
pub(super) fn answer(engine: &mut Engine, request: &AdminRequest) -> Reply {
    let path = request.path.trim_end_matches('/');
    let name = path.strip_prefix("/backends/");
    match (request.method.as_str(), path, name) {
        ("GET" | "HEAD", "/backends", _) => json_reply(200, &engine.stats()),
        ("GET" | "HEAD", _, Some(name)) => one(engine.stats(), name),
        ("PATCH", _, Some(name)) => patch(engine, name, request),
        (_, "/backends", _) | (_, _, Some(_)) => {
            errors(405, vec!["GET /backends, GET or PATCH /backends/NAME".into()])
        }
        _ => errors(404, vec![format!("no such path: {}; there is /backends", request.path)]),
    }
}

fn one(stats: TestbedStats, name: &str) -> Reply {
    match stats.backends.into_iter().find(|b| b.name == name) {
        Some(found) => json_reply(200, &found),
        None => errors(404, vec![SetError::Unknown(name.into()).to_string()]),
    }
}

fn patch(engine: &mut Engine, name: &str, request: &AdminRequest) -> Reply {
    if request.body_too_long {
        return errors(413, vec!["body: longer than 64 KiB".into()]);
    }
    let Some(backend) = engine.backend_named(name) else {
        return errors(404, vec![SetError::Unknown(name.into()).to_string()]);
    };
    let change = match Change::from_json(&request.body, backend.service()) {
        Ok(change) => change,
        Err(problems) => return errors(400, problems),
    };
    match engine.set(name, &change) {
        Ok(()) => one(engine.stats(), name),
        Err(error) => errors(500, vec![error.to_string()]),
    }
}

fn errors(status: u16, errors: Vec<String>) -> Reply {
    json_reply(status, &json!({ "errors": errors }))
}

fn json_reply(status: u16, value: &impl Serialize) -> Reply {
    // These types hold strings and numbers only, which always serialise.
    let mut body = serde_json::to_string_pretty(value).unwrap_or_default();
    body.push('\n');
    Reply::new(status, "", "application/json", &body)
}
