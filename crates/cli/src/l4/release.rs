//! `plimsoll l4 release`: gives a service its configured weights again, when no controller steers it any
//! more.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use plimsoll_sink::wire::{Answer, Question};

use super::config;
use crate::daemons::refused;

/// The daemon answers at once unless it hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Give a service the weights of the configuration again, in place of a controller's
#[derive(clap::Args, Debug)]
pub struct ReleaseArgs {
    /// The balancer's configuration, for its l4.socket
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The service's name
    #[arg(long, value_name = "NAME")]
    vip: String,
}

/// Asks the daemon.
pub fn run(args: &ReleaseArgs) -> ExitCode {
    let section = match config::load_section(&args.config) {
        Ok(section) => section,
        Err(errors) => return refused(&errors),
    };
    let Some(socket) = section.socket else {
        return plimsoll_terminal::fail(
            "expected l4.socket in the configuration: the daemon is asked there",
        );
    };
    super::done(release(&socket.path, &args.vip))
}

fn release(path: &Path, vip: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| {
        format!("{}: {error}; expected `plimsoll l4 run` to listen there", path.display())
    };
    let stream = UnixStream::connect(path).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let question = Question::Release { vip: vip.to_owned() };
    let mut line = serde_json::to_string(&question).map_err(|error| error.to_string())?;
    line.push('\n');
    (&stream).write_all(line.as_bytes()).map_err(failed)?;
    line.clear();
    BufReader::new(&stream).read_line(&mut line).map_err(failed)?;
    match serde_json::from_str(&line).map_err(|error| error.to_string())? {
        Answer::Done(_) => Ok(()),
        Answer::Refused { message, .. } => Err(message),
    }
}
