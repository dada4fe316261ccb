//! Whether the backends answer as expected, and what measuring them costs.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_config::Address;
use plimsoll_control::ServiceView;
use plimsoll_model::Outcome;
use plimsoll_probe::{Probe, ProbeResult, Prober};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::finding::{Finding, Findings};
use crate::config::Service;
use crate::run::translate::{self, ServiceSetup};

/// The part of a backend's capacity that probes may cost.
const BUDGET: f64 = 0.01;

/// Connections that are tried together, each for so long; servers that a finding names.
const AT_ONCE: usize = 128;
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
const NAMED: usize = 5;

/// What one probe and one liveness check of a backend found.
struct Looked {
    at: usize,
    work: Option<Result<ProbeResult, String>>,
    liveness: Option<Result<ProbeResult, String>>,
}

/// Probes every backend of a service once, all at the same time.
pub async fn examine(
    service: &Service,
    setup: &ServiceSetup,
    told: Option<&ServiceView>,
    findings: &mut Findings,
) {
    let mut looks = JoinSet::new();
    let health = service.liveness.as_ref().map(|liveness| {
        Probe::new(liveness.value.request.clone()).map(Arc::new).map_err(|e| e.to_string())
    });
    for (at, id) in translate::numbered(service).into_iter().enumerate() {
        let Some(work) = setup.probes.measured.get(&id).cloned() else { continue };
        let watched = setup.probes.watched.get(&id).unwrap_or(&work).address.clone();
        let health = health.clone();
        looks.spawn(async move {
            let found = match work.probe {
                Some(probe) => Some(once(work.address, probe).await),
                None => None,
            };
            let liveness = match health {
                Some(Ok(probe)) => Some(once(watched, probe).await),
                Some(Err(why)) => Some(Err(why)),
                None => None,
            };
            Looked { at, work: found, liveness }
        });
    }
    let mut looked = looks.join_all().await;
    looked.sort_by_key(|look| look.at);
    let nobody = looked.iter().all(|look| !look.work.as_ref().is_some_and(succeeded));
    for Looked { at, work, liveness } in &looked {
        let name = &service.backends[*at].name;
        let about = format!("{}/{name}", service.name);
        let curves = told.map(|view| view.curves.as_slice()).unwrap_or_default();
        let curve = curves.iter().find(|curve| curve.backend == *name);
        let capacity = curve.map(|curve| curve.capacity_rps);
        if let (Some(work), Some(probe)) = (work, service.probe.as_ref().map(|probe| &probe.value))
        {
            findings.add(answer(&about, "probe", &probe.request.path, work, nobody));
            let latency = work.as_ref().ok().filter(|_| succeeded(work)).map(|r| r.latency);
            // Half a number given leaves the other half to adapt.
            if let (Some(interval), Some(requests)) = (probe.interval, probe.requests) {
                let rate = f64::from(requests) / interval.as_secs_f64();
                findings.append(cost(&about, "probe", rate, capacity, latency));
            }
        }
        if let (Some(liveness), Some(config)) =
            (liveness, service.liveness.as_ref().map(|l| &l.value))
        {
            findings.add(answer(&about, "liveness", &config.request.path, liveness, false));
            let latency = liveness.as_ref().ok().filter(|_| succeeded(liveness)).map(|r| r.latency);
            if let Some(interval) = config.interval {
                let rate = f64::from(config.requests) / interval.as_secs_f64();
                findings.append(cost(&about, "liveness", rate, capacity, latency));
            }
        }
    }
    if service.liveness.is_none() {
        findings.append(unreachable(service).await);
    }
    if service.liveness.is_none() && service.probe.is_none() {
        findings.add(Finding::note(
            &service.name,
            "without `liveness` and `probe`, traffic tells whether a backend does its work, and a bare connection \
             whether one without traffic is there",
        ));
    }
}

/// The servers that take no connection at their address from here.
async fn unreachable(service: &Service) -> Findings {
    let few = Arc::new(Semaphore::new(AT_ONCE));
    let mut tries = JoinSet::new();
    for (at, backend) in service.backends.iter().enumerate() {
        let (address, few) = (backend.address.clone(), few.clone());
        tries.spawn(async move {
            let _one = few.acquire().await;
            let to = (address.host.bare(), address.port);
            let why = match timeout(CONNECT_WITHIN, TcpStream::connect(to)).await {
                Ok(Ok(_)) => return None,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            Some((at, format!("{address}: {why}")))
        });
    }
    let mut failed: Vec<(usize, String)> = tries.join_all().await.into_iter().flatten().collect();
    failed.sort();
    let mut findings = Findings::default();
    let Some((first, why)) = failed.first() else { return findings };
    let names: Vec<&str> =
        failed.iter().take(NAMED).map(|(at, _)| service.backends[*at].name.as_str()).collect();
    let more = if failed.len() > NAMED { ", …" } else { "" };
    findings.add(Finding::warning(
        &service.name,
        format!(
            "{} of {} servers take no connection at their addresses from here: {}{more} ({} {why})",
            failed.len(),
            service.backends.len(),
            names.join(", "),
            service.backends[*first].name,
        ),
        "they are down, or this machine does not reach them as the balancer does (a container, a port map): then traffic \
         and the balancer's own check alone tell whether they live",
    ));
    findings
}

async fn once(address: Address, probe: Arc<Probe>) -> Result<ProbeResult, String> {
    let prober = Prober::new(address, probe, 0).map_err(|error| error.to_string())?;
    prober.probe().await.map_err(|fault| fault.to_string())
}

fn succeeded(result: &Result<ProbeResult, String>) -> bool {
    result.as_ref().is_ok_and(|result| result.outcome == Outcome::Success)
}

fn answer(
    about: &str,
    which: &str,
    path: &str,
    result: &Result<ProbeResult, String>,
    nobody: bool,
) -> Finding {
    let result = match result {
        Ok(result) => result,
        Err(fault) => {
            let what = format!("{which} {path}: this machine cannot probe: {fault}");
            return Finding::error(about, what, "");
        }
    };
    let status = result.status.map(|status| format!("status {status}, ")).unwrap_or_default();
    let ms = result.latency.as_secs_f64() * 1e3;
    match result.outcome {
        Outcome::Success => Finding::ok(about, format!("{which} {path}: {status}{ms:.1} ms")),
        Outcome::Failure(_) if nobody => Finding::error(
            about,
            format!("{which} {path}: {status}{}", result.detail),
            format!("no backend answers as expected: are {which}.path and {which}.expect right?"),
        ),
        Outcome::Failure(_) => Finding::warning(
            about,
            format!("{which} {path}: {status}{}", result.detail),
            "unless clients get answers from it, it is given no traffic until that has changed",
        ),
    }
}

/// What an explicit rate of probes or checks costs: of the capacity where a daemon has learned it, else of one core that
/// is busy for as long as one took.
fn cost(
    about: &str,
    which: &str,
    rate_rps: f64,
    capacity_rps: Option<f64>,
    latency: Option<Duration>,
) -> Findings {
    let mut findings = Findings::default();
    let (part, of) = match (capacity_rps, latency) {
        (Some(capacity), _) if capacity > 0.0 => (rate_rps / capacity, "of its capacity"),
        (_, Some(latency)) => (rate_rps * latency.as_secs_f64(), "of one core"),
        _ => return findings,
    };
    let asked = if which == "probe" { "probes" } else { "checks" };
    let what = format!("{rate_rps:.1} {asked} a second cost {:.1} % {of}", 100.0 * part);
    if part > BUDGET {
        let advice = format!(
            "they are made as they were asked for; leave out {which}.interval and {which}.requests to stay \
             within 1 %"
        );
        findings.add(Finding::warning(about, what, advice));
    } else {
        findings.add(Finding::ok(about, what));
    }
    findings
}
