//! `plimsoll l4 agent status`: what the kernel counted on this server. Needs no daemon.

use std::path::PathBuf;
use std::process::ExitCode;

use plimsoll_l4::{AGENT_COUNTS, AgentStatus, agent_status};
use plimsoll_terminal::table::{Table, left, right};
use plimsoll_terminal::{Format, Screen, json};

/// Show what the agent's programs did, by service
#[derive(clap::Args, Debug)]
pub struct StatusArgs {
    /// The balancers' configuration, for its l4.pin_dir
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How to answer
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
}

/// Asks, and prints.
pub fn run(args: &StatusArgs) -> ExitCode {
    let dir = match super::pinned(args.config.as_deref()) {
        Ok(dir) => dir,
        Err(code) => return code,
    };
    let status = match agent_status(&dir) {
        Ok(status) => status,
        Err(error) => return plimsoll_terminal::fail(&error.to_string()),
    };
    let mut out = std::io::stdout().lock();
    let shown = match args.output {
        Format::Json => json(&mut out, &status),
        Format::Table => std::io::Write::write_all(&mut out, table(&status).as_bytes()),
    };
    match shown {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            plimsoll_terminal::fail(&format!("cannot write the answer: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

fn table(status: &AgentStatus) -> String {
    let mut columns = vec![left("service"), left("address"), right("id")];
    columns.extend(AGENT_COUNTS.map(right));
    let mut table = Table::new(columns);
    for vip in &status.vips {
        let counts = AGENT_COUNTS.map(|name| vip.counts[name].to_string().into());
        let first =
            [vip.name.as_str().into(), vip.address.to_string().into(), vip.id.to_string().into()];
        table.row(first.into_iter().chain(counts));
    }
    format!("on {}\n\n{}", status.interfaces.join(", "), table.render(&Screen::stdout()))
}
