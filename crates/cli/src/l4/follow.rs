//! What every layer-4 daemon does while it runs: it follows its configuration file, looks at the machine
//! once a second, and ends on SIGTERM or SIGINT.

use std::future::{Future, pending};
use std::path::Path;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

use crate::hangup;
use crate::run::file::Follow;

/// How often servers, interfaces, keys and the configuration file are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Keeps the kernel's tables.
pub trait Keep {
    /// Takes up the configuration as it is now, or says why the one in force stays.
    fn reload(&mut self, file: &Path);

    /// Takes up what has changed on the machine.
    fn look(&mut self);

    /// Whether another has taken its place.
    fn is_over(&self) -> bool {
        false
    }

    /// Waits for a client's question, and answers it. Dropped while it waits, it has lost none.
    fn asked(&mut self) -> impl Future<Output = ()> {
        pending()
    }
}

/// The signals a daemon obeys; held from before anything is loaded, so that none is missed.
pub struct Signals {
    hup: Signal,
    term: Signal,
    int: Signal,
}

impl Signals {
    /// Takes them from the system.
    pub fn new() -> Result<Self, String> {
        let of = |kind| signal(kind).map_err(|error| format!("cannot take signals: {error}"));
        Ok(Signals {
            hup: of(SignalKind::hangup())?,
            term: of(SignalKind::terminate())?,
            int: of(SignalKind::interrupt())?,
        })
    }
}

/// Follows the file and the machine until SIGTERM or SIGINT, or until another has taken over.
pub async fn follow_until_stopped(file: &Path, keeper: &mut impl Keep, mut signals: Signals) {
    let mut follow = Follow::new(file.to_owned());
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    if hangup::came() {
        keeper.reload(file);
    }
    loop {
        tokio::select! {
            _ = signals.hup.recv() => {
                follow.was_read();
                keeper.reload(file);
            }
            _ = ticks.tick() => {
                if follow.has_changed() {
                    keeper.reload(file);
                }
                keeper.look();
            }
            () = keeper.asked() => {}
            _ = signals.term.recv() => return,
            _ = signals.int.recv() => return,
        }
        if keeper.is_over() {
            return;
        }
    }
}
