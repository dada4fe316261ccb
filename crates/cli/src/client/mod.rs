//! The commands that ask a running daemon: `status`, `weights`, `curves`, `plan` and `events`.
//!
//! Each has its arguments, an `execute` that writes to any writer and can be tested against a made-up
//! daemon, and a `run` that gives the exit code.

pub mod complaints;
pub mod curves;
pub mod events;
mod failure;
pub mod http;
pub mod plan;
mod resolve;
pub mod status;
#[cfg(test)]
pub(crate) mod tests;
pub mod weights;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use plimsoll_api::wire::{ServiceSummary, Services};
use plimsoll_control::{BackendState, Phase};
use plimsoll_model::MethodKind;
use plimsoll_terminal::table::Cell;
use plimsoll_terminal::{Format, Tone, complain};

pub use failure::Failure;
use http::Client;
pub use resolve::{reachable, resolve_api};

/// What all of these commands take.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Common {
    /// Where the daemon answers [default: api.listen of --config, else http://127.0.0.1:7400]
    #[arg(long, value_name = "URL")]
    pub api: Option<String>,
    /// The daemon's configuration, to learn where it answers
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only this service
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// How to show the answer
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

impl Common {
    fn client(&self) -> Result<Client, Failure> {
        let api = resolve_api(self.api.as_deref(), self.config.as_deref());
        Ok(Client::new(&api.map_err(Failure::Usage)?))
    }

    /// The services asked for: all, or the one named.
    fn services(&self, client: &Client) -> Result<Vec<ServiceSummary>, Failure> {
        let Services { services, waiting } = client.get("/v1/services")?;
        if services.is_empty() {
            let why = waiting.map_or(String::new(), |what| format!(": {what}"));
            complain!("the daemon has no services{why}");
        }
        self.only(services, |service| &service.service)
    }

    /// Of these, the ones asked for.
    fn only<T>(&self, mut all: Vec<T>, name: impl Fn(&T) -> &str) -> Result<Vec<T>, Failure> {
        let Some(wanted) = &self.service else { return Ok(all) };
        match all.iter().position(|one| name(one) == wanted) {
            Some(at) => Ok(vec![all.swap_remove(at)]),
            None => {
                let known = all.iter().map(|one| name(one).to_owned()).collect();
                Err(Failure::UnknownService { name: wanted.clone(), known })
            }
        }
    }

    /// One part of each service asked for; a service that is taken away meanwhile is left out.
    fn each<T: serde::de::DeserializeOwned>(
        &self,
        client: &Client,
        part: &str,
    ) -> Result<Vec<T>, Failure> {
        let services = self.services(client)?;
        let get = |one: &ServiceSummary| {
            client.get_if_there(&format!("/v1/services/{}{part}", one.service)).transpose()
        };
        services.iter().filter_map(get).collect()
    }
}

/// Runs a command on standard output and says on standard error what went wrong.
fn finish(execute: impl FnOnce(&mut dyn Write) -> Result<(), Failure>) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let done = execute(&mut out).and_then(|()| out.flush().map_err(Failure::Write));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message() {
                message.lines().for_each(|line| complain!("{line}"));
            }
            ExitCode::from(failure.code())
        }
    }
}

/// How the balancer picks: its own name for it, and what its weights mean.
fn method(kind: MethodKind, name: &str) -> String {
    let kind = match kind {
        MethodKind::Split => "split",
        MethodKind::InFlight => "in flight",
        MethodKind::NoLiveWeights => "no live weights",
    };
    if name.is_empty() { kind.to_owned() } else { format!("{name} ({kind})") }
}

fn phase(phase: Phase) -> Cell {
    match phase {
        Phase::Exploring => Cell::toned("exploring", Tone::Warn),
        Phase::Steady => Cell::toned("steady", Tone::Good),
        Phase::ShortOfCapacity => Cell::toned("short of capacity", Tone::Bad),
        Phase::Observing => Cell::toned("observing", Tone::Quiet),
    }
}

fn state(state: BackendState) -> Cell {
    match state {
        BackendState::Ready => Cell::toned("ready", Tone::Good),
        BackendState::Exploring => Cell::toned("exploring", Tone::Warn),
        BackendState::SetAside => Cell::toned("set aside", Tone::Warn),
        BackendState::Failed => Cell::toned("failed", Tone::Bad),
        BackendState::Draining => Cell::toned("draining", Tone::Warn),
        BackendState::Joining => Cell::toned("joining", Tone::Warn),
        BackendState::Parked => Cell::toned("parked", Tone::Quiet),
    }
}
