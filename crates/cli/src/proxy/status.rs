//! `plimsoll proxy status`: asks a running proxy over its socket.

use std::process::ExitCode;

use plimsoll_proxy::{BackendState, RequestStatus, Status};
use plimsoll_terminal::table::{Cell, Table, left, right};
use plimsoll_terminal::{Format, Screen, Tone};

use super::{Asked, failed};

/// Show entries, backends and what was sent to them
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
    let socket = match args.asked.socket() {
        Ok(socket) => socket,
        Err(code) => return code,
    };
    let status = match plimsoll_proxy::ask(&socket) {
        Ok(status) => status,
        Err(error) => return failed(&error),
    };
    match args.output {
        Format::Json => match serde_json::to_string_pretty(&status) {
            Ok(text) => plimsoll_terminal::answer(&format!("{text}\n")),
            Err(error) => plimsoll_terminal::fail(&error.to_string()),
        },
        Format::Table => plimsoll_terminal::answer(&table(&status, &Screen::stdout())),
    }
}

fn table(status: &Status, screen: &Screen) -> String {
    let mut table = Table::new([
        left("ENTRY"),
        left("POOL"),
        left("BACKEND"),
        left("STATE"),
        right("IN FLIGHT"),
        right("SENT"),
        right("OK"),
        right("FAILED"),
        right("ABANDONED"),
        right("REFUSED"),
        right("MEAN MS"),
    ]);
    for entry in &status.ingress {
        let backend = entry.upstream.to_string();
        table.row(row([&entry.name, "(ingress)", &backend], "".into(), &entry.application));
    }
    for entry in &status.egress {
        for pool in &entry.pools {
            for backend in &pool.backends {
                let names = [&entry.name[..], &pool.name, &backend.name];
                table.row(row(names, state(backend.state), &backend.requests));
            }
        }
    }
    table.render(screen)
}

fn state(state: BackendState) -> Cell {
    match state {
        BackendState::Up => Cell::toned("up", Tone::Plain),
        BackendState::Down => Cell::toned("down", Tone::Bad),
        BackendState::Drained => Cell::toned("drained", Tone::Warn),
        BackendState::Left => Cell::toned("left", Tone::Warn),
    }
}

fn row(names: [&str; 3], state: Cell, requests: &RequestStatus) -> Vec<Cell> {
    let mean = match requests.succeeded {
        0 => None,
        count => Some(requests.latency_sum_s * 1e3 / count as f64),
    };
    let counts = [
        requests.in_flight,
        requests.sent,
        requests.succeeded,
        requests.failed,
        requests.abandoned,
        requests.rejected + requests.too_late,
    ];
    let names = names.into_iter().map(Into::into);
    let counts = counts.into_iter().map(|count| count.to_string().into());
    names.chain([state]).chain(counts).chain([plimsoll_terminal::maybe(mean).into()]).collect()
}
