//! How long the kernel's thread of a cpumap entry has run: the first number of its `schedstat`, in nanoseconds. The
//! thread sleeps when its queue is empty, so this is what packets cost; good to 5 % of the value. Every service has a
//! cpumap of its own, hence a thread on each of its cores.

use std::fs;

use crate::error::EdgeError;

/// The thread of a cpumap's entry.
#[derive(Debug)]
pub(super) struct Thread {
    path: String,
}

impl Thread {
    /// Finds it by its name, `cpumap/CPU/map:ID`.
    pub(super) fn find(cpu: u32, map: u32) -> Result<Thread, EdgeError> {
        let name = format!("cpumap/{cpu}/map:{map}");
        let processes = fs::read_dir("/proc").map_err(EdgeError::system("read /proc"))?;
        for process in processes.flatten() {
            let file = process.file_name();
            let Some(id) = file.to_str().filter(|id| id.bytes().all(|b| b.is_ascii_digit())) else {
                continue;
            };
            let comm = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            if comm.trim_end() == name {
                return Ok(Thread { path: format!("/proc/{id}/schedstat") });
            }
        }
        Err(EdgeError::Config(format!(
            "the kernel's thread {name} is not in /proc; a node must see the machine's processes, for it measures by them"
        )))
    }

    /// Nanoseconds it has run.
    pub(super) fn busy_ns(&self) -> Result<u64, EdgeError> {
        let text = fs::read_to_string(&self.path)
            .map_err(EdgeError::system(format!("read {}", self.path)))?;
        let first = text.split_whitespace().next().and_then(|word| word.parse().ok());
        first.ok_or_else(|| EdgeError::Config(format!("{}: expected numbers", self.path)))
    }
}
