//! `plimsoll-lab demo-edge`: two nodes that run a network function, an elephant flow among mice, and the load of
//! both cores as the forwarder predicts it and as the nodes measure it, on one machine in less than a minute.
//!
//! The real forwarder and the real nodes run in network namespaces, native XDP on all; the function works 20 µs on
//! every packet. A third of the time there are mice of 10 packets alone, then an elephant sends a quarter of all
//! packets, then 45 %: new flows must move away from it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use plimsoll_edge::{PlaceStatus, Status};
use plimsoll_lanes::Interrupt;
use plimsoll_papers::Failure;
use plimsoll_papers::edge_live::{Cell, CellPlan, set};
use plimsoll_terminal::table::{self, Table, left, right};
use plimsoll_terminal::view::View;
use plimsoll_terminal::{Format, Screen};
use serde::Serialize;

use crate::shown::shown;

/// Packets a second, of all flows. With 20 µs each, 60 % of a core, over two cores.
const RATE: u64 = 30_000;
const WORK_US: u32 = 20;
const LOOK: Duration = Duration::from_millis(500);
/// At the beginning of a phase old flows are still where they were.
const SETTLES: Duration = Duration::from_secs(2);
const BAR: usize = 24;
/// Parts of all packets that the elephant sends, per mille.
const PHASES: [(&str, u64); 3] =
    [("mice alone", 0), ("elephant 25 %", 250), ("elephant 45 %", 450)];

/// Show how new flows move away from an elephant, by predicted load alone; needs root
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// How long packets are sent, seconds
    #[arg(long, value_name = "N", default_value_t = 45,
          value_parser = clap::value_parser!(u64).range(12..=3600))]
    pub seconds: u64,
    /// How to show the result
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

/// What one phase came to.
#[derive(Clone, Debug, Serialize)]
struct Phase {
    phase: &'static str,
    packets_per_s: f64,
    /// By core: the part of it that was busy, predicted and reported.
    predicted: Vec<f64>,
    reported: Vec<f64>,
    /// Between the cores, of reported load, as a part of a core.
    gap: f64,
    /// Mean distance of predicted from reported load, as a part of a core.
    error: f64,
}

/// Runs the demonstration. Exits 1 when it cannot, 130 when it was interrupted.
pub fn run(args: &Args) -> ExitCode {
    shown(demonstrate(args), args.output, |phases, screen| report(phases, screen)).0
}

fn report(phases: &[Phase], screen: &Screen) -> String {
    let mut table = Table::new([
        left("PHASE"),
        right("PACKETS/S"),
        right("N1 PREDICTED %"),
        right("REPORTED %"),
        right("N2 PREDICTED %"),
        right("REPORTED %"),
        right("GAP, POINTS"),
        right("ERROR, POINTS"),
    ]);
    let percent = |part: f64| table::Cell::from(format!("{:.1}", part * 100.0));
    for one in phases {
        let cells = [
            one.phase.into(),
            format!("{:.0}", one.packets_per_s).into(),
            percent(one.predicted[0]),
            percent(one.reported[0]),
            percent(one.predicted[1]),
            percent(one.reported[1]),
            percent(one.gap),
            percent(one.error),
        ];
        table.row(cells);
    }
    table.render(screen)
}

fn demonstrate(args: &Args) -> Result<Option<Vec<Phase>>, Failure> {
    let interrupt = Interrupt::listen()?;
    let mut view = View::stderr();
    view.say("setting up namespaces, a forwarder and two nodes");
    let cell = match Cell::start(&CellPlan::two_nodes("water_fill", WORK_US), &interrupt) {
        Err(Failure::Interrupted) => return Ok(None),
        started => started?,
    };
    let clients = cell.clients(None)?;
    set(&clients.traffic.rate, RATE);
    let length = Duration::from_secs(args.seconds) / PHASES.len() as u32;
    let mut phases = Vec::new();
    for (title, elephant) in PHASES {
        set(&clients.traffic.elephant, elephant);
        match phase(title, length, &|| cell.status(), &mut view, &interrupt) {
            Some(one) => phases.push(one),
            None => return Ok(None),
        }
    }
    view.replace(&[]);
    Ok(Some(phases))
}

/// One phase, shown as it goes; none when it was interrupted.
fn phase(
    title: &'static str,
    length: Duration,
    status: &impl Fn() -> Option<Status>,
    view: &mut View,
    interrupt: &Interrupt,
) -> Option<Phase> {
    let began = Instant::now();
    let (mut looks, mut errors) = (0u32, 0.0);
    let mut sums = [[0.0; 2]; 2];
    let mut first: Option<(Instant, u64)> = None;
    let mut packets = 0;
    while began.elapsed() < length {
        if interrupt.came() {
            return None;
        }
        std::thread::sleep(LOOK);
        let Some(now) = status().filter(|status| status.places.len() == 2) else { continue };
        packets = now.places.iter().map(|place| place.packets).sum();
        view.replace(&drawn(title, &now.places));
        if began.elapsed() < SETTLES {
            continue;
        }
        first.get_or_insert((Instant::now(), packets));
        for (place, sums) in now.places.iter().zip(&mut sums) {
            let reported = place.reported.unwrap_or(0.0);
            sums[0] += place.predicted;
            sums[1] += reported;
            errors += (place.predicted - reported).abs() / 2.0;
        }
        looks += 1;
    }
    let n = f64::from(looks.max(1));
    let of = |which: usize| sums.iter().map(|sums| sums[which] / n).collect::<Vec<f64>>();
    let (predicted, reported) = (of(0), of(1));
    let (since, before) = first.unwrap_or((began, packets));
    Some(Phase {
        phase: title,
        packets_per_s: (packets - before) as f64 / since.elapsed().as_secs_f64().max(1e-3),
        gap: (reported[0] - reported[1]).abs(),
        error: errors / n,
        predicted,
        reported,
    })
}

fn drawn(title: &str, places: &[PlaceStatus]) -> Vec<String> {
    let bar = |part: f64| {
        let full = ((part * BAR as f64).round() as usize).min(BAR);
        format!("{}{}", "#".repeat(full), ".".repeat(BAR - full))
    };
    let mut lines = vec![title.to_owned()];
    for place in places {
        let load =
            |what: &str, part: f64| format!("  {what:<9} {} {:>5.1} %", bar(part), part * 100.0);
        let name = format!("  {} cpu {}", place.node, place.cpu);
        let predicted = load("predicted", place.predicted);
        lines.push(format!("{name}{predicted}   weight {:>5.1} %", place.weight * 100.0));
        let measured = load("measured", place.reported.unwrap_or(0.0));
        lines.push(format!("{}{measured}", " ".repeat(name.len())));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_and_weights_are_seen_in_80_columns() {
        let busy = PlaceStatus {
            node: "n1".to_owned(),
            cpu: 1,
            predicted: 1.0,
            reported: Some(1.0),
            weight: 1.0,
            ..PlaceStatus::default()
        };
        let lines = drawn("elephant 45 %", &[busy]);
        assert!(lines.iter().all(|line| line.len() < 80), "{lines:#?}");
        assert_eq!(lines.iter().filter(|line| line.contains("# 100.0 %")).count(), 2, "{lines:#?}");
    }
}
