//! SIGHUP has a daemon read its configuration again. It ends a process that has not yet said otherwise, and
//! `systemctl reload` right after a start, or a log rotation, may send one at any time: so that is said before
//! anything else is done.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::SIGHUP;

/// Whether one came.
static CAME: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The commands that obey a SIGHUP; it ends all others, as it should when their terminal goes.
const DAEMONS: [&[&str]; 4] =
    [&["run"], &["l4", "run"], &["l4", "agent", "run"], &["proxy", "run"]];

/// From here on no SIGHUP ends a daemon. To be called first in `main`.
pub fn hold() {
    let words: Vec<_> = std::env::args_os().skip(1).take(3).collect();
    let begins = |daemon: &&[&str]| {
        words.len() >= daemon.len()
            && daemon.iter().zip(&words).all(|(word, found)| OsStr::new(word) == found)
    };
    if DAEMONS.iter().any(begins) {
        // It fails only for signals that no process may handle. The daemon that cannot have this says so when it
        // asks for its own.
        let _ = signal_hook::flag::register(SIGHUP, CAME.clone());
    }
}

/// Whether one came before the daemon itself took them: it reloads once more then.
pub fn came() -> bool {
    CAME.swap(false, SeqCst)
}
