//! `GET /metrics`: everything in the hub, in the Prometheus text format.

mod text;

use std::sync::Arc;

use plimsoll_control::{BackendState, BackendView, CurveView, Phase, ServiceView};
use plimsoll_model::MethodKind;

use crate::counters::{Counts, LATENCY_BUCKETS};
use crate::hub::Hub;
pub use text::{Kind, Labels, Page, flag};

const PHASES: [(Phase, &str); 4] = [
    (Phase::Exploring, "exploring"),
    (Phase::Steady, "steady"),
    (Phase::ShortOfCapacity, "short_of_capacity"),
    (Phase::Observing, "observing"),
];

const STATES: [(BackendState, &str); 7] = [
    (BackendState::Ready, "ready"),
    (BackendState::Exploring, "exploring"),
    (BackendState::SetAside, "set_aside"),
    (BackendState::Failed, "failed"),
    (BackendState::Draining, "draining"),
    (BackendState::Joining, "joining"),
    (BackendState::Parked, "parked"),
];

/// One service at about one instant.
struct Snapshot {
    view: Arc<ServiceView>,
    counts: Counts,
    ready: bool,
}

/// The page.
pub fn render(hub: &Hub) -> Page {
    let services: Vec<Snapshot> = hub
        .slots()
        .iter()
        .map(|slot| Snapshot {
            view: slot.view(),
            counts: slot.counters().read(),
            ready: slot.not_ready().is_none(),
        })
        .collect();
    let mut page = Page::of_daemon(hub.version(), hub.started_unix_ms(), hub.lost_log_lines());
    page.family("plimsoll_ready", Kind::Gauge, "1 when every service is ready.");
    page.sample(&[], flag(hub.readiness().ready));
    service_gauges(&mut page, &services);
    plan_gauges(&mut page, &services);
    backend_gauges(&mut page, &services);
    curve_gauges(&mut page, &services);
    service_counters(&mut page, &services);
    probe_counters(&mut page, &services);
    sink_counters(&mut page, &services);
    page
}

fn service_gauges(page: &mut Page, services: &[Snapshot]) {
    per_service(
        page,
        services,
        "plimsoll_service_ready",
        "1 when its balancer was read, it has no trouble and its plans are taken.",
        |s| Some(flag(s.ready)),
    );
    per_service(
        page,
        services,
        "plimsoll_service_rate_rps",
        "Traffic, requests per second.",
        |s| Some(s.view.rate_rps),
    );
    per_service(
        page,
        services,
        "plimsoll_service_latency_seconds",
        "Mean response time over the last windows.",
        |s| s.view.latency_ms.map(seconds),
    );
    per_service(
        page,
        services,
        "plimsoll_service_drain_seconds",
        "The longest of the last times that requests went on after a weight of 0.",
        |s| s.view.drain_s,
    );
    per_service(page, services, "plimsoll_service_epoch", "Epoch of the last plan.", |s| {
        Some(s.view.epoch as f64)
    });
    page.family("plimsoll_service_phase", Kind::Gauge, "1 for the phase the controller is in.");
    for Snapshot { view, .. } in services {
        for (phase, name) in PHASES {
            page.sample(&[("service", &view.service), ("phase", name)], flag(view.phase == phase));
        }
    }
    page.family(
        "plimsoll_service_method_info",
        Kind::Gauge,
        "Always 1; how the balancer picks is in the labels.",
    );
    for Snapshot { view, .. } in services {
        let kind = match view.method {
            MethodKind::Split => "split",
            MethodKind::InFlight => "in_flight",
            MethodKind::NoLiveWeights => "no_live_weights",
        };
        let labels = [("service", &*view.service), ("kind", kind), ("method", &view.method_name)];
        page.sample(&labels, 1.0);
    }
}

fn plan_gauges(page: &mut Page, services: &[Snapshot]) {
    per_service(
        page,
        services,
        "plimsoll_plan_expected_seconds",
        "Mean response time the last plan expects.",
        |s| s.view.plan.expected_ms.map(seconds),
    );
    per_service(
        page,
        services,
        "plimsoll_plan_bound_seconds",
        "Proven lower bound on the plan's objective.",
        |s| s.view.plan.bound_ms.map(seconds),
    );
    per_service(
        page,
        services,
        "plimsoll_plan_capacity_rps",
        "Capacity of the backends in use, requests per second.",
        |s| Some(s.view.plan.capacity_rps).filter(|rps| *rps > 0.0),
    );
    per_service(
        page,
        services,
        "plimsoll_plan_proven",
        "1 when the packing is proven optimal for its curves.",
        |s| Some(flag(s.view.plan.proven)),
    );
    per_service(
        page,
        services,
        "plimsoll_plan_advice_gain_ratio",
        "Part of the response time that another method of the balancer would save; 0 without advice.",
        |s| Some(s.view.plan.advice.as_ref().map_or(0.0, |a| a.gain)),
    );
}

fn backend_gauges(page: &mut Page, services: &[Snapshot]) {
    per_backend(page, services, "plimsoll_backend_weight", "Weight wanted.", |b| {
        Some(f64::from(b.weight))
    });
    per_backend(
        page,
        services,
        "plimsoll_backend_programmed_weight",
        "Weight the balancer holds.",
        |b| b.programmed.map(f64::from),
    );
    per_backend(
        page,
        services,
        "plimsoll_backend_share_ratio",
        "Part of the service's traffic it gets.",
        |b| Some(b.share),
    );
    per_backend(
        page,
        services,
        "plimsoll_backend_latency_seconds",
        "Mean response time over the last window.",
        |b| b.latency_ms.map(seconds),
    );
    per_backend(
        page,
        services,
        "plimsoll_backend_expected_seconds",
        "Response time the curves expect of the plan.",
        |b| b.expected_ms.map(seconds),
    );
    per_backend(
        page,
        services,
        "plimsoll_backend_error_ratio",
        "Part of its recent answers that are errors.",
        |b| Some(b.error_share),
    );
    page.family("plimsoll_backend_state", Kind::Gauge, "1 for the state the backend is in.");
    for Snapshot { view, .. } in services {
        for backend in &view.backends {
            for (state, name) in STATES {
                let labels =
                    [("service", &*view.service), ("backend", &backend.backend), ("state", name)];
                page.sample(&labels, flag(backend.state == state));
            }
        }
    }
}

fn curve_gauges(page: &mut Page, services: &[Snapshot]) {
    per_curve(
        page,
        services,
        "plimsoll_backend_capacity_rps",
        "Capacity in requests per second, as learned.",
        |c| Some(c.capacity_rps),
    );
    per_curve(
        page,
        services,
        "plimsoll_backend_capacity_is_lower_bound",
        "1 while no queue was ever seen: the real capacity is at least that.",
        |c| Some(flag(c.capacity_is_lower_bound)),
    );
    per_curve(
        page,
        services,
        "plimsoll_backend_capacity_error_ratio",
        "Relative standard error of the capacity.",
        |c| Some(c.capacity_error),
    );
    per_curve(
        page,
        services,
        "plimsoll_backend_idle_latency_seconds",
        "Unloaded service time, as learned.",
        |c| Some(seconds(c.l0_ms)),
    );
    per_curve(
        page,
        services,
        "plimsoll_backend_cores",
        "Requests it works on at the same time, as learned.",
        |c| Some(c.cores),
    );
}

fn service_counters(page: &mut Page, services: &[Snapshot]) {
    let kind_of =
        |s: &Snapshot, kind: &str| s.counts.records.get(kind).copied().unwrap_or(0) as f64;
    page.family("plimsoll_plans_total", Kind::Counter, "Plans made.");
    for s in services {
        page.sample(&[("service", &s.view.service)], kind_of(s, "plan"));
    }
    page.family(
        "plimsoll_rollbacks_total",
        Kind::Counter,
        "Plans taken back because clients waited longer.",
    );
    for s in services {
        page.sample(&[("service", &s.view.service)], kind_of(s, "rollback"));
    }
    page.family("plimsoll_records_total", Kind::Counter, "Decisions and observations, by kind.");
    for s in services {
        for (kind, n) in &s.counts.records {
            page.sample(&[("service", &s.view.service), ("kind", kind)], *n as f64);
        }
    }
    spans(page, services, "plimsoll_solver_duration_seconds", "Time to compute a packing.", |c| {
        c.solves
    });
}

fn probe_counters(page: &mut Page, services: &[Snapshot]) {
    page.family("plimsoll_probes_total", Kind::Counter, "Probes, by what became of them.");
    for s in services {
        for (backend, outcomes) in &s.counts.probes {
            for (outcome, n) in outcomes {
                let labels =
                    [("service", &*s.view.service), ("backend", backend), ("outcome", outcome)];
                page.sample(&labels, *n as f64);
            }
        }
    }
    page.family(
        "plimsoll_probe_duration_seconds",
        Kind::Histogram,
        "Response time of successful probes.",
    );
    for s in services {
        let (service, latency) = (("service", &*s.view.service), &s.counts.probe_latency);
        for (bound, n) in LATENCY_BUCKETS.iter().zip(latency.cumulative) {
            page.suffixed("_bucket", &[service, ("le", &bound.to_string())], n as f64);
        }
        page.suffixed("_bucket", &[service, ("le", "+Inf")], latency.count as f64);
        page.suffixed("_sum", &[service], latency.sum);
        page.suffixed("_count", &[service], latency.count as f64);
    }
}

fn sink_counters(page: &mut Page, services: &[Snapshot]) {
    type Total = fn(&Counts) -> u64;
    let totals: [(&'static str, &str, Total); 4] = [
        (
            "plimsoll_sink_errors_total",
            "Times the balancer could not be read or programmed.",
            |c| c.sink_errors,
        ),
        (
            "plimsoll_store_errors_total",
            "Times that keeping what was learned began to fail.",
            |c| c.store_errors,
        ),
        ("plimsoll_sink_applies_total", "Plans carried out.", |c| c.applies),
        ("plimsoll_sink_commands_total", "Commands sent to carry them out.", |c| c.commands),
    ];
    for (name, help, total) in totals {
        page.family(name, Kind::Counter, help);
        for s in services {
            page.sample(&[("service", &s.view.service)], total(&s.counts) as f64);
        }
    }
    spans(
        page,
        services,
        "plimsoll_sink_poll_duration_seconds",
        "Time to read the balancer.",
        |c| c.polls,
    );
}

fn per_service(
    page: &mut Page,
    services: &[Snapshot],
    name: &'static str,
    help: &str,
    value: impl Fn(&Snapshot) -> Option<f64>,
) {
    page.family(name, Kind::Gauge, help);
    for s in services {
        if let Some(value) = value(s) {
            page.sample(&[("service", &s.view.service)], value);
        }
    }
}

fn per_backend(
    page: &mut Page,
    services: &[Snapshot],
    name: &'static str,
    help: &str,
    value: impl Fn(&BackendView) -> Option<f64>,
) {
    page.family(name, Kind::Gauge, help);
    for Snapshot { view, .. } in services {
        for backend in &view.backends {
            if let Some(value) = value(backend) {
                page.sample(&[("service", &view.service), ("backend", &backend.backend)], value);
            }
        }
    }
}

fn per_curve(
    page: &mut Page,
    services: &[Snapshot],
    name: &'static str,
    help: &str,
    value: impl Fn(&CurveView) -> Option<f64>,
) {
    page.family(name, Kind::Gauge, help);
    for Snapshot { view, .. } in services {
        for curve in &view.curves {
            if let Some(value) = value(curve) {
                page.sample(&[("service", &view.service), ("backend", &curve.backend)], value);
            }
        }
    }
}

fn spans(
    page: &mut Page,
    services: &[Snapshot],
    name: &'static str,
    help: &str,
    read: impl Fn(&Counts) -> (u64, f64),
) {
    page.family(name, Kind::Summary, help);
    for s in services {
        let (count, sum) = read(&s.counts);
        page.suffixed("_sum", &[("service", &s.view.service)], sum);
        page.suffixed("_count", &[("service", &s.view.service)], count as f64);
    }
}

fn seconds(ms: f64) -> f64 {
    ms / 1e3
}
