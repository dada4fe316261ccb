//! From what the configuration means to what each part gets. Nothing here opens a socket; the only
//! file that is read is the one of TLS authorities, where one is named.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_config::{Address, ConfigError, Placed};
use plimsoll_control::{BackendSpec, CheckSpec, ProbeRate, ServiceSpec};
use plimsoll_model::BackendId;
use plimsoll_probe::{
    LivenessCheck, LivenessConfig, LivenessSpec, Probe, ProbeSpec, SpecError, Target,
};
use plimsoll_sink::{Servers, Sinks, Source};

use crate::config;

/// The watch of a service whose configuration names none: a bare connection. It costs a backend next
/// to nothing.
const WATCH_CHECKS: u32 = 1;
const WATCH_TIMEOUT: Duration = Duration::from_secs(1);

/// Everything that the parts of one service get.
#[derive(Clone, Debug)]
pub struct ServiceSetup {
    /// For the controller.
    pub spec: ServiceSpec,
    /// For the probes.
    pub probes: ProbeSetup,
    /// The balancers.
    pub sink: Sinks,
    /// What tells of requests in the place of the balancers' own counters, with the addresses of the servers.
    pub source: Option<(Source, Vec<(String, BackendId)>)>,
    /// Identities and names of its servers.
    pub servers: Servers,
    /// These are what a balancer had when it was last asked.
    pub auto: bool,
}

impl ServiceSetup {
    /// Whether lost requests are reported: where they are not, checks alone show that a server died.
    pub fn reports_losses(&self) -> bool {
        match &self.source {
            Some((Source::Prometheus(_), _)) => false,
            _ => self.sink.reports_losses(),
        }
    }
}

/// What measures the backends, and what watches them.
#[derive(Clone, Debug)]
pub struct ProbeSetup {
    /// The backends to measure, and to watch where that is on the same port.
    pub measured: BTreeMap<BackendId, Target>,
    /// The backends to watch on a port of its own.
    pub watched: BTreeMap<BackendId, Target>,
    /// The part of the gap between two probes that chance may shift them by.
    pub jitter: f64,
}

/// The setup of one service. `ids` are the identities of its backends, in the order of the
/// configuration; `before` is the service as it ran so far, whose probes are kept where they are the
/// same.
///
/// # Errors
/// When a file that the configuration names cannot be used.
pub fn service(
    service: &config::Service,
    ids: &[BackendId],
    observe: bool,
    before: Option<(&config::Service, &ServiceSetup)>,
) -> Result<ServiceSetup, ConfigError> {
    let names = service.backends.iter().map(|backend| backend.name.clone());
    Ok(ServiceSetup {
        spec: spec(service, ids, observe),
        probes: probes(service, ids, before)?,
        sink: service.sink.value.clone(),
        source: service.source.clone().map(|source| (source, addresses(service, ids))),
        servers: ids.iter().copied().zip(names).collect(),
        auto: service.auto,
    })
}

/// By which the lines of a log may call the servers.
fn addresses(service: &config::Service, ids: &[BackendId]) -> Vec<(String, BackendId)> {
    let backends = service.backends.iter().zip(ids);
    backends.map(|(backend, &id)| (backend.address.to_string(), id)).collect()
}

/// Identities where there is no store to give them: 1, 2, 3, …
pub fn numbered(service: &config::Service) -> Vec<BackendId> {
    (1..).map(BackendId).take(service.backends.len()).collect()
}

fn spec(service: &config::Service, ids: &[BackendId], observe: bool) -> ServiceSpec {
    let named = service.backends.iter().zip(ids);
    let backends =
        named.map(|(backend, &id)| BackendSpec { id, name: backend.name.clone() }).collect();
    ServiceSpec {
        objective: service.objective,
        theta: service.theta,
        curve: service.learn.curve,
        drift: service.learn.drift,
        refresh: service.learn.refresh,
        slow_start: service.limits.slow_start,
        latency_factor: service.learn.latency_factor,
        max_step: service.learn.max_step,
        min_change: service.limits.min_change,
        min_interval: service.limits.min_interval,
        probe: service
            .probe
            .as_ref()
            .map(|probe| &probe.value)
            .map(|probe| ProbeRate { interval: probe.interval, requests: probe.requests }),
        checks: service.liveness.as_ref().map_or(CheckSpec::default(), |liveness| CheckSpec {
            requests: liveness.value.requests,
            interval: liveness.value.interval,
        }),
        observe,
        sink: service.sink.value.limits(),
        balancers: service.sink.value.sharing(),
        subsets: service.sink.value.have_subsets(),
        ..ServiceSpec::new(&service.name, backends)
    }
}

fn probes(
    service: &config::Service,
    ids: &[BackendId],
    before: Option<(&config::Service, &ServiceSetup)>,
) -> Result<ProbeSetup, ConfigError> {
    let work = work_probe(service, before)?;
    let liveness = liveness(service, before)?;
    let port = service.liveness.as_ref().and_then(|liveness| liveness.value.port);
    let mut setup = ProbeSetup {
        measured: BTreeMap::new(),
        watched: BTreeMap::new(),
        jitter: service.probe.as_ref().map_or(0.0, |probe| probe.value.jitter),
    };
    for (backend, &id) in service.backends.iter().zip(ids) {
        let target = Target {
            address: backend.address.clone(),
            probe: work.clone(),
            liveness: Some(liveness.clone()),
            max_in_flight: Target::DEFAULT_MAX_IN_FLIGHT,
        };
        let elsewhere = port.filter(|port| *port != backend.address.port);
        if let Some(port) = elsewhere {
            let address = Address { port, ..backend.address.clone() };
            setup.watched.insert(id, Target { address, probe: None, ..target.clone() });
            setup.measured.insert(id, Target { liveness: None, ..target });
        } else {
            setup.measured.insert(id, target);
        }
    }
    Ok(setup)
}

fn work_probe(
    service: &config::Service,
    before: Option<(&config::Service, &ServiceSetup)>,
) -> Result<Option<Arc<Probe>>, ConfigError> {
    let Some(probe) = &service.probe else { return Ok(None) };
    if let Some((was, setup)) = before
        && let Some(was) = &was.probe
        && is_same_request(&was.value.request, &probe.value.request)
        && let Some(target) = setup.probes.measured.values().next()
    {
        return Ok(target.probe.clone());
    }
    made(probe, &probe.value.request).map(Some)
}

fn liveness(
    service: &config::Service,
    before: Option<(&config::Service, &ServiceSetup)>,
) -> Result<LivenessSpec, ConfigError> {
    let Some(liveness) = &service.liveness else {
        let spec = LivenessSpec::new(LivenessCheck::Connect, WATCH_CHECKS, WATCH_TIMEOUT);
        // These constants are within its bounds.
        return spec.map_err(|error| service.sink.problem(error));
    };
    let LivenessConfig { request, requests, .. } = &liveness.value;
    if let Some((was, setup)) = before
        && let Some(old) = &was.liveness
        && is_same_request(&old.value.request, request)
        && old.value.requests == *requests
    {
        let targets = setup.probes.watched.values().chain(setup.probes.measured.values());
        if let Some(spec) = targets.filter_map(|target| target.liveness.as_ref()).next() {
            return Ok(spec.clone());
        }
    }
    let check = LivenessCheck::Http(made(liveness, request)?);
    let spec = LivenessSpec::new(check, *requests, request.timeout);
    spec.map_err(|error| liveness.problem(error))
}

/// The probe of a section; its file of authorities is read.
fn made<T>(section: &Placed<T>, request: &ProbeSpec) -> Result<Arc<Probe>, ConfigError> {
    Probe::new(request.clone()).map(Arc::new).map_err(|error: SpecError| section.problem(error))
}

/// Whether a probe made for the one serves the other. A file of authorities may have changed though
/// its name has not.
fn is_same_request(a: &ProbeSpec, b: &ProbeSpec) -> bool {
    a == b && a.tls.as_ref().is_none_or(|tls| tls.ca_file.is_none())
}

#[cfg(test)]
mod tests {
    use plimsoll_control::{CurveChoice, DriftTest};

    use super::*;

    const LEAST: &str = "services:
  - name: shop
    backends:
      - { name: s1, address: \"127.0.0.1:9001\" }
      - { name: s2, address: \"shop-2.example:9002\" }
    probe: { path: /work }
    sink: { haproxy: { socket: /run/h.sock, backend: pool } }
";
    const NO_PROBE: &str = "    probe: { path: /work }\n";

    fn read(text: &str) -> config::Service {
        config::parse("F", text).expect("a configuration").services.remove(0)
    }

    fn translate(text: &str) -> ServiceSetup {
        let service = read(text);
        super::service(&service, &numbered(&service), false, None).expect("usable")
    }

    #[test]
    fn backends_keep_their_identities_in_every_part() {
        let service = read(LEAST);
        let ids = [BackendId(7), BackendId(3)];
        let setup = super::service(&service, &ids, true, None).expect("usable");
        let named: Vec<(u32, &str)> =
            setup.spec.backends.iter().map(|b| (b.id.0, b.name.as_str())).collect();
        assert_eq!(named, [(7, "s1"), (3, "s2")]);
        assert_eq!(setup.servers, [(BackendId(7), "s1".into()), (BackendId(3), "s2".into())]);
        let address = |id| setup.probes.measured[&BackendId(id)].address.to_string();
        assert_eq!(
            (address(7), address(3)),
            ("127.0.0.1:9001".into(), "shop-2.example:9002".into())
        );
        assert!(setup.spec.observe);
        assert_eq!(setup.spec.sink.range, 0..=256);
    }

    #[test]
    fn goals_and_limits_reach_the_controller() {
        let text = LEAST.to_owned()
            + "    objective: max
    theta: 0.25
    learn: { curve: isotonic, drift: off, refresh: false, latency_factor: 4, max_step: 1.5 }
    limits: { min_change: 0.03, min_interval: 7s, slow_start: 0s }
";
        let text = text.replace("path: /work", "path: /work, interval: 3s, requests: 2");
        let spec = translate(&text).spec;
        assert_eq!((spec.objective, spec.theta), (plimsoll_model::Objective::Max, Some(0.25)));
        assert_eq!((spec.latency_factor, spec.max_step, spec.min_change), (4.0, 1.5, 0.03));
        assert_eq!(spec.min_interval, Duration::from_secs(7));
        assert_eq!(spec.slow_start, Duration::ZERO);
        let learned = (spec.curve, spec.drift, spec.refresh);
        assert_eq!(learned, (CurveChoice::Isotonic, DriftTest::Off, false));
        let asked = Some(ProbeRate { interval: Some(Duration::from_secs(3)), requests: Some(2) });
        assert_eq!(spec.probe, asked);
        let probed = translate(LEAST).spec.probe;
        assert_eq!(probed, Some(ProbeRate::default()));
        let checked = |text: &str| translate(&(LEAST.to_owned() + text)).spec.checks;
        let by_request = CheckSpec { requests: 1, interval: None };
        assert_eq!(checked("    liveness: { path: /health }\n"), by_request);
        let often = CheckSpec { requests: 3, interval: Some(Duration::from_millis(100)) };
        let text = "    liveness: { path: /health, requests: 3, interval: 100ms }\n";
        assert_eq!(checked(text), often);
        let least = translate(&LEAST.replace(NO_PROBE, "")).spec;
        // What is not said is what the controller itself holds for right.
        let ids = [BackendId(1), BackendId(2)];
        let named = ids.map(|id| BackendSpec { id, name: format!("s{}", id.0) });
        let sink = least.sink.clone();
        assert_eq!(least, ServiceSpec { sink, ..ServiceSpec::new("shop", named.to_vec()) });
    }

    #[test]
    fn the_watch_may_be_on_another_port_and_is_never_missing() {
        let bare = translate(LEAST).probes;
        assert!(bare.watched.is_empty());
        let unprobed = translate(&LEAST.replace(NO_PROBE, "")).probes;
        let watched_only = |target: &Target| target.probe.is_none() && target.liveness.is_some();
        assert!(unprobed.measured.values().all(watched_only));
        assert!(bare.measured.values().all(|target| target.liveness.is_some()));
        let same = LEAST.to_owned() + "    liveness: { path: /health }\n";
        assert!(translate(&same).probes.watched.is_empty());
        let other = translate(&same.replace("/health", "/health, port: 9002")).probes;
        let watched = &other.watched[&BackendId(1)];
        assert_eq!(watched.address.to_string(), "127.0.0.1:9002");
        assert!(watched.liveness.is_some());
        assert!(other.measured[&BackendId(1)].liveness.is_none());
        assert!(!other.watched.contains_key(&BackendId(2)), "it has that port itself");
        assert!(other.measured[&BackendId(2)].liveness.is_some());
    }

    #[test]
    fn what_has_not_changed_keeps_its_probes() {
        let text = LEAST.to_owned() + "    liveness: { path: /health }\n";
        let (was, before) = (read(&text), translate(&text));
        let again = |text: &str| {
            let service = read(text);
            let setup = super::service(&service, &numbered(&service), false, Some((&was, &before)));
            setup.expect("usable").probes.measured[&BackendId(1)].probe.clone().expect("a probe")
        };
        let held = before.probes.measured[&BackendId(1)].probe.as_ref().expect("a probe");
        assert!(Arc::ptr_eq(held, &again(&text.replace("9002", "9003"))));
        assert!(!Arc::ptr_eq(held, &again(&text.replace("/work", "/work?n=2"))));
    }

    #[test]
    fn a_file_of_authorities_that_is_not_there_is_a_problem_at_its_section() {
        let text = LEAST.replace("/work", "/work, scheme: https, tls: { ca: /no/such.pem }");
        let service = read(&text);
        let problem =
            super::service(&service, &numbered(&service), false, None).expect_err("no file");
        let text = problem.to_string();
        assert!(
            text.starts_with("F:6:12: services[0].probe: ") && text.contains("/no/such.pem"),
            "{text}"
        );
    }
}
