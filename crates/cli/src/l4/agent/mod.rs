//! `plimsoll l4 agent`: the server's side. Reads the balancers' own configuration, finds the machine in
//! it by its addresses, and keeps the kernel's tables as it says; the kernel goes on by itself while the
//! daemon is down or is replaced.

mod http;
mod machine;
mod status;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use plimsoll_l4::{Agent, AgentSection, Keys, L4Error, Pending, agent_dir, detach_agent};
use tracing::{error, info, warn};

use super::config::load_section;
use super::follow::{Keep, Signals, follow_until_stopped};
use crate::daemons::{DaemonArgs, refused};

/// The server's agent: replies go straight to clients, and any number of balancers can stand in front
#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    Run(RunArgs),
    Status(status::StatusArgs),
    Detach(DetachArgs),
}

/// Write and restore cookies on this server, as the balancers' configuration has it
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// Take the programs off all interfaces, and forget the counters
#[derive(Args, Debug)]
pub struct DetachArgs {
    /// The balancers' configuration, for its l4.pin_dir
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs a subcommand.
pub fn main(command: &AgentCommand) -> ExitCode {
    match command {
        AgentCommand::Run(args) => run(args),
        AgentCommand::Status(args) => status::run(args),
        AgentCommand::Detach(args) => match pinned(args.config.as_deref()) {
            Ok(dir) => super::done(detach_agent(&dir).map_err(|error| error.to_string())),
            Err(code) => code,
        },
    }
}

/// Where the agent of a configuration is pinned.
fn pinned(config: Option<&Path>) -> Result<PathBuf, ExitCode> {
    match config {
        None => Ok(PathBuf::from(format!("{}-agent", plimsoll_l4::PIN_DIR))),
        Some(file) => match super::config::load(file) {
            Ok(l4) => Ok(agent_dir(&l4)),
            Err(errors) => Err(refused(&errors)),
        },
    }
}

/// Runs until SIGTERM or SIGINT, and leaves the kernel at work; `plimsoll l4 agent detach` ends that.
/// Exits 1 when it cannot start, 2 when the configuration is wrong.
fn run(args: &RunArgs) -> ExitCode {
    let file = &args.daemon.config;
    match load_section(file) {
        Ok(_) => args.daemon.run(keep(file)),
        Err(errors) => refused(&errors),
    }
}

async fn keep(file: &Path) -> Result<(), String> {
    let signals = Signals::new()?;
    let (mut keeper, own) = Keeper::start(file)?;
    if let Some(listen) = own.listen {
        http::start(listen).await?;
    }
    follow_until_stopped(file, &mut keeper, signals).await;
    info!("leaving; the kernel goes on");
    Ok(())
}

struct Keeper {
    agent: Agent,
    own: AgentSection,
    said: Pending,
    /// What was wrong with the key file when it was last looked at.
    keys_said: String,
    /// Whether its programs were taken off by somebody else.
    is_over: bool,
}

impl Keep for Keeper {
    fn reload(&mut self, file: &Path) {
        match self.try_reload(file) {
            Ok(pending) => {
                info!("configuration reloaded");
                self.say(pending);
            }
            Err(problem) => error!("{problem}; the configuration in force stays"),
        }
    }

    fn look(&mut self) {
        match self.agent.refresh() {
            Ok(pending) => self.say(pending),
            Err(problem @ L4Error::Replaced(_)) => {
                warn!("{problem}");
                self.is_over = true;
                return;
            }
            Err(problem) => warn!("{problem}"),
        }
        let found = keys(&self.agent.config().cookie.key_file);
        let problem = found.as_ref().err().cloned().unwrap_or_default();
        if problem != self.keys_said && !problem.is_empty() {
            warn!("{problem}; the keys in force stay");
        }
        self.keys_said = problem;
        if let Ok(keys) = found
            && keys != *self.agent.keys()
        {
            match self.agent.set_keys(keys) {
                Ok(()) => info!("keys read"),
                Err(problem) => warn!("{problem}"),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

impl Keeper {
    fn start(file: &Path) -> Result<(Keeper, AgentSection), String> {
        let whole = load_section(file).map_err(|errors| joined(&errors))?;
        let (l4, own) = (whole.balancer, whole.agent);
        let config = machine::of_this_machine(&l4, &own)?;
        let keys = keys(&config.cookie.key_file)?;
        let (agent, pending) = Agent::start(&config, keys).map_err(|error| error.to_string())?;
        for vip in &config.vips {
            info!(service = vip.name, backend = vip.backend, id = vip.id, "serving");
        }
        let mut keeper = Keeper {
            agent,
            own: own.clone(),
            said: Pending::default(),
            keys_said: String::new(),
            is_over: false,
        };
        keeper.say(pending);
        Ok((keeper, own))
    }

    fn try_reload(&mut self, file: &Path) -> Result<Pending, String> {
        let whole = load_section(file).map_err(|errors| joined(&errors))?;
        let (l4, own) = (whole.balancer, whole.agent);
        if own.listen != self.own.listen {
            warn!("l4.agent.listen: changes with the next start");
        }
        let config = machine::of_this_machine(&l4, &own)?;
        if config.pin_dir != self.agent.config().pin_dir {
            return Err("l4.pin_dir: expected it to stay; start another agent".to_owned());
        }
        self.agent.apply(&config).map_err(|error| error.to_string())
    }

    /// Says what is pending when it changes.
    fn say(&mut self, pending: Pending) {
        for what in pending.0.iter().filter(|what| !self.said.0.contains(what)) {
            warn!("{what}");
        }
        self.said = pending;
    }
}

/// The balancers' keys. An agent never makes any: no balancer would know them.
fn keys(path: &Path) -> Result<Keys, String> {
    let found = Keys::load(path).map_err(|error| error.to_string())?;
    found.ok_or_else(|| format!("{}: expected a copy of the balancers' key file", path.display()))
}

fn joined(errors: &[plimsoll_config::ConfigError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
