//! The machine that everything shares: how busy it is, and how many connections it allows.

use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit on open files to the hard one: an overloaded lane keeps thousands of
/// connections open, and many systems start with 1,024. What the system refuses stays as it is, and
/// shows as errors of the clients.
pub fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// How busy the whole machine was since some moment, from the first line of `/proc/stat`.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock {
    busy: u64,
    total: u64,
    at: Instant,
}

impl CpuClock {
    /// Counting from now; nothing where the system does not tell.
    pub fn now() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let (busy, total) = parse(stat.lines().next()?)?;
        Some(CpuClock { busy, total, at: Instant::now() })
    }

    /// The busy part of all cores since then, 0…1; nothing when no tick has passed.
    pub fn busy_share(&self) -> Option<f64> {
        let now = CpuClock::now()?;
        let total = now.total.checked_sub(self.total).filter(|ticks| *ticks > 0)?;
        let busy = now.busy.saturating_sub(self.busy);
        (now.at > self.at).then(|| busy as f64 / total as f64)
    }
}

/// Ticks spent busy, and all ticks: user, nice, system, idle, iowait, irq, softirq, steal. Guests are
/// part of user already.
fn parse(line: &str) -> Option<(u64, u64)> {
    let fields: Vec<u64> = line
        .strip_prefix("cpu ")?
        .split_whitespace()
        .take(8)
        .map_while(|f| f.parse().ok())
        .collect();
    let [user, nice, system, idle, iowait, ..] = fields[..] else { return None };
    let rest: u64 = fields[5..].iter().sum();
    let busy = user + nice + system + rest;
    Some((busy, busy + idle + iowait))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_ticks_are_not_busy() {
        assert_eq!(parse("cpu  10 1 5 80 4 1 2 3 9 9"), Some((22, 106)));
        assert_eq!(parse("cpu0 10 1 5 80 4"), None);
        assert_eq!(parse("cpu  10 x"), None);
    }
}
