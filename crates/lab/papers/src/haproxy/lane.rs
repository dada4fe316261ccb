//! One method under load: a balancer, clients that GET and clients that POST.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use plimsoll_lanes::{
    Daemon, Envoy, Family, Given, Haproxy, LaneError, Lb, Nginx, PATIENCE, Proxy, Server, Steered,
    within,
};
use plimsoll_real::wordpress;
use plimsoll_testbed::load::{self, Asked, LoadHandle, LoadSpec, Record, Target};
use serde::{Deserialize, Deserializer, Serialize};

use super::method::{Balancer, Method, Weights};
use super::pool::Addresses;
use crate::Failure;

/// A bound that no run reaches; runs end their clients.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// The two task types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Fetches a page.
    Get,
    /// Adds a comment.
    Post,
}

impl Task {
    /// Both.
    pub const ALL: [Task; 2] = [Task::Get, Task::Post];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Task::Get => "GET",
            Task::Post => "POST",
        }
    }
}

/// What clients of one type saw. Those who were not answered, or wrongly, count with [`PATIENCE`], however fast they
/// were refused: a method shall not look good by failing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// How many.
    pub requests: u64,
    /// Not answered as they should.
    pub errors: u64,
    /// Mean response time, milliseconds; not a number when there were none.
    #[serde(deserialize_with = "number")]
    pub mean_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// The part that was not answered within the deadline; not a number when there were none.
    #[serde(deserialize_with = "number")]
    pub late: f64,
    /// How long those waited who got no answer or a wrong one, in the mean, milliseconds; not a number when there
    /// were none.
    #[serde(deserialize_with = "number")]
    pub refused_ms: f64,
    /// Mean response time of the answered ones alone, milliseconds; not a number when there were none.
    #[serde(deserialize_with = "number")]
    pub answered_ms: f64,
}

/// JSON has `null` for what is not a number.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

impl Seen {
    fn of(records: &[Record], deadline: Duration) -> Self {
        let mut waits: Vec<u32> = records.iter().map(counted_us).collect();
        waits.sort_unstable();
        let n = waits.len() as f64;
        let late = |r: &&Record| !r.ok || u128::from(r.latency_us) > deadline.as_micros();
        let mean_ms = |ok| {
            let ms =
                || records.iter().filter(|r| r.ok == ok).map(|r| f64::from(r.latency_us) / 1e3);
            ms().sum::<f64>() / ms().count() as f64
        };
        let rank = (0.99 * waits.len() as f64).ceil() as usize;
        Seen {
            requests: records.len() as u64,
            errors: records.iter().filter(|r| !r.ok).count() as u64,
            mean_ms: waits.iter().map(|&us| f64::from(us)).sum::<f64>() / n / 1e3,
            p99_ms: waits.get(rank.saturating_sub(1)).map_or(0.0, |&us| f64::from(us) / 1e3),
            late: records.iter().filter(late).count() as f64 / n,
            refused_ms: mean_ms(false),
            answered_ms: mean_ms(true),
        }
    }
}

/// What a request counts with, microseconds.
fn counted_us(record: &Record) -> u32 {
    if record.ok { record.latency_us } else { record.latency_us.max(PATIENCE.as_micros() as u32) }
}

// Held for what it runs: each ends when it is dropped.
enum Front {
    Haproxy(Haproxy),
    Nginx(Nginx),
    Envoy(Envoy),
    Proxy(Proxy),
}

impl Front {
    fn start(
        family: &Family,
        balancer: Balancer,
        servers: &[Server],
        name: &str,
    ) -> Result<Self, LaneError> {
        Ok(match balancer {
            Balancer::Haproxy(balance) => {
                Front::Haproxy(Haproxy::start(family, name, balance, servers, PATIENCE)?)
            }
            Balancer::Nginx(line) => {
                Front::Nginx(Nginx::start(family, name, line, servers, PATIENCE)?)
            }
            Balancer::Envoy(policy) => {
                Front::Envoy(Envoy::start(family, name, policy, servers, PATIENCE)?)
            }
            Balancer::Proxy(policy) => {
                Front::Proxy(Proxy::start(family, name, policy, servers, PATIENCE)?)
            }
        })
    }

    fn address(&self) -> SocketAddr {
        match self {
            Front::Haproxy(front) => front.address(),
            Front::Nginx(front) => front.address(),
            Front::Envoy(front) => front.address(),
            Front::Proxy(front) => front.address(),
        }
    }

    fn ended(&mut self) -> Option<LaneError> {
        match self {
            Front::Haproxy(front) => front.ended(),
            Front::Nginx(front) => front.ended(),
            Front::Envoy(front) => front.ended(),
            Front::Proxy(front) => front.ended(),
        }
    }
}

/// What clients ask for: GETs and POSTs, each as likely as the others of its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asks {
    /// Pages.
    pub gets: Vec<Asked>,
    /// Comments.
    pub posts: Vec<Asked>,
    /// What every request has beside `Host` and, of a POST, its body's headers.
    pub headers: Vec<(String, String)>,
}

/// A balancer under load.
pub struct Lane {
    /// The balancer.
    pub method: Method,
    clients: Vec<(Task, LoadHandle)>,
    daemon: Option<Daemon>,
    front: Front,
}

impl Lane {
    /// A balancer without clients, in front of these servers with these cores.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(
        family: &Family,
        method: Method,
        servers: &Addresses,
        cores: &[u32],
        name: &str,
    ) -> Result<Self, Failure> {
        let server = |((name, address), &cores): (&(String, SocketAddr), &u32)| {
            let weight = match method.weights {
                Weights::Equal => 1,
                Weights::Cores => cores,
            };
            Server { name: name.clone(), address: *address, weight }
        };
        let list: Vec<Server> = servers.iter().zip(cores).map(server).collect();
        let front = Front::start(family, method.balancer, &list, name)?;
        let daemon = match (&front, method.is_steered) {
            (Front::Haproxy(haproxy), true) => {
                let (lb, socket) = (Lb::Haproxy, haproxy.socket());
                let sockets = vec![socket];
                let steered = Steered { servers, lb, sockets, given: Given::Configuration };
                Some(Daemon::start(family, &format!("{name}-plimsoll"), &steered)?)
            }
            _ => None,
        };
        Ok(Lane { method, clients: Vec::new(), daemon, front })
    }

    /// The same behind a HAProxy of the caller's; `method` is only what it is called.
    pub fn behind(method: Method, haproxy: Haproxy) -> Self {
        Lane { method, clients: Vec::new(), daemon: None, front: Front::Haproxy(haproxy) }
    }

    /// The same behind a proxy of the caller's.
    pub fn behind_proxy(method: Method, proxy: Proxy) -> Self {
        Lane { method, clients: Vec::new(), daemon: None, front: Front::Proxy(proxy) }
    }

    /// The admin socket of HAProxy or of our proxy; nothing of the others.
    pub fn socket(&self) -> Option<&std::path::Path> {
        match &self.front {
            Front::Haproxy(haproxy) => Some(haproxy.socket()),
            Front::Proxy(proxy) => Some(proxy.socket()),
            Front::Nginx(_) | Front::Envoy(_) => None,
        }
    }

    /// Lets clients of both types come, half of the rate each.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn open(&mut self, asks: &Asks, rate_rps: f64, seed: u64) -> Result<(), Failure> {
        let address = self.front.address();
        for (i, task) in (0..).zip(Task::ALL) {
            let spec = load_of(address, asks, task, rate_rps / 2.0, seed.wrapping_add(i))?;
            self.clients.push((task, load::start(spec).map_err(LaneError::from)?));
        }
        Ok(())
    }

    /// Whether every part of it lives.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&mut self) -> Result<(), Failure> {
        let daemon = self.daemon.as_mut().and_then(Daemon::ended);
        daemon.or_else(|| self.front.ended()).map_or(Ok(()), |ended| Err(ended.into()))
    }

    /// The Plimsoll that steers it, if one does.
    pub fn daemon(&self) -> Option<&Daemon> {
        self.daemon.as_ref()
    }

    /// How many requests have ended, and how many of them without an answer or with a wrong one.
    ///
    /// # Errors
    /// When clients have died.
    pub fn answered(&self) -> Result<(u64, u64), Failure> {
        let mut sum = (0, 0);
        for (_, clients) in &self.clients {
            let ended = || Failure::Other("clients have stopped".to_owned());
            let total = clients.snapshot().ok_or_else(ended)?.total;
            sum = (sum.0 + total.requests, sum.1 + total.errors);
        }
        Ok(sum)
    }

    /// Ends the clients, waits for the last of them, and tells what those saw who started between these
    /// two moments.
    ///
    /// # Errors
    /// When clients have died.
    pub fn finish(
        self,
        from: Instant,
        to: Instant,
        deadline: Duration,
    ) -> Result<Vec<(Task, Seen)>, Failure> {
        let all = self.records(from, to)?;
        Ok(all.into_iter().map(|(task, records)| (task, Seen::of(&records, deadline))).collect())
    }

    /// The same of both types together, and the mean response time of each of so many batches of time, milliseconds;
    /// nothing of a batch without requests.
    ///
    /// # Errors
    /// When clients have died.
    pub fn finish_together(
        self,
        from: Instant,
        to: Instant,
        deadline: Duration,
        batches: u32,
    ) -> Result<(Seen, Vec<Option<f64>>), Failure> {
        let all: Vec<Record> =
            self.records(from, to)?.into_iter().flat_map(|(_, records)| records).collect();
        let length = (to - from) / batches;
        let mut sums = vec![(0.0, 0.0); batches as usize];
        for record in &all {
            let batch = u128::from(record.start_ns) / length.as_nanos().max(1);
            if let Some((sum, count)) = sums.get_mut(batch as usize) {
                *sum += f64::from(counted_us(record)) / 1e3;
                *count += 1.0;
            }
        }
        let mean = |(sum, count): &(f64, f64)| (*count > 0.0).then(|| sum / count);
        Ok((Seen::of(&all, deadline), sums.iter().map(mean).collect()))
    }

    /// What started between these two moments, by the clock that reads zero at the first.
    fn records(mut self, from: Instant, to: Instant) -> Result<Vec<(Task, Vec<Record>)>, Failure> {
        self.clients.iter().for_each(|(_, clients)| clients.stop());
        let mut all = Vec::new();
        for (task, clients) in self.clients.drain(..) {
            // The caller asks for what happened since it opened the lane.
            let begin = from.saturating_duration_since(clients.started());
            let stretch = begin..to.saturating_duration_since(clients.started());
            let report = clients.join().map_err(LaneError::from)?;
            let since = |record: &Record| Record {
                start_ns: record.start_ns - begin.as_nanos() as u64,
                ..*record
            };
            all.push((task, within(&report.records, &stretch).iter().map(since).collect()));
        }
        Ok(all)
    }
}

fn load_of(
    address: SocketAddr,
    asks: &Asks,
    task: Task,
    rate_rps: f64,
    seed: u64,
) -> Result<LoadSpec, Failure> {
    let target = Target::resolve(&format!("http://{address}/")).map_err(Failure::Other)?;
    let mut spec = LoadSpec::poisson(target, rate_rps, LONGEST);
    (spec.timeout, spec.seed, spec.keep_records) = (PATIENCE, seed, true);
    spec.method = task.name().to_owned();
    spec.mix = match task {
        Task::Get => asks.gets.clone(),
        Task::Post => asks.posts.clone(),
    };
    spec.headers.clone_from(&asks.headers);
    if task == Task::Post {
        spec.headers.push((wordpress::FORM.0.to_owned(), wordpress::FORM.1.to_owned()));
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_without_requests_are_read_back_as_not_a_number() {
        let seen = Seen::of(&[], Duration::from_secs(1));
        let text = serde_json::to_string(&seen).unwrap();
        let read: Seen = serde_json::from_str(&text).unwrap();
        assert!(read.mean_ms.is_nan() && read.late.is_nan() && read.refused_ms.is_nan(), "{text}");
        assert_eq!(read.requests, 0);
    }

    #[test]
    fn those_without_an_answer_count_with_the_patience_and_are_late() {
        let record = |ms: u32, ok| Record { start_ns: 0, latency_us: ms * 1_000, ok };
        let records = [record(10, true), record(30, true), record(80, true), record(4, false)];
        let seen = Seen::of(&records, Duration::from_millis(50));
        assert_eq!((seen.requests, seen.errors, seen.mean_ms), (4, 1, 2_530.0));
        assert_eq!((seen.p99_ms, seen.late), (10_000.0, 0.5));
        assert_eq!((seen.refused_ms, seen.answered_ms), (4.0, 40.0));
    }
}
