//! File descriptors: how many a configuration takes, and how many this process may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;

/// The store, the log, the API with some clients, the runtime's own, and names that are looked up.
const OTHERS: u64 = 128;
/// Connections of probes that one backend has at the same time, where probing adapts: one, and another while
/// one that hangs waits for its time-out.
const PROBES: u64 = 2;
/// So many times as many are there at the most while servers answer too late: each has connections that are given up
/// and wait for its end.
const LATE: u64 = 3;

/// How many descriptors a daemon takes at the most in ordinary work.
pub fn needed(config: &Config) -> u64 {
    let services = config.services.iter().map(|service| {
        let checks =
            service.liveness.as_ref().map_or(1, |liveness| u64::from(liveness.value.requests));
        // One for each balancer: HAProxys behind several services have fewer. One more while it is asked what it has, and
        // one for a log.
        let balancers = service.sink.value.count() as u64;
        let others = u64::from(service.auto) + u64::from(service.source.is_some());
        balancers + others + service.backends.len() as u64 * (PROBES + checks)
    });
    OTHERS + services.sum::<u64>()
}

/// What this process may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Now.
    pub soft: u64,
    /// At the most: only an administrator raises it.
    pub hard: u64,
}

impl Limits {
    /// Those of this process.
    pub fn now() -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        Limits { soft: current.unwrap_or(u64::MAX), hard: maximum.unwrap_or(u64::MAX) }
    }

    /// What is wrong, where so many cannot be had.
    pub fn shortage(self, needed: u64) -> Option<String> {
        (self.hard < needed).then(|| {
            format!(
                "the limit of open files is {}, and this configuration takes up to {needed}: probes \
                 beyond it fail, and tell nothing of their backends",
                self.hard
            )
        })
    }
}

/// What to do about a [`Limits::shortage`].
pub const ADVICE: &str = "raise the hard limit: `LimitNOFILE=` in systemd's unit, `ulimit -Hn` in a shell, `--ulimit nofile` \
     for a container";

/// Raises the soft limit to what is needed at the worst, as far as the hard one allows; warns where that is not
/// enough for ordinary work.
pub fn raise(needed: u64) {
    let limits = Limits::now();
    let wanted = (LATE * needed).min(limits.hard);
    if limits.soft < wanted {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
            Ok(()) => tracing::info!("limit of open files raised from {} to {wanted}", limits.soft),
            Err(error) => {
                tracing::warn!("cannot raise the limit of open files to {wanted}: {error}");
            }
        }
    }
    if let Some(shortage) = limits.shortage(needed) {
        tracing::warn!("{shortage}; {ADVICE}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn descriptors_are_counted_for_every_backend_by_its_checks() {
        let service = |name: &str, liveness: &str| {
            format!(
                "  - name: {name}
    backends: [ {{ name: a, address: \"10.0.0.1:80\" }}, {{ name: b, address: \"10.0.0.2:80\" }} ]
    probe: {{ path: / }}
{liveness}    sink: {{ haproxy: {{ socket: /run/h.sock, backend: {name} }} }}
"
            )
        };
        let of = |text: &str| {
            needed(&config::parse("F", &format!("services:\n{text}")).expect("a configuration"))
        };
        let bare = service("one", "");
        assert_eq!(of(&bare), OTHERS + 1 + 2 * 3);
        let checked = service("two", "    liveness: { path: /, requests: 5 }\n");
        assert_eq!(of(&(bare + &checked)), OTHERS + 1 + 2 * 3 + 1 + 2 * 7);
    }

    #[test]
    fn too_low_a_hard_limit_is_said_with_both_numbers() {
        let limits = Limits { soft: 1_024, hard: 4_096 };
        assert_eq!(limits.shortage(4_096), None);
        let text = limits.shortage(9_700).expect("a shortage");
        assert!(text.contains("is 4096") && text.contains("9700"), "{text}");
    }
}
