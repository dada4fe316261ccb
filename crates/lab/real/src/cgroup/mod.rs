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
use layout::Usage;
pub use layout::{Layout, Limits, Quota};

/// The kernel needs a moment between the death of a group's last process and its removal.
const REMOVED_WITHIN: Duration = Duration::from_secs(5);
/// How often to try.
const TRY_EVERY: Duration = Duration::from_millis(10);
/// How often to look whether those that were killed are gone.
const KILL_EVERY: Duration = Duration::from_millis(1);
/// Enters the groups given first, as many as the first argument says, and becomes the rest.
const ENTER: &str = r#"n=$1; shift
while [ "$n" -gt 0 ]; do echo 0 > "$1/cgroup.procs" || exit 125; shift; n=$((n - 1)); done
exec "$@""#;

/// Why there are no control groups.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The kernel does not say how much CPU a group has used.
    #[error(
        "control groups: no account of CPU time (expected cpu.stat in a cgroup2, or a version 1 hierarchy with \
         `cpuacct` in /proc/mounts)"
    )]
    NoAccount,
    /// No hierarchy has the CPU controller.
    #[error(
        "control groups: no CPU controller is mounted (expected cgroup2 with `cpu` in its \
         cgroup.controllers, or a version 1 hierarchy with `cpu`, in /proc/mounts)"
    )]
    NoController,
    /// `--cpus` without a controller for it.
    #[error("control groups: no cpuset controller is mounted, which `--cpus` needs")]
    NoCpuset,
    /// Only root may make them.
    #[error("control groups: {}: permission denied; real servers need root", .0.display())]
    NotRoot(PathBuf),
    /// They can be looked at only.
    #[error("control groups: {} is read-only, as in a container without rights", .0.display())]
    ReadOnly(PathBuf),
    /// A version 2 group with processes of its own cannot give its controllers to groups within.
    #[error(
        "control groups: {} has processes of its own, so that groups within it cannot have quotas; in a \
         container, start it in the machine's own hierarchy (docker run --cgroupns=host)", .0.display()
    )]
    HasProcesses(PathBuf),
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
            io::ErrorKind::PermissionDenied => CgroupError::NotRoot(path),
            io::ErrorKind::ReadOnlyFilesystem => CgroupError::ReadOnly(path),
            _ => CgroupError::System { what, source },
        }
    }

    /// Why this `cgroup.subtree_control` cannot be written.
    fn delegation(control: &Path) -> impl FnOnce(io::Error) -> CgroupError {
        let control = control.to_owned();
        move |source| match (source.kind(), control.parent()) {
            (io::ErrorKind::ResourceBusy, Some(group)) => {
                CgroupError::HasProcesses(group.to_owned())
            }
            _ => CgroupError::system(format!("write to {}", control.display()), &control)(source),
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
        Cgroups::within(Layout::of(&mounts, controllers).ok_or(CgroupError::NoController)?)
    }

    /// The same in a hierarchy that was found.
    fn within(layout: Layout) -> Result<Self, CgroupError> {
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
        let (settings, unlimited) = (self.layout.settings(limits), self.layout.unlimited());
        let group = Group { dirs, usage: self.layout.usage(&name), settings, unlimited };
        group.restore_quota()?;
        if let Some(cpus) = &limits.cpus {
            self.set_cpus(&name, cpus)?;
        }
        Ok(group)
    }

    /// A directory in each hierarchy; under version 2 its parent gives it its controllers. Processes are in
    /// groups without groups within, as version 2 demands.
    fn make(&self, name: &str) -> Result<(), CgroupError> {
        for dir in self.layout.dirs(name, false) {
            if let (Some(controllers), Some(parent)) = (self.layout.delegation(), dir.parent()) {
                let control = parent.join("cgroup.subtree_control");
                fs::write(&control, controllers).map_err(CgroupError::delegation(&control))?;
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
            Layout::V2 { has_cpuset: false, .. } | Layout::V1 { cpuset: None, .. } => {
                Err(CgroupError::NoCpuset)
            }
            Layout::V2 { root, .. } => write(&root.join(name).join("cpuset.cpus"), cpus),
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
    usage: Option<Usage>,
    /// Which text in which file limits it, and which does not.
    settings: Vec<(&'static str, String)>,
    unlimited: (&'static str, &'static str),
}

impl Group {
    /// A command that runs this program in the group from its first instruction on.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(ENTER).arg("plimsoll-enter-cgroup");
        command.arg(self.dirs.len().to_string()).args(&self.dirs).arg(program);
        command
    }

    /// Its directory in the hierarchy that has the CPU controller.
    pub fn dir(&self) -> &Path {
        &self.dirs[0]
    }

    /// Lets it use as much CPU as there is, until its quota is restored.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn lift_quota(&self) -> Result<(), CgroupError> {
        let (file, text) = self.unlimited;
        write(&self.dirs[0].join(file), text)
    }

    /// Gives it the quota that it was made with.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn restore_quota(&self) -> Result<(), CgroupError> {
        let set = |(file, text): &(&str, String)| write(&self.dirs[0].join(file), text);
        self.settings.iter().try_for_each(set)
    }

    /// The processes in it, not those of groups within.
    pub fn processes(&self) -> Vec<Pid> {
        let text = fs::read_to_string(self.dirs[0].join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)).collect()
    }

    /// CPU time that its processes have used so far, those of groups within and those that have ended included, by
    /// the kernel's own account; nothing where it keeps none.
    pub fn cpu_used(&self) -> Option<Duration> {
        self.usage.as_ref()?.read()
    }

    /// Sends a signal to all of them.
    pub fn signal(&self, signal: Signal) {
        for process in self.processes() {
            // One that has just ended needs no signal.
            let _ = kill_process(process, signal);
        }
    }

    /// Kills all of them, and those that they start meanwhile, as a master does for a worker that it lost.
    pub fn kill(&self) {
        let end = Instant::now() + REMOVED_WITHIN;
        while !self.processes().is_empty() && Instant::now() < end {
            self.signal(Signal::KILL);
            std::thread::sleep(KILL_EVERY);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        let end = Instant::now() + REMOVED_WITHIN;
        for dir in &self.dirs {
            while dir.exists() && fs::remove_dir(dir).is_err() && Instant::now() < end {
                std::thread::sleep(TRY_EVERY);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that looks like a version 2 hierarchy with these controllers, and a run in it.
    fn version_2(controllers: &str) -> (tempfile::TempDir, Cgroups) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), controllers).unwrap();
        let mounts = format!("cgroup2 {} cgroup2 rw,nsdelegate 0 0\n", dir.path().display());
        let read = |at: &Path| fs::read_to_string(at.join("cgroup.controllers")).unwrap();
        let cgroups = Cgroups::within(Layout::of(&mounts, read).unwrap()).unwrap();
        (dir, cgroups)
    }

    fn limits(cores: f64, cpus: Option<&str>) -> Limits {
        let quota = Quota { cores, period: Duration::from_millis(100) };
        Limits { quota: Some(quota), cpus: cpus.map(str::to_owned) }
    }

    /// Every group of the tree with the files that were written to it, but for the mount itself.
    fn groups(dir: &Path) -> Vec<(PathBuf, Vec<String>)> {
        let entries: Vec<PathBuf> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        let (dirs, files): (Vec<_>, Vec<_>) = entries.into_iter().partition(|path| path.is_dir());
        let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut found = vec![(dir.to_owned(), files.iter().map(name).collect())];
        found.extend(dirs.iter().flat_map(|dir| groups(dir)));
        found
    }

    #[test]
    fn version_2_limits_by_cpu_max_and_hands_controllers_down() {
        let (dir, cgroups) = version_2("cpuset cpu io memory\n");
        // As a server with a neighbour inside its quota has them.
        let made = [
            cgroups.group("lane/s1", &limits(0.0265, Some("0-1"))).unwrap(),
            cgroups.group("lane/s1/server", &Limits::default()).unwrap(),
            cgroups.group("lane/s1/neighbour", &limits(0.01325, None)).unwrap(),
        ];
        for group in &made[1..] {
            assert!(group.command(Path::new("true")).status().unwrap().success());
        }
        let run = dir.path().join(&cgroups.root);
        let read = |group: &str, file: &str| fs::read_to_string(run.join(group).join(file)).ok();
        assert_eq!(read("lane/s1", "cpu.max").unwrap(), "2650 100000");
        assert_eq!(read("lane/s1", "cpuset.cpus").unwrap(), "0-1");
        assert_eq!(read("lane/s1/server", "cpu.max"), None);
        assert_eq!(read("lane/s1/neighbour", "cpu.max").unwrap(), "1325 100000");
        for group in ["..", "", "lane", "lane/s1"] {
            let given = read(group, "cgroup.subtree_control");
            assert_eq!(given.as_deref(), Some("+cpu +cpuset"), "{group}");
        }
        // A group that hands controllers down may have no processes of its own.
        let has = |files: &[String], name: &str| files.iter().any(|file| file == name);
        let all = groups(&run);
        assert_eq!(all.len(), 5);
        for (group, files) in all {
            let (is_parent, has_processes) =
                (has(&files, "cgroup.subtree_control"), has(&files, "cgroup.procs"));
            assert!(is_parent != has_processes, "{}: {files:?}", group.display());
        }
        // Unlike the kernel's, these directories are not empty.
        fs::remove_dir_all(&run).unwrap();
    }

    #[test]
    fn version_2_without_cpuset_has_quotas_alone() {
        let (dir, cgroups) = version_2("cpu io\n");
        let group = cgroups.group("s1", &limits(1.5, None)).unwrap();
        let run = dir.path().join(&cgroups.root);
        assert_eq!(fs::read_to_string(run.join("s1/cpu.max")).unwrap(), "150000 100000");
        assert_eq!(fs::read_to_string(run.join("cgroup.subtree_control")).unwrap(), "+cpu");
        let pinned = cgroups.group("s2", &limits(1.5, Some("0")));
        assert!(matches!(pinned, Err(CgroupError::NoCpuset)));
        fs::remove_dir_all(&run).unwrap();
        drop(group);
    }

    #[test]
    fn what_the_system_refuses_is_named() {
        let control = Path::new("/sys/fs/cgroup/cgroup.subtree_control");
        let refused = |errno: rustix::io::Errno| {
            CgroupError::delegation(control)(io::Error::from(errno)).to_string()
        };
        let busy = refused(rustix::io::Errno::BUSY);
        assert!(busy.contains("/sys/fs/cgroup has processes of its own"), "{busy}");
        assert!(refused(rustix::io::Errno::ROFS).contains("is read-only"));
        assert!(refused(rustix::io::Errno::ACCESS).contains("need root"));
        assert!(refused(rustix::io::Errno::NOENT).contains("cannot write to"));
    }
}
