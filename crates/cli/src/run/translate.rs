//! From what the configuration means to what each part is told. Nothing here opens a socket; the only
//! file that is read is the one of TLS authorities, where one is named.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_control::{BackendSpec, CheckSpec, CurveChoice, Exploration, ProbeRate, ServiceSpec};
use plimsoll_model::{BackendId, SinkLimits};
use plimsoll_probe::{
    Address, Connection, LivenessCheck, LivenessSpec, Probe, ProbeSpec, Scheme, StatusSet, Target,
    TlsSpec,
};
use plimsoll_sink::{HaproxyConfig, L4SinkConfig, SocketAddress};

use super::sink::{self, Place};
use super::sink_task::Poll;
use crate::config;

/// The watch of a service whose configuration names none: a bare connection. It costs a backend next
/// to nothing.
const WATCH_CHECKS: u32 = 1;
const WATCH_TIMEOUT: Duration = Duration::from_secs(1);

/// Everything that the parts of one service are told.
#[derive(Clone, Debug)]
pub struct ServiceSetup {
    /// For the controller.
    pub spec: ServiceSpec,
    /// For the probes.
    pub probes: ProbeSetup,
    /// For the balancer.
    pub sink: SinkSetup,
}

/// What measures the backends, and what watches them.
#[derive(Clone, Debug)]
pub struct ProbeSetup {
    /// Whom to measure, and to watch where that is on the same port.
    pub measured: BTreeMap<BackendId, Target>,
    /// Whom to watch on a port of its own.
    pub watched: BTreeMap<BackendId, Target>,
    /// The part of the gap between two probes that chance may shift them by.
    pub jitter: f64,
}

/// The balancer, and whom to steer there.
#[derive(Clone, Debug)]
pub struct SinkSetup {
    /// Where it is.
    pub place: Place,
    /// Time between two readings.
    pub poll: Poll,
    /// Identities and names of its servers.
    pub servers: Vec<(BackendId, String)>,
}

/// Something in the configuration that no part can be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct Unusable {
    /// The key within the service, such as `probe`.
    pub key: String,
    /// What is wrong.
    pub message: String,
}

impl Unusable {
    fn new(key: &str, why: impl std::fmt::Display) -> Self {
        Unusable { key: key.to_owned(), message: why.to_string() }
    }
}

/// The setup of one service. `ids` are the identities of its backends, in the order of the
/// configuration; `before` is the service as it ran so far, whose probes are kept where they are the
/// same.
///
/// # Errors
/// When a part refuses what it would be told.
pub fn service(
    service: &config::Service,
    ids: &[BackendId],
    observe: bool,
    before: Option<(&config::Service, &ServiceSetup)>,
) -> Result<ServiceSetup, Unusable> {
    let sink = sink_setup(service, ids);
    let limits = sink::limits(&sink.place, sink.servers.clone());
    let limits = limits.map_err(|error| Unusable::new("sink", error))?;
    Ok(ServiceSetup {
        spec: spec(service, ids, limits, observe),
        probes: probes(service, ids, before)?,
        sink,
    })
}

/// Identities where there is no store to give them: 1, 2, 3, …
pub fn numbered(service: &config::Service) -> Vec<BackendId> {
    (1..).map(BackendId).take(service.backends.len()).collect()
}

/// Finds what no part can be told, without reading any file.
///
/// # Errors
/// As [`service`], but for the file of TLS authorities.
pub fn check(service: &config::Service) -> Result<(), Unusable> {
    let mut plain = service.clone();
    let liveness = plain.liveness.as_mut().map(|liveness| &mut liveness.http);
    let probe = plain.probe.as_mut().map(|probe| &mut probe.http);
    for http in probe.into_iter().chain(liveness) {
        (http.scheme, http.tls) = (config::Scheme::Http, config::Tls::default());
    }
    self::service(&plain, &numbered(service), false, None).map(|_| ())
}

fn spec(
    service: &config::Service,
    ids: &[BackendId],
    sink: SinkLimits,
    observe: bool,
) -> ServiceSpec {
    let named = service.backends.iter().zip(ids);
    let backends =
        named.map(|(backend, &id)| BackendSpec { id, name: backend.name.clone() }).collect();
    ServiceSpec {
        objective: service.objective,
        theta: service.theta,
        exploration: match service.learn.exploration {
            config::Exploration::Packed => Exploration::Packed,
            config::Exploration::Bisect => Exploration::Bisect,
            config::Exploration::Literal => Exploration::Literal,
        },
        curve: match service.learn.curve {
            config::CurveFamily::Auto => CurveChoice::Auto,
            config::CurveFamily::Hyperbola => CurveChoice::Hyperbola,
            config::CurveFamily::Isotonic => CurveChoice::Isotonic,
            config::CurveFamily::Poly2 => CurveChoice::Poly2,
        },
        drift: service.learn.drift,
        refresh: service.learn.refresh,
        drain: service.learn.drain,
        slow_start: service.limits.slow_start,
        latency_factor: service.learn.latency_factor,
        max_step: service.learn.max_step,
        min_change: service.limits.min_change,
        min_interval: service.limits.min_interval,
        probe: service
            .probe
            .as_ref()
            .map(|probe| ProbeRate { interval: probe.interval, requests: probe.requests }),
        checks: service.liveness.as_ref().map_or(CheckSpec::default(), |liveness| CheckSpec {
            requests: liveness.requests,
            interval: liveness.interval,
        }),
        observe,
        sink,
        ..ServiceSpec::new(&service.name, backends)
    }
}

fn sink_setup(service: &config::Service, ids: &[BackendId]) -> SinkSetup {
    let (place, poll) = match &service.sink {
        config::Sink::Haproxy(haproxy) => {
            let socket = match &haproxy.socket {
                config::Socket::Unix(path) => SocketAddress::Unix(path.clone()),
                config::Socket::Tcp(address) => SocketAddress::Tcp(address.to_string()),
            };
            let (backend, timeout) = (haproxy.backend.clone(), haproxy.timeout);
            (Place::Haproxy(HaproxyConfig { socket, backend, timeout }), haproxy.poll)
        }
        config::Sink::L4(l4) => {
            let (socket, vip, timeout) = (l4.socket.clone(), l4.vip.clone(), l4.timeout);
            (Place::L4(L4SinkConfig { socket, vip, timeout }), l4.poll)
        }
    };
    let names = service.backends.iter().map(|backend| backend.name.clone());
    let poll = poll.map_or(Poll::ByReading, Poll::Every);
    SinkSetup { place, poll, servers: ids.iter().copied().zip(names).collect() }
}

fn probes(
    service: &config::Service,
    ids: &[BackendId],
    before: Option<(&config::Service, &ServiceSetup)>,
) -> Result<ProbeSetup, Unusable> {
    let work = work_probe(service, before)?;
    let liveness = liveness(service, before)?;
    let port = service.liveness.as_ref().and_then(|liveness| liveness.port);
    let mut setup = ProbeSetup {
        measured: BTreeMap::new(),
        watched: BTreeMap::new(),
        jitter: service.probe.as_ref().map_or(0.0, |probe| probe.http.jitter),
    };
    for (i, (backend, &id)) in service.backends.iter().zip(ids).enumerate() {
        let unusable = |why| Unusable::new(&format!("backends[{i}].address"), why);
        let target = Target {
            address: address(&backend.address).map_err(unusable)?,
            probe: work.clone(),
            liveness: Some(liveness.clone()),
            max_in_flight: Target::DEFAULT_MAX_IN_FLIGHT,
        };
        let elsewhere = port.filter(|port| *port != backend.address.port);
        if let Some(port) = elsewhere {
            let there = config::Address { port, ..backend.address.clone() };
            let address = address(&there).map_err(unusable)?;
            setup.watched.insert(id, Target { address, probe: None, ..target.clone() });
            setup.measured.insert(id, Target { liveness: None, ..target });
        } else {
            setup.measured.insert(id, target);
        }
    }
    Ok(setup)
}

fn address(address: &config::Address) -> Result<Address, String> {
    address.to_string().parse().map_err(|error| format!("{error}"))
}

fn work_probe(
    service: &config::Service,
    before: Option<(&config::Service, &ServiceSetup)>,
) -> Result<Option<Arc<Probe>>, Unusable> {
    let Some(probe) = &service.probe else { return Ok(None) };
    if let Some((was, setup)) = before
        && was.probe.as_ref().is_some_and(|was| is_same_request(&was.http, &probe.http))
        && let Some(target) = setup.probes.measured.values().next()
    {
        return Ok(target.probe.clone());
    }
    let made = Probe::new(request(&probe.http)).map(Arc::new);
    made.map(Some).map_err(|e| Unusable::new("probe", e))
}

fn liveness(
    service: &config::Service,
    before: Option<(&config::Service, &ServiceSetup)>,
) -> Result<LivenessSpec, Unusable> {
    let unusable = |error: &dyn std::fmt::Display| Unusable::new("liveness", error);
    let Some(liveness) = &service.liveness else {
        let spec = LivenessSpec::new(LivenessCheck::Connect, WATCH_CHECKS, WATCH_TIMEOUT);
        return spec.map_err(|e| unusable(&e));
    };
    if let Some((was, setup)) = before
        && let Some(old) = &was.liveness
        && is_same_request(&old.http, &liveness.http)
        && old.requests == liveness.requests
    {
        let targets = setup.probes.watched.values().chain(setup.probes.measured.values());
        if let Some(spec) = targets.filter_map(|target| target.liveness.as_ref()).next() {
            return Ok(spec.clone());
        }
    }
    let probe = Probe::new(request(&liveness.http)).map_err(|e| unusable(&e))?;
    let check = LivenessCheck::Http(Arc::new(probe));
    LivenessSpec::new(check, liveness.requests, liveness.http.timeout).map_err(|e| unusable(&e))
}

/// Whether a probe made for the one serves the other. A file of authorities may have changed though
/// its name has not.
fn is_same_request(a: &config::Http, b: &config::Http) -> bool {
    a == b && a.tls.ca.is_none()
}

/// The request that a probe sends, and the answer it takes for a success.
pub fn request(http: &config::Http) -> ProbeSpec {
    let https = http.scheme == config::Scheme::Https;
    // The configuration knows no other statuses than the set does.
    let expect_status = StatusSet::new(http.expect.status.iter().cloned()).unwrap_or_default();
    ProbeSpec {
        scheme: if https { Scheme::Https } else { Scheme::Http },
        method: http.method.as_str().to_owned(),
        path: http.path.clone(),
        host: http.host.clone(),
        headers: http.headers.clone(),
        body: http.body.clone().map(String::into_bytes),
        expect_status,
        expect_body: http.expect.body.clone().map(String::into_bytes),
        timeout: http.timeout,
        connection: match http.connection {
            config::Connection::Keep => Connection::Keep,
            config::Connection::New => Connection::New,
        },
        max_body: http.max_body,
        tls: https.then(|| TlsSpec {
            ca_file: http.tls.ca.clone(),
            server_name: http.tls.server_name.as_ref().map(server_name),
            insecure: http.tls.insecure,
        }),
    }
}

/// An IPv6 address has no brackets in a certificate.
fn server_name(host: &config::Host) -> String {
    match host {
        config::Host::Ip(ip) => ip.to_string(),
        config::Host::Name(name) => name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_control::{DrainTest, DriftTest};

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
        assert_eq!(setup.sink.servers, [(BackendId(7), "s1".into()), (BackendId(3), "s2".into())]);
        let address = |id| setup.probes.measured[&BackendId(id)].address.to_string();
        assert_eq!(
            (address(7), address(3)),
            ("127.0.0.1:9001".into(), "shop-2.example:9002".into())
        );
        let Place::Haproxy(haproxy) = &setup.sink.place else { panic!("{:?}", setup.sink.place) };
        assert_eq!(haproxy.backend, "pool");
        assert_eq!(haproxy.socket, SocketAddress::Unix("/run/h.sock".into()));
        assert!(setup.spec.observe);
        assert_eq!(setup.spec.sink.range, 0..=256);
    }

    #[test]
    fn goals_and_limits_reach_the_controller() {
        let text = LEAST.to_owned()
            + "    objective: max
    theta: 0.25
    learn: { exploration: bisect, curve: poly2, drift: literal, refresh: false, drain: overload,
             latency_factor: 4, max_step: 1.5 }
    limits: { min_change: 0.03, min_interval: 7s, slow_start: 0s }
";
        let text = text.replace("path: /work", "path: /work, interval: 3s, requests: 2");
        let spec = translate(&text).spec;
        assert_eq!((spec.objective, spec.theta), (plimsoll_model::Objective::Max, Some(0.25)));
        assert_eq!((spec.exploration, spec.curve), (Exploration::Bisect, CurveChoice::Poly2));
        assert_eq!((spec.latency_factor, spec.max_step, spec.min_change), (4.0, 1.5, 0.03));
        assert_eq!(spec.min_interval, Duration::from_secs(7));
        assert_eq!(spec.slow_start, Duration::ZERO);
        assert_eq!((spec.drift, spec.refresh), (DriftTest::Literal, false));
        assert_eq!(spec.drain, DrainTest::Overload);
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
        assert_eq!(least.exploration, Exploration::Packed);
        // What is not said is what the controller itself holds for right.
        let ids = [BackendId(1), BackendId(2)];
        let named = ids.map(|id| BackendSpec { id, name: format!("s{}", id.0) });
        let sink = least.sink.clone();
        assert_eq!(least, ServiceSpec { sink, ..ServiceSpec::new("shop", named.to_vec()) });
    }

    #[test]
    fn a_request_is_asked_as_it_was_written() {
        let text = LEAST.replace(
            "{ path: /work }",
            "{ path: /work, method: POST, scheme: https, host: h.example, headers: { X-A: b }, body: \
             \"{}\", expect: { status: [200, 204-206], body: ok }, connection: new, timeout: 3s, \
             max_body: 9, tls: { server_name: \"::1\", insecure: true } }",
        );
        let spec = request(&read(&text).probe.expect("a probe").http);
        let expected = ProbeSpec {
            scheme: Scheme::Https,
            method: "POST".into(),
            path: "/work".into(),
            host: Some("h.example".into()),
            headers: vec![("X-A".into(), "b".into())],
            body: Some(b"{}".to_vec()),
            expect_status: "200,204-206".parse().expect("a set"),
            expect_body: Some(b"ok".to_vec()),
            timeout: Duration::from_secs(3),
            connection: Connection::New,
            max_body: 9,
            tls: Some(TlsSpec { ca_file: None, server_name: Some("::1".into()), insecure: true }),
        };
        assert_eq!(spec, expected);
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
    fn what_no_part_can_be_told_is_named() {
        let key = |text: &str| check(&read(text)).map_err(|error| error.key);
        assert_eq!(key(LEAST), Ok(()));
        let long = LEAST.replace("/work", &format!("/{}", "a".repeat(9_000)));
        assert_eq!(key(&long), Err("probe".to_owned()));
        let https = "/work, scheme: https, tls: { ca: /no/such.pem }";
        assert_eq!(key(&LEAST.replace("/work", https)), Ok(()), "no file is read");
    }
}
