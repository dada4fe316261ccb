//! What a packet costs in place: the kernel's own count of the runs of an attached program and of their
//! time (`BPF_ENABLE_STATS`). Two reads of the clock are in it, so it compares programs on one machine and
//! is more than [`crate::measure`] says.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::loaded_programs;
use aya::sys::{Stats, enable_stats};

use crate::BenchError;

/// Runs of programs and their time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// How often.
    pub count: u64,
    /// How long in all, nanoseconds.
    pub time_ns: u64,
}

impl Runs {
    /// One run; unknown before the first.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.time_ns as f64 / self.count as f64)
    }
}

/// Counts for as long as it lives: the kernel stops counting with the last one, however its process ends.
#[derive(Debug)]
pub struct Meter {
    _counting: OwnedFd,
    /// By id; a program that was replaced keeps its numbers as long as a process holds it.
    programs: BTreeMap<u32, OwnedFd>,
}

impl Meter {
    /// Begins to count.
    ///
    /// # Errors
    /// When the kernel refuses: without root, or before 5.8.
    pub fn start() -> Result<Meter, BenchError> {
        let counting =
            enable_stats(Stats::RunTime).map_err(BenchError::kernel("run-time stats"))?;
        Ok(Meter { _counting: counting, programs: BTreeMap::new() })
    }

    /// Also counts the program that is now on an interface of the balancer pinned there.
    ///
    /// # Errors
    /// When none is.
    pub fn watch(&mut self, pins: &Path, interface: &str) -> Result<(), BenchError> {
        let path = pins.join("links").join(interface);
        let what = path.display().to_string();
        let link = PinnedLink::from_pin(&path).map_err(BenchError::kernel(&what))?;
        let link = FdLink::from(link).info().map_err(BenchError::kernel(&what))?;
        let id = link.program_id();
        if self.programs.contains_key(&id) {
            return Ok(());
        }
        let program = loaded_programs().flatten().find(|program| program.id() == id);
        let program = program.ok_or("its program is gone").map_err(BenchError::kernel(&what))?;
        let fd = program.fd().map_err(BenchError::kernel(&what))?;
        let fd = fd.as_fd().try_clone_to_owned().map_err(BenchError::kernel(&what))?;
        self.programs.insert(id, fd);
        Ok(())
    }

    /// What was counted, over all programs.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn read(&self) -> Result<Runs, BenchError> {
        let mut sum = Runs::default();
        for fd in self.programs.values() {
            let file = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
            let text = std::fs::read_to_string(&file).map_err(BenchError::kernel(&file))?;
            let field = |name: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|value| value.trim_start_matches(':').trim().parse::<u64>().ok())
                    .ok_or_else(|| BenchError::kernel(&file)(format!("no {name} in it")))
            };
            sum.count += field("run_cnt")?;
            sum.time_ns += field("run_time_ns")?;
        }
        Ok(sum)
    }
}
