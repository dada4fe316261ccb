//! `plimsoll curves`: what load does to each backend, in numbers and as plots.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use plimsoll_api::wire::{OperatedCurve, ServiceCurves};
use plimsoll_terminal::table::{Table, left, right};
use plimsoll_terminal::{Format, Screen, Tone, json, maybe, number};
use serde::Serialize;

use super::{Common, Failure, finish};
use crate::plot::chart::Chart;
use crate::plot::{svg, terminal};

/// Show what load does to each backend, in numbers and as plots
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    #[command(flatten)]
    common: Common,
    /// Also write the plots to this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Numbers only
    #[arg(long)]
    no_plots: bool,
}

impl Args {
    /// Of these services, with the plots in this file too.
    #[cfg(test)]
    pub(super) fn of(common: Common, svg: Option<PathBuf>) -> Self {
        Args { common, svg, no_plots: false }
    }
}

/// `-o json`
#[derive(Serialize)]
struct Curves<'a> {
    services: &'a [ServiceCurves],
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    finish(|out| execute(args, &Screen::stdout(), out))
}

pub(super) fn execute(args: &Args, screen: &Screen, out: &mut dyn Write) -> Result<(), Failure> {
    let client = args.common.client()?;
    let services: Vec<ServiceCurves> = args.common.each(&client, "/curves")?;
    if let Some(path) = &args.svg {
        let charts = |service: &ServiceCurves| {
            let title =
                |curve: &OperatedCurve| format!("{} / {}", service.service, curve.curve.backend);
            service.curves.iter().map(|curve| chart(curve, title(curve))).collect::<Vec<_>>()
        };
        let all: Vec<Chart> = services.iter().flat_map(charts).collect();
        svg::document(&all)
            .and_then(|text| std::fs::write(path, text))
            .map_err(|error| Failure::File { path: path.clone(), error })?;
    }
    if args.common.output == Format::Json {
        return Ok(json(out, &Curves { services: &services })?);
    }
    for (i, service) in services.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        write_service(args, service, screen, out)?;
    }
    Ok(())
}

fn write_service(
    args: &Args,
    service: &ServiceCurves,
    screen: &Screen,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    writeln!(out, "{}", screen.paint(Tone::Head, &service.service))?;
    if service.curves.is_empty() {
        writeln!(out, "nothing is known of its backends yet")?;
        return Ok(());
    }
    write!(out, "{}", table(service).render(screen))?;
    if !args.no_plots {
        let name = |curve: &OperatedCurve| curve.curve.backend.clone();
        let charts: Vec<Chart> = service.curves.iter().map(|c| chart(c, name(c))).collect();
        writeln!(out, "\n{}\n", terminal::LEGEND)?;
        write!(out, "{}", terminal::grid(&charts, screen))?;
    }
    Ok(())
}

fn table(service: &ServiceCurves) -> Table {
    let mut table = Table::new([
        left("BACKEND"),
        left("CURVE"),
        right("UNLOADED (ms)"),
        right("CAPACITY (req/s)"),
        right("± (%)"),
        right("CORES"),
        right("FIT ERROR (%)"),
        right("POINTS"),
        right("NOW (req/s)"),
        right("NOW (ms)"),
    ]);
    for OperatedCurve { curve, rate_rps, latency_ms } in &service.curves {
        table.row([
            (&curve.backend).into(),
            (&curve.family).into(),
            number(curve.l0_ms).into(),
            capacity(curve.capacity_rps, curve.capacity_is_lower_bound).into(),
            percent(Some(curve.capacity_error)).into(),
            number(curve.cores).into(),
            percent(curve.cv_error).into(),
            curve.points.len().to_string().into(),
            number(*rate_rps).into(),
            maybe(*latency_ms).into(),
        ]);
    }
    table
}

fn chart(operated: &OperatedCurve, title: String) -> Chart {
    let OperatedCurve { curve, rate_rps, latency_ms } = operated;
    let capacity = capacity(curve.capacity_rps, curve.capacity_is_lower_bound);
    Chart {
        title,
        note: match latency_ms {
            Some(ms) => format!("{} ms at {} of {capacity} req/s", number(*ms), number(*rate_rps)),
            None => format!("{} ms unloaded, {capacity} req/s", number(curve.l0_ms)),
        },
        line: curve.line.clone(),
        points: curve.points.iter().map(|(rps, ms, _)| (*rps, *ms)).collect(),
        now: latency_ms.map(|ms| (*rate_rps, ms)),
        capacity_rps: curve.capacity_rps,
        l0_ms: curve.l0_ms,
    }
}

fn capacity(rps: f64, is_lower_bound: bool) -> String {
    format!("{}{}", if is_lower_bound { "≥ " } else { "" }, number(rps))
}

/// Parts of a whole as per cent; beyond ten times the whole nothing is known.
fn percent(part: Option<f64>) -> String {
    match part {
        Some(part) if part < 10.0 => format!("{:.1}", 100.0 * part),
        _ => "-".to_owned(),
    }
}
