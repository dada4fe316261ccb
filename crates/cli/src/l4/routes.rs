//! Waits for changes of routes, rules and neighbours, so that where replies go follows them at once.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use plimsoll_l4::Watch;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

/// Changes come in bursts: what comes within this time of one is read once.
const BURST: Duration = Duration::from_millis(10);
/// Of the time, at most one part in this many goes into reading routes that never rest.
const SHARE: u32 = 10;

/// The kernel's changes.
pub struct Routes {
    heard: Arc<Notify>,
    not_before: Instant,
}

impl Routes {
    /// From now on, if the kernel lets us: a thread listens as long as the process lives.
    pub fn watch() -> Option<Routes> {
        let late = |error: &std::io::Error| warn!("changes of routes are seen late: {error}");
        let watch = Watch::new().inspect_err(late).ok()?;
        let heard = Arc::new(Notify::new());
        let tell = Arc::clone(&heard);
        let listen = move || {
            while watch.wait().inspect_err(late).is_ok() {
                tell.notify_one();
            }
        };
        thread::Builder::new().name("routes".to_owned()).spawn(listen).inspect_err(late).ok()?;
        Some(Routes { heard, not_before: Instant::now() })
    }

    /// Waits until something has changed. Dropped while it waits, it has lost nothing.
    pub async fn changed(&mut self) {
        sleep_until(self.not_before).await;
        self.heard.notified().await;
    }

    /// Lets time go by after what was read took so long.
    pub fn rest(&mut self, took: Duration) {
        self.not_before = Instant::now() + (took * SHARE).max(BURST);
    }
}
