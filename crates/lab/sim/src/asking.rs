//! When backends are probed and checked, as the controller asks for it.

use std::time::Duration;

use plimsoll_model::BackendId;

/// Of one kind of question: when each backend is asked next, and how often.
struct Every {
    next: Vec<u64>,
    /// Nanoseconds; `u64::MAX` for never.
    interval: Vec<u64>,
}

impl Every {
    fn never(n: usize) -> Self {
        Every { next: vec![0; n], interval: vec![u64::MAX; n] }
    }

    /// Whether the backend is to be asked now; the next time is an interval later.
    fn is_due(&mut self, i: usize, now: u64) -> bool {
        let due = self.interval[i] != u64::MAX && now >= self.next[i];
        if due {
            self.next[i] = now + self.interval[i];
        }
        due
    }
}

/// Probes and checks of every backend.
pub(crate) struct Asking {
    probes: Every,
    checks: Every,
}

impl Asking {
    /// Nobody is asked.
    pub fn new(n: usize) -> Self {
        Asking { probes: Every::never(n), checks: Every::never(n) }
    }

    /// A controller begins: it has asked for nothing yet.
    pub fn stop(&mut self) {
        self.probes.interval.fill(u64::MAX);
        self.checks.interval.fill(u64::MAX);
    }

    /// Probes this often from now on; never with an interval of zero.
    pub fn set_probes(&mut self, backend: BackendId, interval: Duration, now: u64) {
        let i = backend.0 as usize;
        let every = Some(interval.as_nanos() as u64).filter(|every| *every > 0);
        self.probes.interval[i] = every.unwrap_or(u64::MAX);
        self.probes.next[i] = self.probes.next[i].min(now.saturating_add(self.probes.interval[i]));
    }

    /// Checks this often from now on, the first time now if `at_once`.
    pub fn set_checks(
        &mut self,
        backend: BackendId,
        interval: Option<Duration>,
        at_once: bool,
        now: u64,
    ) {
        let i = backend.0 as usize;
        let every = interval.map_or(u64::MAX, |interval| interval.as_nanos() as u64);
        self.checks.interval[i] = every;
        let wait = if at_once { 0 } else { every };
        self.checks.next[i] = self.checks.next[i].min(now.saturating_add(wait)).max(now);
    }

    /// Whether the backend is to be probed now.
    pub fn is_probe_due(&mut self, i: usize, now: u64) -> bool {
        self.probes.is_due(i, now)
    }

    /// Whether it is to be checked now.
    pub fn is_check_due(&mut self, i: usize, now: u64) -> bool {
        self.checks.is_due(i, now)
    }
}
