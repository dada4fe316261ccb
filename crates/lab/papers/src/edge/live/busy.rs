//! Time that the kernel's threads of cpumap entries have run: the first number of their `schedstat`. What a node reports
//! is made of it as well; here it is read without the forwarder, as the truth to hold predictions against. The kernel's
//! account is good to 5 % of the value.

use std::collections::BTreeSet;
use std::fs;

/// The threads of one CPU's entries.
#[derive(Clone, Debug)]
pub struct Threads {
    ids: Vec<u32>,
}

/// All threads of cpumap entries on this machine: their ids and CPUs.
fn all() -> Vec<(u32, u32)> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let of = |process: fs::DirEntry| {
        let id: u32 = process.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(format!("/proc/{id}/comm")).ok()?;
        let cpu = name.strip_prefix("cpumap/")?.split('/').next()?.parse().ok()?;
        Some((id, cpu))
    };
    processes.flatten().filter_map(of).collect()
}

/// Those that are there now: another process'.
pub fn others() -> BTreeSet<u32> {
    all().into_iter().map(|(id, _)| id).collect()
}

impl Threads {
    /// Those on a CPU that are not others'.
    pub fn of(cpu: u32, others: &BTreeSet<u32>) -> Threads {
        let own = all().into_iter().filter(|(id, on)| *on == cpu && !others.contains(id));
        Threads { ids: own.map(|(id, _)| id).collect() }
    }

    /// Seconds that they have run, all together.
    pub fn seconds(&self) -> f64 {
        let run = |id: &u32| -> Option<u64> {
            let text = fs::read_to_string(format!("/proc/{id}/schedstat")).ok()?;
            text.split_whitespace().next()?.parse().ok()
        };
        self.ids.iter().filter_map(run).sum::<u64>() as f64 / 1e9
    }
}
