//! `plimsoll lab`: emulated backends and a load generator, for trying things out on one machine.

mod backends;
mod load;
mod pool;

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub use backends::{LabBackendsArgs, run_backends};
pub use load::{LabLoadArgs, run_load};
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
