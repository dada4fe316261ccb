//! `plimsoll edge status`: asks a running forwarder over its socket.

use std::process::ExitCode;

use plimsoll_edge::Status;
use plimsoll_terminal::table::{Cell, Table, left, right};
use plimsoll_terminal::{Format, Screen, fail};
use serde_json::json;

use super::Asked;

/// Show nodes, cores and services: packets, predicted and reported load, weights, flows
#[derive(clap::Args, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    asked: Asked,
    /// How to answer
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
}

/// Asks, and prints.
pub fn run(args: &StatusArgs) -> ExitCode {
    let value = match args.asked.ask(&json!("status")) {
        Ok(value) => value,
        Err(code) => return code,
    };
    match (args.output, serde_json::from_value::<Status>(value.clone())) {
        (Format::Json, _) => plimsoll_terminal::answer(&format!("{value:#}\n")),
        (Format::Table, Ok(status)) => {
            plimsoll_terminal::answer(&table(&status, &Screen::stdout()))
        }
        (Format::Table, Err(error)) => fail(&format!("expected a forwarder's status: {error}")),
    }
}

fn percent(part: f64) -> String {
    format!("{:.1}", part * 100.0)
}

fn table(status: &Status, screen: &Screen) -> String {
    let mut table = Table::new([
        left("NODE"),
        left("STATE"),
        right("CPU"),
        left("SERVICE"),
        right("PACKETS"),
        right("FLOWS"),
        right("WEIGHT %"),
        right("PREDICTED %"),
        right("REPORTED %"),
        right("US/PACKET"),
    ]);
    for place in &status.places {
        let node = status.nodes.iter().find(|node| node.name == place.node);
        let cells: [Cell; 10] = [
            place.node.as_str().into(),
            node.map_or("", |node| node.state.as_str()).into(),
            place.cpu.to_string().into(),
            place.service.as_str().into(),
            place.packets.to_string().into(),
            place.flows.to_string().into(),
            percent(place.weight).into(),
            percent(place.predicted).into(),
            place.reported.map_or("-".to_owned(), percent).into(),
            format!("{:.2}", place.cost_us).into(),
        ];
        table.row(cells);
    }
    let mut text = table.render(screen);
    let of = &status.table;
    text += &format!(
        "\nflow table: {} of {} entries of IPv4, {} of IPv6; policy {}, every {} ms\n",
        of.entries4, of.limit, of.entries6, status.policy, status.interval_ms
    );
    for node in &status.nodes {
        if let Some(problem) = &node.problem {
            text += &format!("{}: {}\n", node.name, plimsoll_terminal::printable(problem));
        }
    }
    text
}
