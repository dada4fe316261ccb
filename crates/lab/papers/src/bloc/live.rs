//! The paper's cluster with real proxies and real connections: clients, a gateway, frontends that balance, backends
//! with an ingress before each. Only the work of the backends is emulated.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_config::Document;
use plimsoll_lanes::{LOOPBACK, ProxySection};
use plimsoll_proxy::{Proxy, ProxyConfig};
use plimsoll_testbed::load::{self, Arrivals, LoadHandle, LoadReport, LoadSpec, Record, Target};
use plimsoll_testbed::{BackendSpec, Service, Testbed, TestbedSpec};
use serde_json::{Value, json};

use super::cluster::{BACKENDS, Load, SERVICE_MS};
use crate::Failure;

/// One way to balance.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Its name in tables.
    pub name: &'static str,
    /// Keys of a frontend's pool.
    pub pool: fn() -> Value,
    /// Keys of the ingress before each backend; none: there is none.
    pub ingress: Option<fn() -> Value>,
}

/// What runs for one case, from the clients to the backends; it ends when dropped.
pub struct Running {
    clients: LoadHandle,
    warm_up: Duration,
    /// Dropped after the clients, from the front to the back.
    _proxies: Vec<Proxy>,
    _backends: Testbed,
}

/// Starts a case: load for so long after a warm-up.
///
/// # Errors
/// When the system has no ports, threads or descriptors left.
pub fn start(
    way: &Way,
    frontends: u32,
    load: Load,
    (warm_up, duration): (Duration, Duration),
    seed: u64,
) -> Result<Running, Failure> {
    let service = Service::deterministic(Duration::from_secs_f64(SERVICE_MS / 1e3));
    let backend = |i| BackendSpec { seed, ..BackendSpec::new(format!("b{i}"), service) };
    let backends = (0..BACKENDS).map(backend).collect();
    let backends = Testbed::start(TestbedSpec { admin: None, backends })
        .map_err(|error| Failure::Other(error.to_string()))?;
    let mut addresses: Vec<SocketAddr> =
        backends.addresses().iter().map(|(_, address)| *address).collect();
    let mut proxies = Vec::new();
    if let Some(keys) = way.ingress {
        addresses = behind(&mut proxies, &ingress(&addresses, &keys()))?;
    }
    addresses = behind(&mut proxies, &egress(frontends, (way.pool)(), &addresses))?;
    let front = behind(&mut proxies, &egress(1, json!({ "policy": "random" }), &addresses))?;
    let (arrivals, concurrency) = match load {
        Load::Closed(users) => (Arrivals::Closed, Some(users as usize)),
        Load::Open(rate_rps) => {
            (Arrivals::Open { pattern: load::Pattern::Poisson, rate_rps }, None)
        }
    };
    let target = Target::resolve(&format!("http://{}/", front[0])).map_err(Failure::Other)?;
    let spec = LoadSpec {
        arrivals,
        concurrency,
        // `hey -disable-keepalive`.
        headers: vec![("Connection".to_owned(), "close".to_owned())],
        warmup: warm_up,
        seed,
        keep_records: true,
        ..LoadSpec::poisson(target, 0.0, duration)
    };
    let clients = load::start(spec).map_err(|error| Failure::Other(error.to_string()))?;
    // A proxy that is dropped ends at once; the front goes first.
    proxies.reverse();
    Ok(Running { clients, warm_up, _proxies: proxies, _backends: backends })
}

/// Starts a proxy, each of whose entries listens on a port of the system's choosing.
fn behind(proxies: &mut Vec<Proxy>, section: &Value) -> Result<Vec<SocketAddr>, Failure> {
    let document = Document::parse("cluster", &section.to_string());
    let read = document.and_then(|document| {
        document.read(|c| c.fields(&["proxy"])?.required("proxy", "a section", ProxyConfig::read))
    });
    let mut config = read.map_err(|errors| Failure::Other(format!("{errors:?}\n{section}")))?;
    config.ingress.iter_mut().for_each(|entry| entry.listen.set_port(0));
    config.egress.iter_mut().for_each(|entry| entry.listen.set_port(0));
    let proxy = Proxy::start(&config).map_err(|error| Failure::Other(error.to_string()))?;
    let addresses = proxy.addresses().into_iter().map(|(_, address)| address).collect();
    proxies.push(proxy);
    Ok(addresses)
}

/// Entry after entry; [`behind`] gives each a port of its own.
fn placeholder(i: usize) -> SocketAddr {
    ([127, 0, 0, 1], i as u16 + 1).into()
}

fn ingress(applications: &[SocketAddr], keys: &Value) -> Value {
    let mut all = json!({ "trust": LOOPBACK });
    if let (Some(all), Some(keys)) = (all.as_object_mut(), keys.as_object()) {
        all.extend(keys.clone());
    }
    let entry = |section: ProxySection, (i, application): (usize, &SocketAddr)| {
        section.ingress(&format!("i{i}"), placeholder(i), *application, all.clone())
    };
    applications.iter().enumerate().fold(ProxySection::default(), entry).file()
}

fn egress(entries: u32, pool: Value, backends: &[SocketAddr]) -> Value {
    let entry = |section: ProxySection, i: u32| {
        section.egress(&format!("f{i}"), placeholder(i as usize), json!({}))
    };
    let section = (0..entries).fold(ProxySection::default(), entry);
    let names: Vec<String> = (0..backends.len()).map(|i| format!("b{i}")).collect();
    let backends = names.iter().zip(backends).map(|(name, address)| (name.as_str(), *address, 1));
    section.pool("p", backends, pool).file()
}

/// What clients saw.
#[derive(Debug)]
pub struct Seen {
    /// Seconds, in order, of those that were answered.
    pub times_s: Vec<f64>,
    /// How many failed, of all.
    pub failed: u64,
    /// What failed first, in words.
    pub first_error: Option<String>,
}

impl Running {
    /// Whether it goes on.
    pub fn is_running(&self) -> bool {
        !self.clients.is_finished()
    }

    /// Waits for the last answer.
    ///
    /// # Errors
    /// When the clients have broken.
    pub fn seen(self) -> Result<Seen, Failure> {
        let Running { clients, warm_up, .. } = self;
        let report: LoadReport =
            clients.join().map_err(|error| Failure::Other(error.to_string()))?;
        let from = u64::try_from(warm_up.as_nanos()).unwrap_or(u64::MAX);
        let counted = report.records.iter().filter(|record| record.start_ns >= from);
        let (ok, failed): (Vec<&Record>, Vec<&Record>) = counted.partition(|record| record.ok);
        let mut times_s: Vec<f64> =
            ok.iter().map(|record| f64::from(record.latency_us) / 1e6).collect();
        times_s.sort_by(f64::total_cmp);
        Ok(Seen { times_s, failed: failed.len() as u64, first_error: report.first_error })
    }
}

impl Seen {
    /// This quantile, seconds.
    pub fn at(&self, quantile: f64) -> f64 {
        let rank = (quantile * self.times_s.len().saturating_sub(1) as f64) as usize;
        self.times_s.get(rank).copied().unwrap_or(f64::NAN)
    }

    /// From the 10th to the 90th percentile, seconds.
    pub fn range(&self) -> f64 {
        self.at(0.9) - self.at(0.1)
    }

    /// Percent of the requests.
    pub fn failed_percent(&self) -> f64 {
        100.0 * self.failed as f64 / (self.failed as usize + self.times_s.len()).max(1) as f64
    }
}
