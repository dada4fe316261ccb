//! `plimsoll proxy capture`: the nftables rules of entries that capture, printed, installed and removed.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use clap::{Args, Subcommand};
use plimsoll_proxy::capture;

use super::config;
use crate::daemons::refused;

/// Redirect what local processes send to the entries that capture it, by nftables
#[derive(Debug, Subcommand)]
pub enum CaptureCommand {
    /// Print the rules
    Print(ConfigArgs),
    /// Put the rules in force, in place of those that were there before; the proxy is to run already
    Install(ConfigArgs),
    /// Remove the rules
    Remove,
}

/// Whose rules.
#[derive(Args, Debug)]
pub struct ConfigArgs {
    /// The proxy's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Does it.
pub fn run(command: &CaptureCommand) -> ExitCode {
    let done = match command {
        CaptureCommand::Remove => nft(&capture::removal()),
        CaptureCommand::Print(args) | CaptureCommand::Install(args) => {
            let config = match config::load(&args.config) {
                Ok(config) => config,
                Err(errors) => return refused(&errors),
            };
            let Some(rules) = capture::rules(&config) else {
                let file = args.config.display();
                return plimsoll_terminal::fail(&format!("{file}: no egress entry has a capture"));
            };
            if matches!(command, CaptureCommand::Print(_)) {
                return plimsoll_terminal::answer(&rules);
            }
            nft(&rules)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => plimsoll_terminal::fail(&why),
    }
}

/// Has nftables read this; all of it or nothing is in force afterwards.
fn nft(text: &str) -> Result<(), String> {
    let started = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut nft =
        started.map_err(|error| format!("cannot run nft: {error} (apt-get install nftables)"))?;
    let mut input = nft.stdin.take().ok_or("nft takes no input")?;
    let written = input.write_all(text.as_bytes());
    drop(input);
    let output = nft.wait_with_output().map_err(|error| format!("nft: {error}"))?;
    if output.status.success() {
        return written.map_err(|error| format!("nft: {error}"));
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("nft refused the rules, and nothing has changed: {said}"))
}
