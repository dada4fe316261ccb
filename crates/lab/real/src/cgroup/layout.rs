//! Where control groups are mounted and what is written where. Pure: what the system says is an
//! argument.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// The least that the kernel takes for a quota or a period (`kernel/sched/core.c`).
const LEAST_US: u64 = 1_000;

/// Which version of control groups holds the CPU controller, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A hierarchy per controller.
    V1 {
        /// That of `cpu`.
        cpu: PathBuf,
        /// That of `cpuset`, where there is one.
        cpuset: Option<PathBuf>,
        /// That of `cpuacct`, where there is one: often that of `cpu`.
        cpuacct: Option<PathBuf>,
    },
    /// One hierarchy.
    V2 {
        /// Where it is mounted.
        root: PathBuf,
        /// Whether it has `cpuset`, too.
        has_cpuset: bool,
    },
}

/// What a group may use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// CPU time per period, and the period; none for no limit.
    pub quota: Option<Quota>,
    /// The CPUs it may run on, as `0-1,3`; none for all.
    pub cpus: Option<String>,
}

/// CPU time that a group gets in each period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    /// Part of one core; 2 for two cores.
    pub cores: f64,
    /// How often it gets its time anew.
    pub period: Duration,
}

impl Quota {
    fn microseconds(self) -> (u64, u64) {
        let period = (self.period.as_micros() as u64).max(LEAST_US);
        let quota = (self.cores * period as f64).round() as u64;
        (quota.max(LEAST_US), period)
    }

    /// Whether the kernel takes it as it is, and not only more than it.
    pub fn is_possible(self) -> bool {
        let (quota, period) = (self.cores * self.period.as_secs_f64(), self.period.as_micros());
        quota * 1e6 >= LEAST_US as f64 && (1_000..=1_000_000).contains(&period)
    }
}

/// Where the kernel counts the CPU time of a group and the groups within.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Version 1: a number of nanoseconds.
    Nanoseconds(PathBuf),
    /// Version 2: the line `usage_usec` of this file.
    Stat(PathBuf),
}

impl Usage {
    /// The time so far; nothing of a group that is gone.
    pub fn read(&self) -> Option<Duration> {
        let text = |file: &Path| std::fs::read_to_string(file).ok();
        match self {
            Usage::Nanoseconds(file) => {
                Some(Duration::from_nanos(text(file)?.trim().parse().ok()?))
            }
            Usage::Stat(file) => {
                let text = text(file)?;
                let us = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
                Some(Duration::from_micros(us.trim().parse().ok()?))
            }
        }
    }
}

impl Layout {
    /// Reads `/proc/mounts`. `controllers` gives the `cgroup.controllers` of a version 2 mount. Version 2
    /// is taken when it has the CPU controller; it cannot be in both.
    pub fn of(mounts: &str, controllers: impl Fn(&Path) -> String) -> Option<Layout> {
        let (mut cpu, mut cpuset, mut cpuacct) = (None, None, None);
        for line in mounts.lines() {
            let mut fields = line.split(' ').skip(1);
            let (Some(at), Some(kind), Some(options)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let at = PathBuf::from(at);
            let has = |text: &str, separator: char, name| text.split(separator).any(|o| o == name);
            match kind {
                "cgroup2" => {
                    let controllers = controllers(&at);
                    let controllers = controllers.trim_end();
                    if has(controllers, ' ', "cpu") {
                        let has_cpuset = has(controllers, ' ', "cpuset");
                        return Some(Layout::V2 { root: at, has_cpuset });
                    }
                }
                "cgroup" => {
                    if has(options, ',', "cpu") {
                        cpu = Some(at.clone());
                    }
                    if has(options, ',', "cpuacct") {
                        cpuacct = Some(at.clone());
                    }
                    if has(options, ',', "cpuset") {
                        cpuset = Some(at);
                    }
                }
                _ => {}
            }
        }
        Some(Layout::V1 { cpu: cpu?, cpuset, cpuacct })
    }

    /// The directories of this group: of the CPU controller first, each once.
    pub fn dirs(&self, group: &str, with_cpuset: bool) -> Vec<PathBuf> {
        match self {
            Layout::V1 { cpu, cpuset, cpuacct } => {
                let apart = cpuacct.as_ref().filter(|dir| *dir != cpu);
                let cpuset = cpuset.as_ref().filter(|_| with_cpuset);
                [cpu].into_iter().chain(apart).chain(cpuset).map(|dir| dir.join(group)).collect()
            }
            Layout::V2 { root, .. } => vec![root.join(group)],
        }
    }

    /// The file of this group that says how much CPU its processes have used; nothing where the kernel does not
    /// count.
    pub fn usage(&self, group: &str) -> Option<Usage> {
        match self {
            Layout::V1 { cpuacct, .. } => {
                Some(Usage::Nanoseconds(cpuacct.as_ref()?.join(group).join("cpuacct.usage")))
            }
            Layout::V2 { root, .. } => Some(Usage::Stat(root.join(group).join("cpu.stat"))),
        }
    }

    /// What is written to a group's `cgroup.subtree_control` before there is a group within it; version 1
    /// has no such thing.
    pub fn delegation(&self) -> Option<&'static str> {
        match self {
            Layout::V1 { .. } => None,
            Layout::V2 { has_cpuset: false, .. } => Some("+cpu"),
            Layout::V2 { has_cpuset: true, .. } => Some("+cpu +cpuset"),
        }
    }

    /// What is written to which file of the group's CPU directory, in this order.
    pub fn settings(&self, limits: &Limits) -> Vec<(&'static str, String)> {
        let quota = limits.quota.map(Quota::microseconds);
        match (self, quota) {
            (Layout::V1 { .. }, Some((quota, period))) => vec![
                ("cpu.cfs_period_us", period.to_string()),
                ("cpu.cfs_quota_us", quota.to_string()),
            ],
            (Layout::V2 { .. }, Some((quota, period))) => {
                vec![("cpu.max", format!("{quota} {period}"))]
            }
            (_, None) => Vec::new(),
        }
    }

    /// The same for a group that is to have no limit for a while.
    pub fn unlimited(&self) -> (&'static str, &'static str) {
        match self {
            Layout::V1 { .. } => ("cpu.cfs_quota_us", "-1"),
            Layout::V2 { .. } => ("cpu.max", "max"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
";

    #[test]
    fn the_version_that_holds_the_cpu_controller_is_found() {
        let none = |_: &Path| "\n".to_owned();
        let v1 = Layout::of(HYBRID, none).unwrap();
        let cpu = PathBuf::from("/sys/fs/cgroup/cpu,cpuacct");
        let cpuset = Some(PathBuf::from("/sys/fs/cgroup/cpuset"));
        let cpuacct = Some(cpu.clone());
        assert_eq!(v1, Layout::V1 { cpu, cpuset, cpuacct });
        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        let all = |_: &Path| "cpuset cpu io memory\n".to_owned();
        let v2 = |has_cpuset| Layout::V2 { root: "/sys/fs/cgroup".into(), has_cpuset };
        assert_eq!(Layout::of(unified, all), Some(v2(true)));
        assert_eq!(Layout::of(unified, |_| "cpu\n".to_owned()), Some(v2(false)));
        assert_eq!(Layout::of(unified, |_| "io cpuset\n".to_owned()), None);
        assert_eq!(Layout::of("proc /proc proc rw 0 0\n", none), None);
    }

    #[test]
    fn quotas_are_written_as_each_version_wants_them() {
        let v1 =
            Layout::V1 { cpu: "/c".into(), cpuset: Some("/s".into()), cpuacct: Some("/a".into()) };
        let v2 = Layout::V2 { root: "/u".into(), has_cpuset: true };
        let quota = Quota { cores: 0.04, period: Duration::from_millis(100) };
        let limits = Limits { quota: Some(quota), cpus: None };
        let own = |pairs: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
            pairs.iter().map(|(file, text)| (*file, (*text).to_owned())).collect()
        };
        assert_eq!(
            v1.settings(&limits),
            own(&[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "4000")])
        );
        assert_eq!(v2.settings(&limits), own(&[("cpu.max", "4000 100000")]));
        assert_eq!(v2.settings(&Limits::default()), []);
        let all = ["/c/a/b", "/a/a/b", "/s/a/b"].map(PathBuf::from);
        assert_eq!(v1.dirs("a/b", true), all);
        assert_eq!(v1.dirs("a/b", false), all[..2]);
        assert_eq!(v1.usage("a"), Some(Usage::Nanoseconds("/a/a/cpuacct.usage".into())));
        assert_eq!(v2.usage("a"), Some(Usage::Stat("/u/a/cpu.stat".into())));
        assert_eq!(v2.dirs("a", true), [Path::new("/u/a")]);
    }

    #[test]
    fn usage_is_read_as_each_version_writes_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        std::fs::write(&file, "1500000\n").unwrap();
        let v1 = Usage::Nanoseconds(file.clone());
        assert_eq!(v1.read(), Some(Duration::from_micros(1500)));
        std::fs::write(&file, "usage_usec 2500\nuser_usec 2000\nsystem_usec 500\n").unwrap();
        assert_eq!(Usage::Stat(file).read(), Some(Duration::from_micros(2500)));
        assert_eq!(v1.read(), None);
    }

    #[test]
    fn a_quota_below_a_millisecond_is_not_possible() {
        let quota = |cores, ms| Quota { cores, period: Duration::from_millis(ms) };
        assert!(quota(0.01, 100).is_possible());
        assert!(!quota(0.009, 100).is_possible());
        assert!(!quota(0.5, 2000).is_possible());
        assert_eq!(quota(0.001, 100).microseconds(), (1000, 100_000));
    }
}
