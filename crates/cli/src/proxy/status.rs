//! `plimsoll proxy status`: asks a running proxy over its socket.

use std::process::ExitCode;

use plimsoll_proxy::{RequestStatus, Status};
use plimsoll_terminal::table::{Table, left, right};
use plimsoll_terminal::{Format, Screen};

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
        table.row(row([&entry.name, "(ingress)", &backend], &entry.application));
    }
    for entry in &status.egress {
        for pool in &entry.pools {
            for backend in &pool.backends {
                table.row(row([&entry.name, &pool.name, &backend.name], &backend.requests));
            }
        }
    }
    table.render(screen)
}

fn row(names: [&str; 3], requests: &RequestStatus) -> Vec<plimsoll_terminal::table::Cell> {
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
    names.chain(counts).chain([plimsoll_terminal::maybe(mean).into()]).collect()
}
