//! The sections of `plimsoll run`: services, store and API; what must hold across them.

use std::path::PathBuf;

use plimsoll_config::{Cursor, Once, Placed};
use plimsoll_control::{CurveChoice, DriftTest};
use plimsoll_model::{BackendId, Objective};
use plimsoll_probe::{LivenessConfig, ProbeConfig};
use plimsoll_sink::{Sinks, Source, one_sink};

use super::defaults;
use super::types::{Api, Backend, Config, Learn, Limits, Service, Store};

const SERVICE: &[&str] = &[
    "name",
    "backends",
    "probe",
    "liveness",
    "objective",
    "theta",
    "sink",
    "sinks",
    "subsets",
    "source",
    "learn",
    "limits",
];

/// Reads them; the other sections of the document are others' to read.
pub fn config(cursor: &Cursor<'_>) -> Option<Config> {
    let fields = cursor.fields(super::KEYS)?;
    let services = fields.required("services", "a list of at least one service", services);
    let store = match fields.get("store") {
        Some(cursor) => store(cursor),
        None => Some(Store::default()),
    };
    let api = match fields.get("api") {
        Some(cursor) => api(cursor),
        None => Some(Api::default()),
    };
    Some(Config { services: services?, store: store?, api: api? })
}

fn services(cursor: &Cursor<'_>) -> Option<Vec<Service>> {
    let items = cursor.items("a list of services")?;
    if items.is_empty() {
        return cursor.expected("at least one service");
    }
    let mut seen = Seen::default();
    let services: Vec<Option<Service>> =
        items.iter().map(|item| service(item, &mut seen)).collect();
    services.into_iter().collect()
}

/// What other services have taken already, and where.
#[derive(Default)]
struct Seen {
    names: Once<String>,
    steered: Once<String>,
}

fn service(cursor: &Cursor<'_>, seen: &mut Seen) -> Option<Service> {
    let fields = cursor.fields(SERVICE)?;
    let name = fields.required("name", "the service's name", |c| service_name(c, seen));
    let backends = fields.required("backends", "a list of at least one backend, or auto", |c| {
        match c.is_scalar() {
            true => c.text_if("auto, or a list of backends", |text| text == "auto").map(|_| None),
            false => backends(c).map(Some),
        }
    });
    let probe =
        fields.optional("probe", |c| ProbeConfig::read(c).map(|probe| Placed::new(probe, c)));
    let liveness = fields.optional("liveness", |c| {
        let probe = probe.as_ref().and_then(Option::as_ref).map(|probe| &probe.value);
        LivenessConfig::read(c, probe).map(|liveness| Placed::new(liveness, c))
    });
    let objective = fields.or("objective", Objective::default(), |c| {
        c.one_of(&[
            ("traffic", Objective::Traffic),
            ("sum", Objective::Sum),
            ("max", Objective::Max),
        ])
    });
    let theta = fields.optional("theta", |c| c.number(defaults::PART));
    let mut sink = match fields.get("sinks") {
        Some(several) if fields.get("sink").is_some() => {
            several.expected("either sink or sinks, not both")
        }
        Some(c) => Sinks::read(c, &mut seen.steered).map(|sinks| Placed::new(sinks, c)),
        None => fields.required("sink", &one_sink(), |c| {
            Sinks::read_one(c, &mut seen.steered).map(|sinks| Placed::new(sinks, c))
        }),
    };
    let subsets = fields.or("subsets", false, Cursor::boolean);
    let subsets = match (subsets, fields.get("subsets"), &mut sink) {
        (Some(true), Some(at), Some(sink)) => sink.value.give_subsets(at),
        (subsets, ..) => subsets.map(|_| ()),
    };
    let source = fields.optional("source", |c| Source::read(c, &mut seen.steered));
    let learn = fields.or("learn", Learn::default(), learn);
    let limits = fields.or("limits", Limits::default(), limits);
    let (backends, sink, ()) = (backends?, sink?, subsets?);
    let (auto, backends) = (backends.is_none(), backends.unwrap_or_default());
    let names = (1..).map(BackendId).zip(backends.iter().map(|backend| backend.name.clone()));
    if let Err(error) = sink.value.check(&names.collect()) {
        return fields.get("backends").unwrap_or(cursor).problem(error);
    }
    let source = source?;
    let silent = sink.value.iter().find(|sink| !sink.reports_requests());
    if let (Some(silent), None) = (silent, &source) {
        let what = format!("{}: {} tells nothing of its requests", Source::FORMS, silent.place());
        return fields.required("source", &what, |_| None);
    }
    Some(Service {
        name: name?,
        backends,
        auto,
        probe: probe?,
        liveness: liveness?,
        objective: objective?,
        theta: theta?,
        sink,
        source,
        learn: learn?,
        limits: limits?,
    })
}

fn service_name(cursor: &Cursor<'_>, seen: &mut Seen) -> Option<String> {
    let valid = |name: &str| {
        (1..=128).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let what = "a name of up to 128 letters, digits, - _ and .";
    let name = cursor.text_if(what, valid)?.to_owned();
    seen.names.take(name.clone(), cursor, "a name that no other service has")?;
    Some(name)
}

fn backends(cursor: &Cursor<'_>) -> Option<Vec<Backend>> {
    let items = cursor.items("a list of backends, each { name: …, address: … }")?;
    if items.is_empty() {
        return cursor.expected("at least one backend");
    }
    let (mut names, mut addresses) = (Once::default(), Once::default());
    let backends: Vec<Option<Backend>> = items
        .iter()
        .map(|item| {
            let fields = item.fields(&["name", "address"])?;
            let name = fields.required("name", "the server's name in the balancer", |c| {
                let name = server_name(c)?;
                names.take(name.clone(), c, "a name that no other backend has")?;
                Some(name)
            });
            let address = fields.required("address", "host:port", |c| {
                let address = c.address()?;
                addresses.take(address.clone(), c, "an address that no other backend has")?;
                Some(address)
            });
            Some(Backend { name: name?, address: address? })
        })
        .collect();
    backends.into_iter().collect()
}

/// The characters that HAProxy takes in the names of servers and sections; nothing else may reach its
/// command line, where `;` and a line's end begin a new command.
fn server_name(cursor: &Cursor<'_>) -> Option<String> {
    let valid = |name: &str| {
        (1..=255).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b))
    };
    let what = "a name as balancers take it: letters, digits, - _ . and :";
    cursor.text_if(what, valid).map(str::to_owned)
}

fn learn(cursor: &Cursor<'_>) -> Option<Learn> {
    let fields = cursor.fields(&["curve", "drift", "refresh", "latency_factor", "max_step"])?;
    let default = Learn::default();
    let curve = fields.or("curve", default.curve, |c| {
        c.one_of(&[
            ("auto", CurveChoice::Auto),
            ("hyperbola", CurveChoice::Hyperbola),
            ("isotonic", CurveChoice::Isotonic),
        ])
    });
    let drift = fields.or("drift", default.drift, |c| {
        c.one_of(&[("sequential", DriftTest::Sequential), ("off", DriftTest::Off)])
    });
    let refresh = fields.or("refresh", default.refresh, Cursor::boolean);
    let latency_factor = fields.or("latency_factor", default.latency_factor, |c| {
        c.number(defaults::LATENCY_FACTOR_BOUNDS)
    });
    let max_step = fields.or("max_step", default.max_step, |c| c.number(defaults::MAX_STEP_BOUNDS));
    Some(Learn {
        curve: curve?,
        drift: drift?,
        refresh: refresh?,
        latency_factor: latency_factor?,
        max_step: max_step?,
    })
}

fn limits(cursor: &Cursor<'_>) -> Option<Limits> {
    let fields = cursor.fields(&["min_change", "min_interval", "slow_start"])?;
    let min_change = fields.or("min_change", defaults::MIN_CHANGE, |c| c.number(defaults::PART));
    let min_interval =
        fields.or("min_interval", defaults::MIN_INTERVAL, |c| c.duration(defaults::min_interval()));
    let slow_start =
        fields.or("slow_start", defaults::SLOW_START, |c| c.duration(defaults::slow_start()));
    Some(Limits { min_change: min_change?, min_interval: min_interval?, slow_start: slow_start? })
}

fn store(cursor: &Cursor<'_>) -> Option<Store> {
    let fields = cursor.fields(&["path"])?;
    let path = fields.or("path", PathBuf::from(defaults::STORE_PATH), |c| {
        c.text_if("the path of a file", |path| !path.is_empty() && !path.ends_with('/'))
            .map(PathBuf::from)
    });
    Some(Store { path: path? })
}

fn api(cursor: &Cursor<'_>) -> Option<Api> {
    let fields = cursor.fields(&["listen", "allow_remote"])?;
    let listen = fields.or("listen", defaults::API_LISTEN, Cursor::listen);
    let allow_remote = fields.or("allow_remote", false, Cursor::boolean);
    let (listen, allow_remote) = (listen?, allow_remote?);
    if let (Some(cursor), false, false) =
        (fields.get("listen"), allow_remote, listen.ip().is_loopback())
    {
        return cursor.expected("a loopback address, or allow_remote: true beside it");
    }
    Some(Api { listen, allow_remote })
}
