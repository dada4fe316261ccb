//! `plimsoll lab`: emulated backends and a load generator, for trying things out on one machine.

mod backends;
mod load;
mod papers;
mod pool;

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_lanes::LaneError;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub use backends::{LabBackendsArgs, run_backends};
pub use load::{LabLoadArgs, run_load};
pub use papers::{LabListArgs, LabReportArgs, LabRunArgs, run_experiments, run_list, run_report};
pub use pool::{LabPoolArgs, run_pool};

/// Exit code for what went wrong at run time.
const FAILED: u8 = 1;
/// Exit code for bad arguments and bad files.
const MALFORMED: u8 = 2;
/// Exit code of a command that an interrupt ended before it was done: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// For clap: a duration with its unit.
fn duration(text: &str) -> Result<Duration, String> {
    plimsoll_testbed::parse_duration(text)
}

/// This very executable, which serves lanes as their daemon.
///
/// # Errors
/// When the system does not tell.
pub fn this_program() -> Result<PathBuf, LaneError> {
    std::env::current_exe().map_err(LaneError::system("find this program"))
}

/// The wish of a person or of a supervisor that the command end.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// From here on the signals no longer kill the process.
    fn listen() -> std::io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(StopSignals { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    /// Returns at the next signal.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::Path;

    use plimsoll_lanes::{Steered, daemon_configuration};

    #[test]
    fn the_configuration_of_a_lane_is_one_that_plimsoll_accepts() {
        let servers = [("s1".to_owned(), SocketAddr::from(([127, 0, 0, 1], 81)))];
        let api = SocketAddr::from(([127, 0, 0, 1], 82));
        for exploration in [None, Some("literal"), Some("bisect")] {
            let steered =
                Steered { servers: &servers, socket: Path::new("/x/a.sock"), exploration };
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("plimsoll.yaml");
            let text = daemon_configuration(&steered, Path::new("/x/state"), api).to_string();
            std::fs::write(&file, text).unwrap();
            let config = crate::config::load(&file).unwrap();
            assert_eq!(config.services[0].backends.len(), 1);
        }
    }
}
