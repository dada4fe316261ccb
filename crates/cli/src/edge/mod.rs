//! `plimsoll edge`: network functions, both directions of a flow through the same instance.

pub mod config;
mod metrics;
mod node;
mod run;
mod status;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use plimsoll_edge::Key;
use plimsoll_edge::config::{PIN_DIR, SOCKET};
use plimsoll_terminal::{complain, exit};
use serde_json::{Value, json};

pub use run::summary;

use crate::daemons::refused;

/// Network functions on several nodes: both directions of a flow through one instance, new flows where there is room
#[derive(Debug, Subcommand)]
pub enum EdgeCommand {
    Run(run::RunArgs),
    #[command(subcommand)]
    Node(node::NodeCommand),
    Status(status::StatusArgs),
    Where(WhereArgs),
    Drain(DrainArgs),
    Detach(DetachArgs),
    Key(KeyArgs),
}

/// Say which instance has a flow
#[derive(Args, Debug)]
pub struct WhereArgs {
    #[command(flatten)]
    asked: Asked,
    /// The flow, such as udp:10.0.0.1:40000-192.0.2.1:53
    #[arg(long, value_name = "FLOW")]
    flow: String,
}

/// Send a node no new flows; those that are there stay until they end
#[derive(Args, Debug)]
pub struct DrainArgs {
    #[command(flatten)]
    asked: Asked,
    /// The node
    #[arg(value_name = "NAME")]
    node: String,
    /// Send it new flows again
    #[arg(long)]
    undo: bool,
}

/// Take the program of a forwarder that has ended off all interfaces, and forget its flows
#[derive(Args, Debug)]
pub struct DetachArgs {
    /// The forwarder's configuration, for its edge.pin_dir and edge.socket
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Make the key by which forwarder and nodes know each other, unless there is one
#[derive(Args, Debug)]
pub struct KeyArgs {
    /// The configuration, for its edge.control.key
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Runs a subcommand.
pub fn main(command: &EdgeCommand) -> ExitCode {
    match command {
        EdgeCommand::Run(args) => run::run(args),
        EdgeCommand::Node(command) => node::main(command),
        EdgeCommand::Status(args) => status::run(args),
        EdgeCommand::Where(args) => place(args),
        EdgeCommand::Drain(args) => drain(args),
        EdgeCommand::Detach(args) => detach(args),
        EdgeCommand::Key(args) => key(args),
    }
}

/// Where a running forwarder is asked.
#[derive(Args, Debug)]
struct Asked {
    /// The forwarder's configuration, for its edge.socket
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    config: Option<PathBuf>,
    /// The forwarder's socket
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
}

impl Asked {
    /// What a running forwarder answers, or what to exit with.
    fn ask(&self, question: &Value) -> Result<Value, ExitCode> {
        let socket = match &self.config {
            Some(file) => config::load(file).map_err(|errors| refused(&errors))?.socket,
            None => self.socket.clone(),
        };
        plimsoll_edge::ask(&socket, question).map_err(|error| {
            complain!("plimsoll: {error}");
            ExitCode::from(exit::NO_DAEMON)
        })
    }
}

fn place(args: &WhereArgs) -> ExitCode {
    match args.asked.ask(&json!({ "where": args.flow })) {
        Ok(Value::Null) => plimsoll_terminal::fail("no such flow is known"),
        Ok(found) => plimsoll_terminal::answer(&format!("{found:#}\n")),
        Err(code) => code,
    }
}

fn drain(args: &DrainArgs) -> ExitCode {
    match args.asked.ask(&json!({ "drain": { "node": args.node, "undo": args.undo } })) {
        Ok(_) => ExitCode::SUCCESS,
        Err(code) => code,
    }
}

fn detach(args: &DetachArgs) -> ExitCode {
    let (pin_dir, socket) = match args.config.as_deref().map(config::load) {
        None => (PIN_DIR.into(), SOCKET.into()),
        Some(Ok(config)) => (config.pin_dir, config.socket),
        Some(Err(errors)) => return refused(&errors),
    };
    match plimsoll_edge::detach(&pin_dir, &socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => plimsoll_terminal::fail(&error.to_string()),
    }
}

fn key(args: &KeyArgs) -> ExitCode {
    let config = match config::load(&args.config) {
        Ok(config) => config,
        Err(errors) => return refused(&errors),
    };
    match Key::create(&config.key) {
        Ok(()) => plimsoll_terminal::answer(&format!(
            "{}: made; copy it to every node, readable by its owner alone\n",
            config.key.display()
        )),
        Err(error) => plimsoll_terminal::fail(&error.to_string()),
    }
}
