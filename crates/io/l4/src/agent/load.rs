//! How busy this machine's CPUs are, for balancers that set weights by it (`awrr`).
//!
//! `/proc/stat`, first line: jiffies by kind, summed over CPUs. Load = the part of a window that was
//! neither idle nor waiting for a disk; time that a hypervisor gave to others counts as busy, for this
//! machine cannot serve in it.
//!
//! Cost: one short file each time.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What an agent answers at `GET /v1/load`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuLoad {
    /// The busy part of all CPUs' time, 0 to 1, over the last window.
    pub cpu: f64,
    /// How many CPUs there are.
    pub cpus: usize,
    /// How long the window was.
    pub window_ms: u64,
    /// When it ended, by the server's clock, in milliseconds since 1970.
    pub unix_ms: u64,
}

/// Jiffies since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Jiffies {
    busy: u64,
    all: u64,
    cpus: usize,
}

/// Reads the counters, one window after the other.
#[derive(Debug)]
pub struct CpuMeter {
    path: PathBuf,
    last: Jiffies,
}

impl CpuMeter {
    /// A first look.
    ///
    /// # Errors
    /// When there is no `/proc/stat`.
    pub fn new() -> Result<Self, Error> {
        CpuMeter::of(PathBuf::from("/proc/stat"))
    }

    fn of(path: PathBuf) -> Result<Self, Error> {
        let last = read(&path)?;
        Ok(CpuMeter { path, last })
    }

    /// The load since the last look; `None` when no jiffy has passed.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn look(&mut self, window_ms: u64, unix_ms: u64) -> Result<Option<CpuLoad>, Error> {
        let now = read(&self.path)?;
        let all = now.all.saturating_sub(self.last.all);
        if all == 0 {
            return Ok(None);
        }
        let busy = now.busy.saturating_sub(self.last.busy);
        self.last = now;
        let cpu = (busy as f64 / all as f64).min(1.0);
        Ok(Some(CpuLoad { cpu, cpus: now.cpus, window_ms, unix_ms }))
    }
}

fn read(path: &PathBuf) -> Result<Jiffies, Error> {
    let text = fs::read_to_string(path)?;
    parse(&text).ok_or_else(|| {
        let what = format!("{}: expected a line `cpu` with at least 8 counters", path.display());
        Error::new(ErrorKind::InvalidData, what)
    })
}

/// user nice system idle iowait irq softirq steal [guest guest_nice, which user and nice include]
fn parse(text: &str) -> Option<Jiffies> {
    let mut words = text.lines().next()?.split_ascii_whitespace();
    if words.next()? != "cpu" {
        return None;
    }
    let kinds: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
    let [.., idle, iowait, _, _, _] = kinds[..] else { return None };
    if kinds.len() < 8 {
        return None;
    }
    let all: u64 = kinds.iter().sum();
    let is_cpu = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    Some(Jiffies { busy: all - idle - iowait, all, cpus: text.lines().filter(is_cpu).count() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2\ncpu1 1 2\nintr 5\n";

    #[test]
    fn load_is_the_busy_part_of_the_window() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("stat");
        fs::write(&path, BEFORE).expect("written");
        let mut meter = CpuMeter::of(path.clone()).expect("read");
        assert_eq!(meter.look(500, 7).expect("read"), None, "no time has passed");
        // 60 of 100 busy: 30 user, 10 system, 20 stolen; 30 idle and 10 waiting are not.
        fs::write(&path, BEFORE.replace("100 0 50 800 50 0 0 0", "130 0 60 830 60 0 0 20"))
            .expect("written");
        let load = meter.look(500, 7).expect("read").expect("time has passed");
        assert_eq!(load, CpuLoad { cpu: 0.6, cpus: 2, window_ms: 500, unix_ms: 7 });
    }

    #[test]
    fn what_is_no_proc_stat_is_refused() {
        for text in ["", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu a b c d e f g h"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert!(CpuMeter::new().is_ok(), "this machine has one");
    }
}
