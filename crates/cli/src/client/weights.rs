//! `plimsoll weights`: what is wanted, what the balancer holds, and why.

use std::io::Write;
use std::process::ExitCode;

use plimsoll_api::wire::{ServiceWeights, Weights};
use plimsoll_terminal::table::{Cell, Table, left, right};
use plimsoll_terminal::{Format, Screen, Tone, json, maybe};

use super::{Common, Failure, finish, method, phase, state};

/// Show the weights wanted and programmed, and why
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) common: Common,
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    finish(|out| execute(args, &Screen::stdout(), out))
}

pub(super) fn execute(args: &Args, screen: &Screen, out: &mut dyn Write) -> Result<(), Failure> {
    let client = args.common.client()?;
    let Weights { services } = client.get("/v1/weights")?;
    let services = args.common.only(services, |service| &service.service)?;
    if args.common.output == Format::Json {
        return Ok(json(out, &Weights { services })?);
    }
    for (i, service) in services.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        let heading = screen.paint(Tone::Head, &service.service);
        let (method, phase) = (method(service.method, ""), phase(service.phase));
        writeln!(out, "{heading}: {method}, {}, epoch {}", phase.painted(screen), service.epoch)?;
        write!(out, "{}", table(service).render(screen))?;
    }
    Ok(())
}

fn table(service: &ServiceWeights) -> Table {
    let mut table = Table::new([
        left("BACKEND"),
        left("STATE"),
        right("WEIGHT"),
        right("PROGRAMMED"),
        right("SHARE (%)"),
        right("LATENCY (ms)"),
        right("EXPECTED (ms)"),
        left("REASON"),
    ]);
    for backend in &service.backends {
        let held = backend.programmed.map_or_else(|| "-".to_owned(), |held| held.to_string());
        let same = backend.programmed == Some(backend.weight);
        table.row([
            (&backend.backend).into(),
            state(backend.state),
            backend.weight.to_string().into(),
            Cell::toned(held, if same { Tone::Plain } else { Tone::Warn }),
            format!("{:.1}", 100.0 * backend.share).into(),
            maybe(backend.latency_ms).into(),
            maybe(backend.expected_ms).into(),
            (&backend.reason).into(),
        ]);
    }
    table
}
