//! What `plimsoll edge status` tells, in the Prometheus text format. docs/edge.md lists the metrics.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

use axum::Router;
use axum::routing::get;
use plimsoll_api::{Kind, Page, serve_routes};
use plimsoll_edge::{PlaceStatus, Status};
use tokio::net::TcpListener;

use crate::run::log::lost;
use crate::run::record::unix_ms;

/// Listens where metrics are to be served.
pub async fn bind(listen: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(listen)
        .await
        .map_err(|error| format!("edge.metrics.listen: cannot listen on {listen}: {error}"))
}

/// Serves them.
pub async fn serve(
    listener: TcpListener,
    status: impl Fn() -> Status + Clone + Send + Sync + 'static,
) -> Result<(), String> {
    let started_unix_ms = unix_ms(SystemTime::now()) as i64;
    let page = move || async move { render(&status(), started_unix_ms) };
    serve_routes(listener, Router::new().route("/metrics", get(page)), std::future::pending())
        .await
        .map_err(|error| format!("edge.metrics.listen: {error}"))
}

fn render(status: &Status, started_unix_ms: i64) -> Page {
    let mut page =
        Page::of_daemon(env!("CARGO_PKG_VERSION"), started_unix_ms, lost().load(Relaxed));
    type Of = fn(&PlaceStatus) -> Option<f64>;
    let families: [(&'static str, Kind, &str, Of); 7] = [
        ("plimsoll_edge_packets_total", Kind::Counter, "Packets sent to a place.", |one| {
            Some(one.packets as f64)
        }),
        ("plimsoll_edge_bytes_total", Kind::Counter, "Their bytes.", |one| Some(one.bytes as f64)),
        ("plimsoll_edge_flows_opened_total", Kind::Counter, "Flows that began there.", |one| {
            Some(one.opened as f64)
        }),
        ("plimsoll_edge_flows", Kind::Gauge, "Flows that are there.", |one| Some(one.flows as f64)),
        ("plimsoll_edge_predicted_load", Kind::Gauge, "Predicted part of the core.", |one| {
            Some(one.predicted)
        }),
        ("plimsoll_edge_reported_load", Kind::Gauge, "The same, as the node reports.", |one| {
            one.reported
        }),
        ("plimsoll_edge_weight", Kind::Gauge, "Share of new flows.", |one| Some(one.weight)),
    ];
    for (name, kind, help, of) in families {
        page.family(name, kind, help);
        for place in &status.places {
            let cpu = place.cpu.to_string();
            let labels = [("node", &*place.node), ("cpu", &*cpu), ("service", &*place.service)];
            if let Some(value) = of(place) {
                page.sample(&labels, value);
            }
        }
    }
    page.family("plimsoll_edge_node_up", Kind::Gauge, "Whether a node answers.");
    for node in &status.nodes {
        page.sample(&[("node", &node.name)], f64::from(u8::from(node.state != "down")));
    }
    page.family("plimsoll_edge_table_entries", Kind::Gauge, "Entries of the flow table.");
    for (family, entries) in [("4", status.table.entries4), ("6", status.table.entries6)] {
        page.sample(&[("family", family)], f64::from(entries));
    }
    let help = "Packets that did not take the fast path to a node, by reason.";
    page.family("plimsoll_edge_reasons_total", Kind::Counter, help);
    for (reason, count) in &status.reasons {
        page.sample(&[("reason", reason)], *count as f64);
    }
    page
}
