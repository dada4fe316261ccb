//! One cell: it runs, and is kept in a file.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_lanes::{
    Balancers, CpuClock, Family, Interrupt, LaneError, Measured, PATIENCE, Peer, Pool, Server,
    envoy_version, haproxy_version,
};
use plimsoll_testbed::Testbed;
use plimsoll_testbed::load::{self, LoadHandle, LoadSpec, Record, Target};
use serde::{Deserialize, Serialize};

use super::Args;

const BLINK: Duration = Duration::from_millis(100);
/// The most of the capacity that clients ask for while a balancer learns: an overload is as long for all, or what queued up
/// while one learned would count against it.
const LEARNS_AT: f64 = 0.85;

/// Which cell, in which round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    pub peer: Peer,
    pub balancers: u32,
    pub load: f64,
    pub round: u32,
}

impl Place {
    /// Unique within a run.
    pub fn name(&self) -> String {
        let Place { peer, balancers, load, round } = self;
        format!("{}-{balancers}-{load}-{round}", peer.name())
    }
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The balancer.
    pub peer: String,
    /// How many.
    pub balancers: u32,
    /// The part of the pool's capacity that was asked for.
    pub load: f64,
    /// Which round.
    pub round: u32,
    /// What it was run with: another run with the same takes this for its own.
    pub settings: String,
    /// Requests per second of all clients.
    pub rate_rps: f64,
    /// Requests, errors included.
    pub requests: u64,
    /// Those refused, failed, or not answered within the clients' patience.
    pub failed: u64,
    /// Mean response time of the others, milliseconds.
    pub mean_ms: Option<f64>,
    /// Its standard error, by batches of time.
    pub error_ms: Option<f64>,
    /// Median.
    pub p50_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// How busy the machine was while it was measured, 0…1.
    pub busy: Option<f64>,
    /// How late clients sent, 99th percentile, microseconds: the generator's part of the response times.
    pub lateness_p99_us: u64,
    /// What failed first, in words.
    pub first_error: Option<String>,
}

impl Cell {
    /// Requests that failed, percent.
    pub fn failed_percent(&self) -> f64 {
        100.0 * self.failed as f64 / self.requests.max(1) as f64
    }

    /// A line of progress.
    pub fn line(&self) -> String {
        format!(
            "{}, {} balancers, load {}, round {}: mean {:.1} ms, p99 {:.1} ms, {:.2} % failed",
            self.peer,
            self.balancers,
            self.load,
            self.round,
            self.mean_ms.unwrap_or(f64::NAN),
            self.p99_ms.unwrap_or(f64::NAN),
            self.failed_percent()
        )
    }
}

/// What was built and installed when a cell ran.
#[derive(Clone, Debug)]
pub struct Versions {
    commit: Option<String>,
    envoy: Option<String>,
    haproxy: Option<String>,
}

impl Versions {
    /// Those of this program and of this machine.
    pub fn found(envoy: Option<&Path>) -> Self {
        Versions {
            commit: plimsoll_papers::commit().map(str::to_owned),
            envoy: envoy.and_then(envoy_version),
            haproxy: haproxy_version(),
        }
    }
}

/// What a cell's numbers depend on beside its place.
pub fn settings(args: &Args, peer: Peer, versions: &Versions) -> String {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let program = match peer {
        Peer::EnvoyLeastRequest | Peer::EnvoyAdaptive => {
            format!(", Envoy {}", known(&versions.envoy))
        }
        Peer::HaproxyLeastconn | Peer::HaproxyPlimsoll => format!(", {}", known(&versions.haproxy)),
        _ => String::new(),
    };
    format!(
        "{:?} {:?} {:?} measured {:?} after {:?} or {:?}, seed {}, commit {}{program}",
        args.pool,
        args.service,
        args.distribution,
        args.seconds,
        args.warmup,
        args.learn,
        args.seed,
        known(&versions.commit)
    )
}

/// One that was run with the same settings before; nothing where there is none.
///
/// # Errors
/// When it cannot be read, or was run with others.
pub fn read(file: &Path, settings: &str) -> Result<Option<Cell>, String> {
    let text = match std::fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| format!("{}: {error}", file.display()))?,
    };
    let cell: Cell = serde_json::from_slice(&text)
        .map_err(|error| format!("{}: {error}; remove it to begin anew", file.display()))?;
    if cell.settings == settings {
        return Ok(Some(cell));
    }
    Err(format!(
        "{} is a cell of another run ({}; this one has {settings}): give another --out, or remove it to begin anew",
        file.display(),
        cell.settings
    ))
}

/// Written beside, and renamed: no file is half a cell.
pub fn write(file: &Path, cell: &Cell) -> io::Result<()> {
    let next = file.with_extension("next");
    std::fs::write(&next, serde_json::to_vec_pretty(cell)?)?;
    std::fs::rename(next, file)
}

/// Runs a cell; nothing when interrupted.
///
/// # Errors
/// When a part of it does not start, or dies.
pub fn run(
    args: &Args,
    pool: &Pool,
    (place, settings): (Place, String),
    envoy: Option<&Path>,
    interrupt: &Interrupt,
) -> Result<Option<Cell>, LaneError> {
    let family = Family::start()?;
    let bed = Testbed::start(pool.testbed())?;
    let server =
        |(name, address): &(String, _)| Server { name: name.clone(), address: *address, weight: 1 };
    let servers: Vec<Server> = bed.addresses().iter().map(server).collect();
    let many = (place.peer, place.balancers as usize);
    let mut balancers = Balancers::start(&family, "cell", many, &servers, envoy)?;
    let wait = |time: Duration, balancers: &mut Balancers| {
        let until = Instant::now() + time;
        while Instant::now() < until {
            if interrupt.came() {
                return Ok(false);
            }
            balancers.check()?;
            std::thread::sleep(BLINK.min(until.saturating_duration_since(Instant::now())));
        }
        Ok::<bool, LaneError>(true)
    };
    let addresses = balancers.addresses().to_vec();
    if place.peer.learns() {
        let times = (Duration::ZERO, args.learn);
        let learning = clients(&addresses, pool, LEARNS_AT.min(place.load) / place.load, times)?;
        if !wait(args.learn, &mut balancers)? {
            return Ok(None);
        }
        learning.into_iter().try_for_each(|one| one.join().map(drop))?;
    }
    let clients = clients(&addresses, pool, 1.0, (args.warmup, args.seconds))?;
    if !wait(args.warmup, &mut balancers)? {
        return Ok(None);
    }
    let cpu = CpuClock::now();
    if !wait(args.seconds, &mut balancers)? {
        return Ok(None);
    }
    let busy = cpu.and_then(|cpu| cpu.busy_share());
    let reports = clients.into_iter().map(LoadHandle::join).collect::<Result<Vec<_>, _>>()?;
    let mut records: Vec<Record> =
        reports.iter().flat_map(|report| report.records.iter().copied()).collect();
    records.sort_unstable_by_key(|record| record.start_ns);
    let stretch = args.warmup..args.warmup + args.seconds;
    let measured = Measured::over(&records, std::slice::from_ref(&stretch));
    let Measured { requests, errors: failed, mean_ms, error_ms, p50_ms, p99_ms } = measured;
    let first_error = reports.iter().find_map(|report| report.first_error.clone());
    let lateness = reports.iter().map(|report| report.start_lateness_p99_us).max();
    Ok(Some(Cell {
        peer: place.peer.name().to_owned(),
        balancers: place.balancers,
        load: place.load,
        round: place.round,
        settings,
        rate_rps: pool.rate_rps,
        requests,
        failed,
        mean_ms,
        error_ms,
        p50_ms,
        p99_ms,
        busy,
        lateness_p99_us: lateness.unwrap_or(0),
        first_error,
    }))
}

/// Poisson arrivals at every balancer, which are Poisson arrivals of all: this part of the pool's rate, for a warm-up that is
/// not measured and a time that is.
fn clients(
    addresses: &[SocketAddr],
    pool: &Pool,
    part: f64,
    (warmup, seconds): (Duration, Duration),
) -> Result<Vec<LoadHandle>, LaneError> {
    let start = |(i, address): (usize, &SocketAddr)| {
        let target = Target::resolve(&format!("http://{address}/work"))
            .map_err(|problem| load::LoadError::Invalid(vec![problem]))?;
        let rate_rps = part * pool.rate_rps / addresses.len() as f64;
        let mut spec = LoadSpec::poisson(target, rate_rps, seconds);
        (spec.warmup, spec.timeout, spec.keep_records) = (warmup, PATIENCE, true);
        spec.seed = pool.seed.wrapping_mul(100).wrapping_add(i as u64);
        Ok(load::start(spec)?)
    };
    addresses.iter().enumerate().map(start).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_cell_of_another_commit_or_another_envoy_is_not_taken() {
        let args = Line::try_parse_from(["peers"]).unwrap().args;
        let versions = |commit: &str, envoy: &str| Versions {
            commit: Some(commit.to_owned()),
            envoy: Some(envoy.to_owned()),
            haproxy: Some("HAProxy version 2.6".to_owned()),
        };
        let of = |peer, commit, envoy| settings(&args, peer, &versions(commit, envoy));
        let envoy = of(Peer::EnvoyAdaptive, "a1", "1.31");
        assert_ne!(envoy, of(Peer::EnvoyAdaptive, "b2", "1.31"));
        assert_ne!(envoy, of(Peer::EnvoyAdaptive, "a1", "1.32"));
        assert_eq!(of(Peer::Bloc, "a1", "1.31"), of(Peer::Bloc, "a1", "1.32"), "it has no Envoy");
        assert!(of(Peer::HaproxyLeastconn, "a1", "1.31").ends_with("HAProxy version 2.6"));

        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cell.json");
        assert_eq!(read(&file, &envoy), Ok(None));
        let cell = Cell {
            peer: "envoy-adaptive".to_owned(),
            balancers: 1,
            load: 0.7,
            round: 1,
            settings: envoy.clone(),
            rate_rps: 10.0,
            requests: 1,
            failed: 0,
            mean_ms: Some(1.0),
            error_ms: None,
            p50_ms: None,
            p99_ms: None,
            busy: None,
            lateness_p99_us: 0,
            first_error: None,
        };
        write(&file, &cell).unwrap();
        assert_eq!(read(&file, &envoy), Ok(Some(cell)));
        let why = read(&file, &of(Peer::EnvoyAdaptive, "b2", "1.31")).unwrap_err();
        assert!(
            why.contains("commit a1") && why.contains("commit b2") && why.contains("--out"),
            "{why}"
        );
        std::fs::write(&file, "{}").unwrap();
        assert!(read(&file, &envoy).unwrap_err().contains("remove it"));
    }
}
