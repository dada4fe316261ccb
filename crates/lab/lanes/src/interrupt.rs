//! The wish of a person or of a supervisor that a run end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

use crate::LaneError;

/// Exit code of a run that an interrupt ended: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Whether SIGINT or SIGTERM has come. The first asks the run to clean up; the second ends the process
/// at once, and the guard of its family cleans up.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// One that never comes, for runs that nobody can interrupt.
    pub fn never() -> Self {
        Interrupt(Arc::default())
    }

    /// From here on the first signal no longer kills the process.
    ///
    /// # Errors
    /// When the system refuses a handler or a thread.
    pub fn listen() -> Result<Self, LaneError> {
        let came = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&came);
        let refused = || LaneError::system("wait for signals");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(refused())?;
        let entered = runtime.enter();
        let mut interrupt = signal(SignalKind::interrupt()).map_err(refused())?;
        let mut terminate = signal(SignalKind::terminate()).map_err(refused())?;
        drop(entered);
        let wait = async move {
            for again in [false, true] {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if again {
                    std::process::exit(INTERRUPTED);
                }
                flag.store(true, Ordering::Relaxed);
            }
        };
        let thread = std::thread::Builder::new().name("signals".into());
        thread.spawn(move || runtime.block_on(wait)).map_err(refused())?;
        Ok(Interrupt(came))
    }

    /// Whether one has come.
    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
