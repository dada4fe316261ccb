//! Control groups of a run: quotas, CPU sets, groups within groups, and their end.

mod guard;
mod layout;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use guard::Guard;
pub use layout::{Layout, Limits, Quota};

/// The kernel needs a moment between the death of a group's last process and its removal.
const REMOVED_WITHIN: Duration = Duration::from_secs(5);
/// How often to try.
const TRY_EVERY: Duration = Duration::from_millis(10);
/// Enters the groups given first, as many as the first argument says, and becomes the rest.
const ENTER: &str = r#"n=$1; shift
while [ "$n" -gt 0 ]; do echo 0 > "$1/cgroup.procs" || exit 125; shift; n=$((n - 1)); done
exec "$@""#;

/// Why there are no control groups.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// No hierarchy has the CPU controller.
    #[error(
        "control groups: no CPU controller is mounted (expected cgroup2 with `cpu` in its \
         cgroup.controllers, or a version 1 hierarchy with `cpu`, in /proc/mounts)"
    )]
    NoController,
    /// `--cpus` under version 1 without a hierarchy for it.
    #[error("control groups: no cpuset controller is mounted, which `--cpus` needs")]
    NoCpuset,
    /// Only root may make them.
    #[error("control groups: {}: permission denied; real servers need root", .0.display())]
    NotRoot(PathBuf),
    /// The system refuses.
    #[error("control groups: cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system says.
        source: io::Error,
    },
}

impl CgroupError {
    fn system(what: impl Into<String>, path: &Path) -> impl FnOnce(io::Error) -> CgroupError {
        let (what, path) = (what.into(), path.to_owned());
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                CgroupError::NotRoot(path)
            }
            _ => CgroupError::System { what, source },
        }
    }
}

/// The groups of one run, all below one group of its own. Dropping it kills what is in them and removes
/// them; so does a guard, however the run ends.
pub struct Cgroups {
    layout: Layout,
    root: String,
    _guard: Guard,
}

impl Cgroups {
    /// Makes the run's own group.
    ///
    /// # Errors
    /// When there is no CPU controller, or the rights are missing.
    pub fn open() -> Result<Self, CgroupError> {
        let proc = Path::new("/proc/mounts");
        let mounts = fs::read_to_string(proc).map_err(CgroupError::system("read mounts", proc))?;
        let controllers =
            |at: &Path| fs::read_to_string(at.join("cgroup.controllers")).unwrap_or_default();
        let layout = Layout::of(&mounts, controllers).ok_or(CgroupError::NoController)?;
        static RUNS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let run = RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let root = format!("plimsoll-real-{}-{run}", std::process::id());
        let guard = Guard::start(&layout.dirs(&root, true));
        let guard = guard.map_err(CgroupError::system("start sh", Path::new("sh")))?;
        let cgroups = Cgroups { layout, root, _guard: guard };
        cgroups.make(&cgroups.root)?;
        Ok(cgroups)
    }

    /// Makes the group of this path below the run's own, and those between.
    ///
    /// # Errors
    /// When the kernel refuses a limit: one above its parent's, below 1 ms, or CPUs that do not exist.
    pub fn group(&self, path: &str, limits: &Limits) -> Result<Group, CgroupError> {
        let mut name = self.root.clone();
        for part in path.split('/') {
            name = format!("{name}/{part}");
            self.make(&name)?;
        }
        let dirs = self.layout.dirs(&name, limits.cpus.is_some());
        for (file, text) in self.layout.settings(limits) {
            write(&dirs[0].join(file), &text)?;
        }
        if let Some(cpus) = &limits.cpus {
            self.set_cpus(&name, cpus)?;
        }
        Ok(Group { dirs })
    }

    /// A directory in each hierarchy; under version 2 its parent gives it its controllers.
    fn make(&self, name: &str) -> Result<(), CgroupError> {
        for dir in self.layout.dirs(name, false) {
            if let (Layout::V2(_), Some(parent)) = (&self.layout, dir.parent()) {
                let control = parent.join("cgroup.subtree_control");
                write(&control, "+cpu")?;
                // Needed by `--cpus` alone, which says so if it is missing.
                let _ = fs::write(&control, "+cpuset");
            }
            match fs::create_dir(&dir) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    made.map_err(CgroupError::system(format!("make {}", dir.display()), &dir))?
                }
            }
        }
        Ok(())
    }

    fn set_cpus(&self, name: &str, cpus: &str) -> Result<(), CgroupError> {
        match &self.layout {
            Layout::V2(root) => write(&root.join(name).join("cpuset.cpus"), cpus),
            Layout::V1 { cpuset: None, .. } => Err(CgroupError::NoCpuset),
            Layout::V1 { cpuset: Some(root), .. } => {
                // Each level must have CPUs and memory of its own before the next can have any.
                let mems = fs::read_to_string(root.join("cpuset.mems")).unwrap_or_default();
                let mut dir = root.clone();
                for part in name.split('/') {
                    dir.push(part);
                    match fs::create_dir(&dir) {
                        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                        made => made.map_err(CgroupError::system(
                            format!("make {}", dir.display()),
                            &dir,
                        ))?,
                    }
                    write(&dir.join("cpuset.mems"), mems.trim())?;
                    write(&dir.join("cpuset.cpus"), cpus)?;
                }
                Ok(())
            }
        }
    }
}

fn write(file: &Path, text: &str) -> Result<(), CgroupError> {
    let what = format!("write `{text}` to {}", file.display());
    fs::write(file, text).map_err(CgroupError::system(what, file))
}

/// One group. Dropping it kills what is in it and removes it, but not the groups within.
pub struct Group {
    /// In each hierarchy it is in.
    dirs: Vec<PathBuf>,
}

impl Group {
    /// A command that runs this program in the group from its first instruction on.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(ENTER).arg("plimsoll-enter-cgroup");
        command.arg(self.dirs.len().to_string()).args(&self.dirs).arg(program);
        command
    }

    /// The processes in it, not those of groups within.
    pub fn processes(&self) -> Vec<Pid> {
        let text = fs::read_to_string(self.dirs[0].join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)).collect()
    }

    /// Sends a signal to all of them.
    pub fn signal(&self, signal: Signal) {
        for process in self.processes() {
            // One that has just ended needs no signal.
            let _ = kill_process(process, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let end = Instant::now() + REMOVED_WITHIN;
        for dir in &self.dirs {
            self.signal(Signal::KILL);
            while dir.exists() && fs::remove_dir(dir).is_err() && Instant::now() < end {
                std::thread::sleep(TRY_EVERY);
            }
        }
    }
}
