//! What the daemon needs of the machine: a store, a port, a clock.

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_store::{Holder, Store, StoreError};

use super::finding::{Finding, Findings};
use super::running::Running;
use crate::config::Config;
use crate::run::descriptors::{self, Limits};

/// Before this the clock has not been set: the year this was written in.
const BUILT_AFTER: Duration = Duration::from_secs(1_767_225_600);

/// Looks at store, API and clock.
pub async fn examine(config: &Config, running: &Running, findings: &mut Findings) {
    findings.add(Finding::note("plimsoll", format!("version {}", env!("CARGO_PKG_VERSION"))));
    findings.add(api(config, running));
    let path = config.store.path.clone();
    let looked = tokio::task::spawn_blocking(move || store(&path)).await;
    match looked {
        Ok(finding) => findings.add(finding.given(running)),
        Err(error) => findings.add(Finding::error("store", error.to_string(), "")),
    }
    findings.add(clock(SystemTime::now()));
    findings.add(files(descriptors::needed(config), Limits::now()));
}

/// Whether a daemon with this process's limits could open what it needs.
fn files(needed: u64, limits: Limits) -> Finding {
    match limits.shortage(needed) {
        Some(shortage) => Finding::error("files", shortage, descriptors::ADVICE),
        None => Finding::ok(
            "files",
            format!(
                "up to {needed} descriptors are needed; the hard limit here is {} (a service manager may \
                 set another one for the daemon)",
                limits.hard
            ),
        ),
    }
}

fn api(config: &Config, running: &Running) -> Finding {
    let listen = config.api.listen;
    match running {
        Running::Daemon(told) => {
            Finding::ok("api", format!("a daemon answers at {listen} (services: {})", told.len()))
        }
        Running::Stranger(why) => Finding::error(
            "api",
            format!("something else listens on {listen} ({why})"),
            "end it, or choose another api.listen",
        ),
        Running::Nobody => match TcpListener::bind(listen) {
            Ok(_) => Finding::ok("api", format!("{listen} is free; no daemon runs")),
            Err(error) => Finding::error(
                "api",
                format!("cannot listen on {listen}: {error}"),
                match error.kind() {
                    io::ErrorKind::AddrInUse => "something listens there and does not answer",
                    _ => "choose another api.listen",
                },
            ),
        },
    }
}

/// A store as it was found.
enum Found {
    Good(String),
    InUse(String),
    Bad(String),
}

impl Found {
    fn given(self, running: &Running) -> Finding {
        match (self, running) {
            (Found::Good(what), _) => Finding::ok("store", what),
            (Found::InUse(what), Running::Daemon(_)) => Finding::ok("store", what),
            (Found::InUse(what), _) => Finding::error(
                "store",
                what,
                "a daemon holds it that does not answer at api.listen: end that one, or give this \
                 configuration a store.path of its own",
            ),
            (Found::Bad(what), _) => Finding::error(
                "store",
                what,
                "put it right, or choose another store.path; see docs/store.md",
            ),
        }
    }
}

/// A store that is there is opened and checked whole; nothing is made where there is none.
fn store(path: &Path) -> Found {
    let shown = path.display();
    if path.exists() {
        // The name in the lock is the doctor's for a moment.
        return match Store::open(path, &Holder::this_process("")) {
            Ok(_) => Found::Good(format!("{shown} is sound and can be written")),
            Err(error @ StoreError::InUse { .. }) => Found::InUse(error.to_string()),
            Err(error) => Found::Bad(error.to_string()),
        };
    }
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let trial = dir.join(format!(".plimsoll-doctor-{}", std::process::id()));
    let made = std::fs::File::create_new(&trial);
    // Only where it was made; and a leftover of no bytes does no harm.
    if made.is_ok() {
        let _ = std::fs::remove_file(&trial);
    }
    match made {
        Ok(_) => Found::Good(format!("{shown} is not there yet and can be made")),
        Err(error) => Found::Bad(format!("{shown}: cannot be made: {error}")),
    }
}

fn clock(now: SystemTime) -> Finding {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    if since < BUILT_AFTER {
        return Finding::warning(
            "clock",
            "the wall clock is years behind: events will carry wrong times",
            "set it; decisions do not depend on it",
        );
    }
    Finding::ok("clock", "the wall clock is set")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;

    #[test]
    fn a_store_is_looked_at_and_none_is_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store");
        assert!(matches!(store(&path), Found::Good(_)));
        assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0);
        std::fs::write(&path, "something else").expect("written");
        assert!(matches!(store(&path), Found::Bad(why) if why.contains("not a Plimsoll store")));
        assert!(matches!(store(&dir.path().join("no/store")), Found::Bad(_)));
        std::fs::remove_file(&path).expect("removed");
        let held = Store::open(&path, &Holder::this_process("here:1")).expect("a new store");
        let found = store(&path);
        drop(held);
        let Found::InUse(why) = found else { panic!("in use") };
        assert!(why.contains("here:1"), "{why}");
        let of = |running| Found::InUse(why.clone()).given(&running).severity;
        assert_eq!(of(Running::Nobody), Severity::Error);
        assert_eq!(of(Running::Daemon(Default::default())), Severity::Ok);
    }

    #[test]
    fn too_low_a_limit_of_open_files_is_an_error_before_the_daemon_starts() {
        let of = |hard| files(9_700, Limits { soft: 1_024, hard });
        let low = of(4_096);
        assert_eq!(low.severity, Severity::Error);
        assert!(low.advice.is_some_and(|advice| advice.contains("LimitNOFILE")));
        assert_eq!(of(9_700).severity, Severity::Ok, "`run` raises the soft limit itself");
    }

    #[test]
    fn a_clock_that_was_never_set_is_seen() {
        assert_eq!(clock(UNIX_EPOCH + Duration::from_secs(99)).severity, Severity::Warning);
        assert_eq!(clock(SystemTime::now()).severity, Severity::Ok);
    }
}
