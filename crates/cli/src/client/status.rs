//! `plimsoll status`: every service, and how its backends do.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use plimsoll_api::wire::ServiceSummary;
use plimsoll_control::{BackendView, CurveView, ServiceView};
use plimsoll_terminal::table::{Cell, Table, left, right};
use plimsoll_terminal::{Format, Screen, Tone, json, maybe, number};
use serde::Serialize;

use super::complaints::{self, Complaint};
use super::{Common, Failure, finish, method, phase, state};

/// Show every service and its backends
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) common: Common,
}

/// `-o json`
#[derive(Serialize)]
struct Status<'a> {
    ready: bool,
    services: &'a [ServiceView],
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    finish(|out| execute(args, &Screen::stdout(), out))
}

pub(super) fn execute(args: &Args, screen: &Screen, out: &mut dyn Write) -> Result<(), Failure> {
    let client = args.common.client()?;
    let summaries = args.common.services(&client)?;
    let ready = summaries.iter().all(|service| service.ready) && !summaries.is_empty();
    let views: Vec<ServiceView> = args.common.each(&client, "")?;
    if args.common.output == Format::Json {
        return Ok(json(out, &Status { ready, services: &views })?);
    }
    for summary in summaries.iter().filter(|service| !service.ready) {
        writeln!(out, "{}", not_ready(summary, screen))?;
    }
    for complaint in views.iter().flat_map(complaints::of) {
        writeln!(out, "{}", line(&complaint, screen))?;
    }
    if views.is_empty() {
        return Ok(());
    }
    write!(out, "{}", services(&views).render(screen))?;
    for view in &views {
        let heading = format!("{}: backends", view.service);
        writeln!(out, "\n{}", screen.paint(Tone::Head, &heading))?;
        write!(out, "{}", backends(view).render(screen))?;
    }
    Ok(())
}

fn not_ready(summary: &ServiceSummary, screen: &Screen) -> String {
    let unread = "the balancer has not been read yet";
    let (word, tone, why) = match &summary.trouble {
        Some(trouble) => ("TROUBLE", Tone::Bad, trouble.as_str()),
        None => ("NOT READY", Tone::Warn, summary.not_ready.as_deref().unwrap_or(unread)),
    };
    format!("{} {}: {}", screen.paint(tone, word), summary.service, why)
}

fn line(complaint: &Complaint, screen: &Screen) -> String {
    let (word, tone) = match complaint.is_outage {
        true => ("OUTAGE", Tone::Bad),
        false => ("WARNING", Tone::Warn),
    };
    let Complaint { about, message, .. } = complaint;
    format!("{} {about}: {message}", screen.paint(tone, word))
}

fn services(views: &[ServiceView]) -> Table {
    let mut table = Table::new([
        left("SERVICE"),
        left("METHOD"),
        left("PHASE"),
        right("EPOCH"),
        right("IN USE"),
        right("TRAFFIC (req/s)"),
        right("CAPACITY (req/s)"),
        right("LATENCY (ms)"),
        right("EXPECTED (ms)"),
        right("DRAIN (s)"),
    ]);
    for view in views {
        let used = view.backends.iter().filter(|b| b.programmed.unwrap_or(b.weight) > 0).count();
        table.row([
            (&view.service).into(),
            method(view.method, &view.method_name).into(),
            phase(view.phase),
            view.epoch.to_string().into(),
            format!("{used}/{}", view.backends.len()).into(),
            number(view.rate_rps).into(),
            maybe(Some(view.plan.capacity_rps).filter(|rps| *rps > 0.0)).into(),
            maybe(view.latency_ms).into(),
            maybe(view.plan.expected_ms).into(),
            maybe(view.drain_s).into(),
        ]);
    }
    table
}

fn backends(view: &ServiceView) -> Table {
    let curves: BTreeMap<&str, &CurveView> =
        view.curves.iter().map(|curve| (curve.backend.as_str(), curve)).collect();
    let mut table = Table::new([
        left("BACKEND"),
        left("STATE"),
        right("WEIGHT"),
        right("SHARE (%)"),
        right("TRAFFIC (req/s)"),
        right("CAPACITY (req/s)"),
        right("LATENCY (ms)"),
        right("UNLOADED (ms)"),
        right("ASKED (%)"),
    ]);
    for backend in &view.backends {
        let curve = curves.get(backend.backend.as_str());
        let capacity = curve.map_or_else(
            || "-".to_owned(),
            |curve| {
                let least = if curve.capacity_is_lower_bound { "≥ " } else { "" };
                format!("{least}{}", number(curve.capacity_rps))
            },
        );
        table.row([
            (&backend.backend).into(),
            state(backend.state),
            weight(backend.weight, backend.programmed),
            format!("{:.1}", 100.0 * backend.share).into(),
            number(backend.share * view.rate_rps).into(),
            capacity.into(),
            maybe(backend.latency_ms).into(),
            maybe(curve.map(|curve| curve.l0_ms)).into(),
            asked(backend),
        ]);
    }
    table
}

/// What checks and probes cost a backend, of its capacity.
fn asked(backend: &BackendView) -> Cell {
    match backend.asked_part {
        Some(part) if part > 0.015 => Cell::toned(format!("{:.1}", 100.0 * part), Tone::Warn),
        Some(part) => format!("{:.1}", 100.0 * part).into(),
        None if backend.asked_rps == 0.0 => "0.0".into(),
        None => "-".into(),
    }
}

/// The weight that holds, and the one wanted where that differs.
fn weight(wanted: u32, programmed: Option<u32>) -> Cell {
    match programmed {
        Some(held) if held == wanted => held.to_string().into(),
        Some(held) => Cell::toned(format!("{held} → {wanted}"), Tone::Warn),
        None => Cell::toned(format!("? → {wanted}"), Tone::Warn),
    }
}
