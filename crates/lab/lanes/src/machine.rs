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
    ticks: Ticks,
    at: Instant,
}

impl CpuClock {
    /// Counting from now; nothing where the system does not tell.
    pub fn now() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        Some(CpuClock { ticks: parse(stat.lines().next()?)?, at: Instant::now() })
    }

    /// The busy part of all cores since then, 0…1; nothing when no tick has passed.
    pub fn busy_share(&self) -> Option<f64> {
        self.share(|ticks| ticks.busy)
    }

    /// The part of all cores that the hypervisor gave to others since then, 0…1, which counts as busy
    /// too; nothing when no tick has passed.
    pub fn steal_share(&self) -> Option<f64> {
        self.share(|ticks| ticks.steal)
    }

    fn share(&self, of: impl Fn(&Ticks) -> u64) -> Option<f64> {
        let now = CpuClock::now()?;
        let total = now.ticks.total.checked_sub(self.ticks.total).filter(|ticks| *ticks > 0)?;
        let part = of(&now.ticks).saturating_sub(of(&self.ticks));
        (now.at > self.at).then(|| part as f64 / total as f64)
    }
}

/// Ticks of all cores since the machine started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    /// Steal included.
    busy: u64,
    steal: u64,
    total: u64,
}

/// Reads user, nice, system, idle, iowait, irq, softirq, steal. Guests are part of user already.
fn parse(line: &str) -> Option<Ticks> {
    let fields: Vec<u64> = line
        .strip_prefix("cpu ")?
        .split_whitespace()
        .take(8)
        .map_while(|f| f.parse().ok())
        .collect();
    let [user, nice, system, idle, iowait, ..] = fields[..] else { return None };
    let rest: u64 = fields[5..].iter().sum();
    let busy = user + nice + system + rest;
    let steal = fields.get(7).copied().unwrap_or_default();
    Some(Ticks { busy, steal, total: busy + idle + iowait })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_ticks_are_not_busy() {
        assert_eq!(
            parse("cpu  10 1 5 80 4 1 2 3 9 9"),
            Some(Ticks { busy: 22, steal: 3, total: 106 })
        );
        assert_eq!(parse("cpu0 10 1 5 80 4"), None);
        assert_eq!(parse("cpu  10 x"), None);
    }
}
