//! One answer of a Prometheus: which of its numbers can be believed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hyper::StatusCode;
use plimsoll_model::BackendId;
use serde::Deserialize;

use super::Signal;

/// So much of what is no answer is shown.
const SHOWN: usize = 120;
/// So many names are listed.
const NAMED: usize = 5;

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    status: String,
    #[serde(default)]
    error: Option<String>,
    data: Option<Data>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    result: serde_json::Value,
}

#[derive(Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
    /// When, as seconds since 1970, and the number as a text.
    value: (f64, String),
}

/// What one query tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Values {
    /// The number of each server, as far as it can be believed.
    pub known: BTreeMap<BackendId, f64>,
    /// What is wrong with the others, one line for each kind.
    pub troubles: Vec<String>,
}

/// How series name servers, and which moment is now.
pub(super) struct Reading<'a> {
    pub signal: Signal,
    pub label: &'a str,
    pub servers: &'a BTreeMap<String, BackendId>,
    /// Since 1970.
    pub now: Duration,
    pub max_age: Duration,
}

/// Reads an answer.
///
/// # Errors
/// When it tells nothing at all: why not.
pub(super) fn read(
    status: StatusCode,
    body: &[u8],
    reading: &Reading<'_>,
) -> Result<Values, String> {
    let answer: Answer = serde_json::from_slice(body).map_err(|_| {
        let text: String = String::from_utf8_lossy(body).chars().take(SHOWN).collect();
        format!("answered {status} with what is no answer of a Prometheus: {:?}", text.trim())
    })?;
    if answer.status != "success" {
        let why: String = answer.error.unwrap_or_default().chars().take(SHOWN).collect();
        return Err(format!("refused the query ({status}): {why}"));
    }
    let data = answer.data.ok_or("answered without data")?;
    if data.result_type != "vector" {
        return Err(format!(
            "the query gives a {}, and not one number for each server (an instant vector)",
            data.result_type
        ));
    }
    let all: Vec<Series> = serde_json::from_value(data.result)
        .map_err(|error| format!("answered with series that are none: {error}"))?;
    Ok(sort(all, reading))
}

/// Names that share one trouble.
#[derive(Default)]
struct Named(Vec<String>);

impl Named {
    fn add(&mut self, name: &str) {
        self.0.push(name.to_owned());
    }

    fn say(self, what: &str, troubles: &mut Vec<String>) {
        let count = self.0.len();
        if count == 0 {
            return;
        }
        let mut text = self.0.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
        if count > NAMED {
            text.push_str(&format!(" and {} more", count - NAMED));
        }
        troubles.push(format!("{what}: {text}"));
    }
}

fn sort(all: Vec<Series>, reading: &Reading<'_>) -> Values {
    let Reading { signal, label, servers, now, max_age } = reading;
    let mut values = Values::default();
    let (mut strangers, mut twice, mut stale, mut wrong) =
        (Named::default(), Named::default(), Named::default(), Named::default());
    let mut seen: BTreeSet<BackendId> = BTreeSet::new();
    let mut unlabelled = 0;
    for Series { metric, value: (at, text) } in all {
        let Some(name) = metric.get(*label) else {
            unlabelled += 1;
            continue;
        };
        let Some(&id) = servers.get(name.as_str()) else {
            strangers.add(name);
            continue;
        };
        if !seen.insert(id) {
            // Which of them is the server's is anybody's guess.
            values.known.remove(&id);
            twice.add(name);
            continue;
        }
        // A clock that is ahead is as wrong as one that is behind.
        if !at.is_finite() || (at - now.as_secs_f64()).abs() > max_age.as_secs_f64() {
            stale.add(name);
            continue;
        }
        match text.parse::<f64>() {
            // What 0 divided by 0 is: no requests, hence no response time.
            Ok(number) if signal.is_nothing(number) => {}
            Ok(number) if signal.range().contains(&number) => {
                values.known.insert(id, number);
            }
            _ => wrong.add(&format!("{name} {text}")),
        }
    }
    let troubles = &mut values.troubles;
    if unlabelled > 0 {
        troubles.push(format!("{unlabelled} series without a label `{label}`"));
    }
    twice.say("several series for one server (sum or average them in the query)", troubles);
    stale.say(&format!("older than {max_age:?} or from the future"), troubles);
    wrong.say("numbers that cannot be", troubles);
    // Other pools' servers may well be among the series; they are reported only where no server is known.
    if seen.is_empty() {
        strangers
            .say(&format!("no server of this service, but other values of `{label}`"), troubles);
    }
    let missing = servers.iter().filter(|(_, id)| !seen.contains(id));
    // A server has several names in `servers`: it is named once, by an address only where it has no other.
    let is_address = |name: &str| name.parse::<std::net::SocketAddr>().is_ok();
    let mut named: BTreeMap<BackendId, &String> = BTreeMap::new();
    missing.for_each(|(name, id)| {
        let kept = named.entry(*id).or_insert(name);
        if is_address(kept) {
            *kept = name;
        }
    });
    let mut missing = Named::default();
    named.values().for_each(|name| missing.add(name));
    missing.say("no series for", troubles);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers() -> BTreeMap<String, BackendId> {
        [("s1", 1), ("10.0.0.1:80", 1), ("s2", 2)]
            .map(|(name, id)| (name.to_owned(), BackendId(id)))
            .into()
    }

    fn take(signal: Signal, status: u16, body: &str) -> Result<Values, String> {
        let servers = servers();
        let reading = Reading {
            signal,
            label: "server",
            servers: &servers,
            now: Duration::from_secs(1_000),
            max_age: Duration::from_secs(30),
        };
        read(StatusCode::from_u16(status).expect("a status"), body.as_bytes(), &reading)
    }

    fn vector(series: &[(&str, f64, &str)]) -> String {
        let one = |(name, at, value): &(&str, f64, &str)| {
            format!("{{\"metric\":{{\"server\":\"{name}\"}},\"value\":[{at},\"{value}\"]}}")
        };
        let all: Vec<String> = series.iter().map(one).collect();
        format!(
            "{{\"status\":\"success\",\"data\":{{\"resultType\":\"vector\",\"result\":[{}]}}}}",
            all.join(",")
        )
    }

    #[test]
    fn servers_are_known_by_name_and_by_address() {
        for name in ["s1", "10.0.0.1:80"] {
            let body = vector(&[(name, 1_000.0, "12.5"), ("s2", 999.5, "0")]);
            let told = take(Signal::Rate, 200, &body).expect("read");
            assert_eq!(told.known, [(BackendId(1), 12.5), (BackendId(2), 0.0)].into());
            assert_eq!(told.troubles, Vec::<String>::new());
        }
    }

    #[test]
    fn a_prometheus_that_lies_is_believed_only_where_it_may_be_right() {
        use Signal::{InFlight, Latency, Rate};
        for (signal, value) in [
            (Rate, "NaN"),
            (Rate, "+Inf"),
            (Rate, "-Inf"),
            (Rate, "-1"),
            (Rate, "1e12"),
            (Rate, "x"),
            (Rate, ""),
            (Latency, "-0.1"),
            (Latency, "+Inf"),
            (Latency, "1e9"),
            (InFlight, "-1"),
            (InFlight, "1e300"),
        ] {
            let body = vector(&[("s1", 1_000.0, value), ("s2", 1_000.0, "3")]);
            let told = take(signal, 200, &body).expect("read");
            assert_eq!(told.known, [(BackendId(2), 3.0)].into(), "{value}");
            assert!(told.troubles[0].starts_with("numbers that cannot be: s1"), "{told:?}");
        }
        for nothing in ["NaN", "0"] {
            let body = vector(&[("s1", 1_000.0, nothing), ("s2", 1_000.0, "3")]);
            let idle = take(Latency, 200, &body).expect("read");
            assert_eq!((idle.known.len(), idle.troubles.len()), (1, 0), "{nothing} is no lie");
        }
        for at in [900.0, 1_100.0, 0.0, 1e300] {
            let told = take(Rate, 200, &vector(&[("s1", at, "1"), ("s2", 1_000.0, "3")]));
            let told = told.expect("read");
            assert_eq!(told.known, [(BackendId(2), 3.0)].into(), "{at}");
            assert!(told.troubles[0].contains("older than 30s or from the future: s1"), "{told:?}");
        }
    }

    #[test]
    fn duplicates_strangers_and_the_missing_are_named() {
        let body = vector(&[
            ("s1", 1_000.0, "1"),
            ("s1", 1_000.0, "2"),
            ("10.0.0.1:80", 1_000.0, "2"),
            ("s7", 1_000.0, "1"),
        ]);
        let told = take(Signal::Rate, 200, &body).expect("read");
        assert_eq!(told.known, BTreeMap::new());
        assert_eq!(
            told.troubles,
            [
                "several series for one server (sum or average them in the query): s1, 10.0.0.1:80",
                "no series for: s2"
            ]
        );
        let told = take(Signal::Rate, 200, &vector(&[("s7", 1_000.0, "1")])).expect("read");
        assert_eq!(
            told.troubles,
            [
                "no server of this service, but other values of `server`: s7",
                "no series for: s1, s2"
            ]
        );
        let bare = vector(&[("s1", 1_000.0, "1")]).replace("\"server\":\"s1\"", "\"job\":\"x\"");
        let told = take(Signal::Rate, 200, &bare).expect("read");
        assert_eq!(told.troubles[0], "1 series without a label `server`");
    }

    #[test]
    fn what_is_no_answer_is_named() {
        let vector_of = |result: &str, kind: &str| {
            format!(
                "{{\"status\":\"success\",\"data\":{{\"resultType\":\"{kind}\",\"result\":{result}}}}}"
            )
        };
        for (status, body, said) in [
            (200, "<html><title>Login</title>".to_owned(), "no answer of a Prometheus"),
            (502, "<html>Bad Gateway".to_owned(), "answered 502 Bad Gateway"),
            (200, String::new(), "no answer of a Prometheus"),
            (200, "[]".to_owned(), "no answer of a Prometheus"),
            (200, "{}".to_owned(), "refused the query"),
            (
                400,
                "{\"status\":\"error\",\"errorType\":\"bad_data\",\"error\":\"parse error\"}"
                    .to_owned(),
                "refused the query (400 Bad Request): parse error",
            ),
            (200, "{\"status\":\"success\"}".to_owned(), "without data"),
            (200, vector_of("[1000,\"1\"]", "scalar"), "gives a scalar"),
            (200, vector_of("[]", "matrix"), "gives a matrix"),
            (200, vector_of("7", "vector"), "series that are none"),
            (200, vector_of("[{\"metric\":{},\"value\":[1]}]", "vector"), "series that are none"),
            (200, vector_of("[{\"metric\":{\"a\":1},\"value\":[1,\"1\"]}]", "vector"), "are none"),
        ] {
            let error = take(Signal::Rate, status, &body).expect_err(&body);
            assert!(error.contains(said), "{error} for {body}");
        }
        // Cut anywhere it tells nothing, and nothing panics.
        let good = vector(&[("s1", 1_000.0, "1"), ("s2", 1_000.0, "1")]);
        for at in 0..good.len() {
            assert!(take(Signal::Rate, 200, &good[..at]).is_err(), "{at}");
        }
    }
}
