//! One method under load: a balancer, clients that GET and clients that POST.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_lanes::{
    Daemon, Family, Haproxy, LaneError, Lb, Member, PATIENCE, Server, Steered, find_program,
    program_places, within,
};
use plimsoll_real::wordpress;
use plimsoll_testbed::load::{self, LoadHandle, LoadSpec, Record, Target};

use super::method::{Balancer, Method, Weights};
use super::pool::{Addresses, gets};
use crate::Failure;

/// A bound that no run reaches; runs end their clients.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);
/// It binds within a moment.
const START_WITHIN: Duration = Duration::from_secs(20);

/// The two task types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What clients of one type saw. Those who were not answered within [`PATIENCE`], or wrongly, count with the
/// time that they waited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// How many.
    pub requests: u64,
    /// Not answered as they should.
    pub errors: u64,
    /// Mean response time, milliseconds; not a number when there were none.
    pub mean_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// The part that was not answered within the deadline.
    pub late: f64,
}

impl Seen {
    fn of(records: &[Record], deadline: Duration) -> Self {
        let mut waits: Vec<u32> = records.iter().map(|record| record.latency_us).collect();
        waits.sort_unstable();
        let n = waits.len() as f64;
        let late = |r: &&Record| !r.ok || u128::from(r.latency_us) > deadline.as_micros();
        let rank = (0.99 * waits.len() as f64).ceil() as usize;
        Seen {
            requests: records.len() as u64,
            errors: records.iter().filter(|r| !r.ok).count() as u64,
            mean_ms: waits.iter().map(|&us| f64::from(us)).sum::<f64>() / n / 1e3,
            p99_ms: waits.get(rank.saturating_sub(1)).map_or(0.0, |&us| f64::from(us) / 1e3),
            late: records.iter().filter(late).count() as f64 / n,
        }
    }
}

// Held for what it runs: each ends when it is dropped.
enum Front {
    Haproxy(Haproxy),
    Nginx(Member),
}

/// A balancer under load.
pub struct Lane {
    /// Who balances.
    pub method: Method,
    clients: Vec<(Task, LoadHandle)>,
    daemon: Option<Daemon>,
    front: Front,
    address: SocketAddr,
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
        cores: [u32; 5],
        name: &str,
    ) -> Result<Self, Failure> {
        let weights = match method.weights {
            Weights::Equal => [1; 5],
            Weights::Cores => cores,
        };
        let (front, address) = match method.balancer {
            Balancer::Haproxy(balance) => {
                let server = |((name, address), weight): (&(String, SocketAddr), u32)| Server {
                    name: name.clone(),
                    address: *address,
                    weight,
                };
                let servers: Vec<Server> = servers.iter().zip(weights).map(server).collect();
                let haproxy = Haproxy::start(family, name, balance, &servers, PATIENCE)?;
                let address = haproxy.address();
                (Front::Haproxy(haproxy), address)
            }
            Balancer::Nginx(line) => {
                let (member, address) = nginx(family, name, line, servers, weights)?;
                (Front::Nginx(member), address)
            }
        };
        let daemon = match (&front, method.is_steered) {
            (Front::Haproxy(haproxy), true) => {
                let (lb, socket) = (Lb::Haproxy, haproxy.socket());
                let sockets = vec![socket];
                let steered =
                    Steered { servers, lb, sockets, exploration: None, from_nothing: false };
                Some(Daemon::start(family, &format!("{name}-plimsoll"), &steered)?)
            }
            _ => None,
        };
        Ok(Lane { method, clients: Vec::new(), daemon, front, address })
    }

    /// The same behind a HAProxy of the caller's; `method` is only what it is called.
    pub fn behind(method: Method, haproxy: Haproxy) -> Self {
        let address = haproxy.address();
        Lane { method, clients: Vec::new(), daemon: None, front: Front::Haproxy(haproxy), address }
    }

    /// HAProxy's admin socket; nothing of nginx.
    pub fn socket(&self) -> Option<&std::path::Path> {
        match &self.front {
            Front::Haproxy(haproxy) => Some(haproxy.socket()),
            Front::Nginx(_) => None,
        }
    }

    /// Lets clients of both types come, half of the rate each.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn open(&mut self, rate_rps: f64, seed: u64) -> Result<(), Failure> {
        for (i, task) in (0..).zip(Task::ALL) {
            let spec = load_of(self.address, task, rate_rps / 2.0, seed.wrapping_add(i))?;
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
        let front = || match &mut self.front {
            Front::Haproxy(haproxy) => haproxy.ended(),
            Front::Nginx(member) => member.ended(),
        };
        daemon.or_else(front).map_or(Ok(()), |ended| Err(ended.into()))
    }

    /// Ends the clients, waits for the last of them, and tells what those saw who started between these
    /// two moments.
    ///
    /// # Errors
    /// When clients have died.
    pub fn finish(
        mut self,
        from: Instant,
        to: Instant,
        deadline: Duration,
    ) -> Result<Vec<(Task, Seen)>, Failure> {
        self.clients.iter().for_each(|(_, clients)| clients.stop());
        let mut all = Vec::new();
        for (task, clients) in self.clients.drain(..) {
            let started = clients.started();
            let report = clients.join().map_err(LaneError::from)?;
            let stretch = from - started..to - started;
            all.push((task, Seen::of(within(&report.records, &stretch), deadline)));
        }
        Ok(all)
    }
}

fn load_of(address: SocketAddr, task: Task, rate_rps: f64, seed: u64) -> Result<LoadSpec, Failure> {
    let target = Target::resolve(&format!("http://{address}/")).map_err(Failure::Other)?;
    let mut spec = LoadSpec::poisson(target, rate_rps, LONGEST);
    (spec.timeout, spec.seed, spec.keep_records) = (PATIENCE, seed, true);
    spec.method = task.name().to_owned();
    spec.mix = match task {
        Task::Get => gets(),
        Task::Post => wordpress::posts(),
    };
    if task == Task::Post {
        spec.headers = vec![(wordpress::FORM.0.to_owned(), wordpress::FORM.1.to_owned())];
    }
    Ok(spec)
}

fn nginx(
    family: &Family,
    name: &str,
    line: &str,
    servers: &Addresses,
    weights: [u32; 5],
) -> Result<(Member, SocketAddr), Failure> {
    let program = find_program("nginx", program_places()).ok_or_else(|| {
        Failure::Other(
            "nginx is not installed; on Debian and Ubuntu: apt-get install nginx-light".into(),
        )
    })?;
    let dir = family.dir().join(name);
    std::fs::create_dir_all(&dir).map_err(Failure::file("make a directory for nginx"))?;
    // A port that was free a moment ago: nginx takes no descriptor.
    let address = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    let address = address.map_err(Failure::file("find a free port"))?;
    let place = dir.display();
    let mut text = format!(
        "daemon off;\nworker_processes 1;\npid {place}/pid;\nerror_log stderr;\nevents {{ worker_connections \
         8000; }}\nhttp {{\n    access_log off;\n    keepalive_requests 1000000;\n"
    );
    for part in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(text, "    {part}_temp_path {place}/{part};");
    }
    let _ = writeln!(text, "    upstream pool {{\n        {line}\n        keepalive 256;");
    for ((_, address), weight) in servers.iter().zip(weights) {
        let _ = writeln!(text, "        server {address} weight={weight} max_fails=0;");
    }
    let _ = writeln!(
        text,
        "    }}\n    server {{\n        listen {address};\n        location / {{\n            proxy_pass \
         http://pool;\n            proxy_http_version 1.1;\n            proxy_set_header Connection \"\";\n            \
         proxy_set_header Host $host;\n            proxy_read_timeout {}s;\n        }}\n    }}\n}}",
        PATIENCE.as_secs() + 2
    );
    let file = dir.join("nginx.conf");
    std::fs::write(&file, text).map_err(Failure::file("write nginx's configuration"))?;
    let mut command = Command::new(program);
    command.args(["-e", "stderr", "-p"]).arg(&dir).arg("-c").arg(&file).stdin(Stdio::null());
    let mut member = family.spawn(name, &mut command).map_err(Failure::file("start nginx"))?;
    let end = Instant::now() + START_WITHIN;
    while std::net::TcpStream::connect(address).is_err() {
        if let Some(ended) = member.ended() {
            return Err(ended.into());
        }
        if Instant::now() > end {
            return Err(Failure::Other(format!("nginx does not listen at {address}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok((member, address))
}
