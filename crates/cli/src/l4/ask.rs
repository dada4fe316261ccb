//! `plimsoll l4 where`: asks the program where a packet would go.

use std::net::SocketAddr;
use std::process::ExitCode;

use plimsoll_l4::{Answer, Question};
use plimsoll_terminal::Format;

use super::Pinned;

/// Ask the program where a client's packet would go; nothing is counted, no server's turn is taken
#[derive(clap::Args, Debug)]
pub struct WhereArgs {
    #[command(flatten)]
    pinned: Pinned,
    /// The service's address
    #[arg(long, value_name = "ADDRESS:PORT")]
    vip: SocketAddr,
    /// The client's address
    #[arg(long, value_name = "ADDRESS:PORT")]
    client: SocketAddr,
    /// The timestamp that the client echoes (TSecr), for a packet of an open connection
    #[arg(long, value_name = "N")]
    echo: Option<u32>,
    /// A client without TCP timestamps
    #[arg(long, conflicts_with = "echo")]
    no_timestamps: bool,
    /// How to answer
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
}

/// Asks, and prints.
pub fn run(args: &WhereArgs) -> ExitCode {
    let dir = match args.pinned.dir() {
        Ok(dir) => dir,
        Err(code) => return code,
    };
    let question = Question {
        vip: args.vip,
        client: args.client,
        echo: args.echo,
        timestamps: !args.no_timestamps,
    };
    let answer = match plimsoll_l4::ask(&dir, question) {
        Ok(answer) => answer,
        Err(error) => return plimsoll_terminal::fail(&error.to_string()),
    };
    match args.output {
        Format::Json => match serde_json::to_string_pretty(&answer) {
            Ok(text) => plimsoll_terminal::answer(&format!("{text}\n")),
            Err(error) => plimsoll_terminal::fail(&error.to_string()),
        },
        Format::Table => plimsoll_terminal::answer(&format!("{}\n", sentence(args.vip, &answer))),
    }
}

fn sentence(vip: SocketAddr, answer: &Answer) -> String {
    match (&answer.service, &answer.backend, answer.id) {
        (Some(service), Some(backend), Some(id)) => {
            format!("{service}: {backend} (id {id}), {}", answer.verdict)
        }
        (Some(service), ..) => format!("{service}: no server, {}", answer.verdict),
        _ => format!("{vip} is no service here: {}", answer.verdict),
    }
}
