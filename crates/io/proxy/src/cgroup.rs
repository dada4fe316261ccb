//! How much CPU a control group has used, and how much it may use; version 1 or 2.
//!
//! ```text
//! version 2   DIR/cpu.stat: usage_usec     DIR/cpu.max: quota and period, or `max`
//! version 1   DIR/cpuacct.usage            DIR/cpu.cfs_quota_us (-1: none), DIR/cpu.cfs_period_us
//! ```
//!
//! Version 1 often mounts `cpu` and `cpuacct` apart: the group is then in both under the same path, and either directory
//! names it. Orchestrators give the quota to a group around those of single processes: of a group and those around it, the
//! one with the least quota is read, what it used and what it may use.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// What a group has used so far, and may use now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reading {
    pub(crate) busy_us: f64,
    pub(crate) cores: f64,
}

/// The files that tell of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuGroup {
    /// One directory has all.
    V2(PathBuf),
    /// They may be in two hierarchies.
    V1 {
        /// The directory of `cpuacct.usage`: nanoseconds.
        usage: PathBuf,
        /// The directory of its quota; without one it may use what the machine has.
        quota: Option<PathBuf>,
    },
}

impl CpuGroup {
    /// The group of this directory, or nothing where no file there, or in the other hierarchy of version 1, says what
    /// was used. `mounts` is `/proc/mounts`.
    pub fn find(dir: &Path, mounts: &str) -> Option<Self> {
        // Version 1 has a cpu.stat as well, which tells of other things.
        if read_to_string(dir.join("cpu.stat")).is_ok_and(|stat| usage_us(&stat).is_some()) {
            return Some(CpuGroup::V2(dir.to_owned()));
        }
        let with = |file: &str, controller: &str| {
            let here = std::iter::once(dir.to_owned());
            let mut places = here.chain(counterpart(dir, mounts, controller));
            places.find(|place| place.join(file).is_file())
        };
        let usage = with("cpuacct.usage", "cpuacct")?;
        Some(CpuGroup::V1 { usage, quota: with("cpu.cfs_quota_us", "cpu") })
    }

    /// Of the group that holds it back: the least quota of its own and those around it. Nothing where it cannot be read any
    /// more.
    pub(crate) fn read(&self) -> Option<Reading> {
        let (busy_us, cores) = match self {
            CpuGroup::V2(dir) => {
                let (up, cores) = least_quota(dir, |group| {
                    // A group has a `cpu.max` only where the one around it hands the controller down.
                    group.join("cpu.stat").is_file().then_some(())?;
                    let max = read_to_string(group.join("cpu.max")).unwrap_or_default();
                    let mut words = max.split_ascii_whitespace();
                    Some(quota(words.next(), words.next()))
                });
                let stat = read_to_string(dir.ancestors().nth(up)?.join("cpu.stat")).ok()?;
                (usage_us(&stat)?, cores)
            }
            CpuGroup::V1 { usage, quota: dir } => {
                let (up, cores) = least_quota(dir.as_deref().unwrap_or(Path::new("")), |group| {
                    let of = |file: &str| read_to_string(group.join(file)).ok();
                    Some(quota(Some(&of("cpu.cfs_quota_us")?), of("cpu.cfs_period_us").as_deref()))
                });
                let usage = usage.ancestors().nth(up)?.join("cpuacct.usage");
                let ns: f64 = read_to_string(usage).ok()?.trim().parse().ok()?;
                (ns / 1e3, cores)
            }
        };
        Some(Reading { busy_us, cores })
    }
}

/// `usage_usec` of version 2's `cpu.stat`.
fn usage_us(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?.trim().parse().ok()
}

/// How many groups up the least quota is, and how many cores that comes to; this group and what the machine has where none
/// has one. `of` is none where the hierarchy ends.
fn least_quota(dir: &Path, of: impl Fn(&Path) -> Option<Option<f64>>) -> (usize, f64) {
    let quotas = dir.ancestors().map_while(of).enumerate();
    let known = quotas.filter_map(|(up, quota)| Some((up, quota?)));
    known.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_else(|| (0, machine()))
}

/// What a quota of a period comes to, cores; none where there is no limit (`max`, -1).
fn quota(quota: Option<&str>, period: Option<&str>) -> Option<f64> {
    let number = |text: Option<&str>| {
        text?.trim().parse::<f64>().ok().filter(|number| *number > 0.0 && number.is_finite())
    };
    Some(number(quota)? / number(period)?)
}

fn machine() -> f64 {
    read_to_string("/proc/stat").map_or(1.0, |stat| cpus(&stat) as f64)
}

/// The machine's, by its lines `cpuN`: those that this process may use can be fewer.
fn cpus(stat: &str) -> usize {
    let numbers = stat.lines().filter_map(|line| line.strip_prefix("cpu"));
    numbers.filter(|number| number.starts_with(|c: char| c.is_ascii_digit())).count().max(1)
}

/// Where this group of a version 1 hierarchy is in that of another controller.
fn counterpart(dir: &Path, mounts: &str, controller: &str) -> Option<PathBuf> {
    let hierarchies = || {
        mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (at, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            (kind == "cgroup").then_some((Path::new(at), options))
        })
    };
    let group = hierarchies().find_map(|(at, _)| dir.strip_prefix(at).ok())?;
    let (at, _) = hierarchies().find(|(_, o)| o.split(',').any(|one| one == controller))?;
    Some(at.join(group))
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use super::*;

    fn read(group: &CpuGroup) -> (f64, f64) {
        let Reading { busy_us, cores } = group.read().expect("a reading");
        (busy_us, cores)
    }

    #[test]
    fn a_machine_has_its_cpus_whatever_this_process_may_use() {
        let stat = "cpu  1 2 3\ncpu0 1 2 3\ncpu1 0 0 0\ncpu10 0 0 0\nintr 5\ncpufreq 1\n";
        assert_eq!((cpus(stat), cpus("")), (3, 1));
        let group = std::thread::spawn(|| {
            let mut one = rustix::thread::CpuSet::new();
            let may = rustix::thread::sched_getaffinity(None).unwrap();
            one.set((0..1_024).find(|cpu| may.is_set(*cpu)).unwrap());
            rustix::thread::sched_setaffinity(None, &one).unwrap();
            machine()
        });
        assert_eq!(group.join().unwrap(), machine());
    }

    #[test]
    fn version_2_is_one_directory() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert_eq!(CpuGroup::find(dir, ""), None, "an empty directory is no group");
        write(dir.join("cpu.stat"), "usage_usec 250000\nuser_usec 1\n").unwrap();
        let group = CpuGroup::find(dir, "").unwrap();
        assert_eq!(group, CpuGroup::V2(dir.to_owned()));
        assert_eq!(read(&group), (250_000.0, machine()), "the root has no cpu.max");
        write(dir.join("cpu.max"), "50000 100000\n").unwrap();
        assert_eq!(read(&group), (250_000.0, 0.5));
        write(dir.join("cpu.max"), "max 100000\n").unwrap();
        assert_eq!(read(&group), (250_000.0, machine()));
        write(dir.join("cpu.stat"), "x 1\n").unwrap();
        assert_eq!(group.read(), None);
    }

    #[test]
    fn version_1_is_one_directory_or_two() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for dir in ["both/shop", "cpu/shop", "cpuacct/shop", "cpu/alone", "other/shop"] {
            create_dir_all(at(dir)).unwrap();
        }
        for dir in ["both/shop", "cpu/shop", "cpu/alone"] {
            write(at(dir).join("cpu.stat"), "nr_periods 0\nthrottled_time 0\n").unwrap();
            write(at(dir).join("cpu.cfs_quota_us"), "20000\n").unwrap();
            write(at(dir).join("cpu.cfs_period_us"), "100000\n").unwrap();
        }
        for dir in ["both/shop", "cpuacct/shop"] {
            write(at(dir).join("cpuacct.usage"), "150000000\n").unwrap();
        }
        let mounts = format!(
            "tmpfs {0} tmpfs rw 0 0\ncgroup {0}/other cgroup rw,memory 0 0\n\
             cgroup {0}/cpu cgroup rw,relatime,cpu 0 0\ncgroup {0}/cpuacct cgroup rw,cpuacct 0 0\n",
            root.path().display()
        );
        let find = |dir: &str| CpuGroup::find(&at(dir), &mounts);
        let apart = CpuGroup::V1 { usage: at("cpuacct/shop"), quota: Some(at("cpu/shop")) };
        // Any of its directories names the group.
        for dir in ["cpu/shop", "cpuacct/shop", "other/shop"] {
            assert_eq!(find(dir), Some(apart.clone()), "{dir}");
        }
        assert_eq!(read(&apart), (150_000.0, 0.2));
        let both = find("both/shop").unwrap();
        assert_eq!(read(&both), (150_000.0, 0.2));
        assert_eq!(find("cpu/alone"), None, "a quota says nothing of what was used");
        write(at("both/shop").join("cpu.cfs_quota_us"), "-1\n").unwrap();
        assert_eq!(read(&both), (150_000.0, machine()), "no quota");
        std::fs::remove_dir_all(at("cpu/shop")).unwrap();
        assert_eq!(read(&find("cpuacct/shop").unwrap()), (150_000.0, machine()));
    }

    #[test]
    fn the_group_with_the_least_quota_is_read() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        create_dir_all(at("pod/server")).unwrap();
        let put = |group: &str, used: u64, max: &str| {
            write(at(group).join("cpu.stat"), format!("usage_usec {used}\n")).unwrap();
            write(at(group).join("cpu.max"), max).unwrap();
        };
        put("pod", 300_000, "50000 100000\n");
        put("pod/server", 200_000, "max 100000\n");
        let group = CpuGroup::find(&at("pod/server"), "").unwrap();
        assert_eq!(read(&group), (300_000.0, 0.5), "its neighbours use the pod's quota, too");
        std::fs::remove_file(at("pod/server/cpu.max")).unwrap();
        assert_eq!(read(&group), (300_000.0, 0.5), "the pod hands no quotas down");
        put("pod/server", 200_000, "25000 100000\n");
        assert_eq!(read(&group), (200_000.0, 0.25));

        for (dir, quota) in [("cpu/pod", "50000\n"), ("cpu/pod/server", "-1\n")] {
            create_dir_all(at(dir)).unwrap();
            write(at(dir).join("cpu.cfs_quota_us"), quota).unwrap();
            write(at(dir).join("cpu.cfs_period_us"), "100000\n").unwrap();
        }
        for (dir, ns) in [("cpuacct/pod", "300000000\n"), ("cpuacct/pod/server", "200000000\n")] {
            create_dir_all(at(dir)).unwrap();
            write(at(dir).join("cpuacct.usage"), ns).unwrap();
        }
        let mounts = format!(
            "cgroup {0}/cpu cgroup rw,cpu 0 0\ncgroup {0}/cpuacct cgroup rw,cpuacct 0 0\n",
            root.path().display()
        );
        let group = CpuGroup::find(&at("cpu/pod/server"), &mounts).unwrap();
        assert_eq!(read(&group), (300_000.0, 0.5));
    }

    /// A control group of the test's own; gone with it.
    struct Group(Vec<PathBuf>);

    impl Drop for Group {
        fn drop(&mut self) {
            for dir in &self.0 {
                // A group whose last process has just ended is busy for a moment.
                (0..100).find(|_| {
                    let is_gone = std::fs::remove_dir(dir).is_ok();
                    if !is_gone {
                        std::thread::sleep(std::time::Duration::from_millis(20));
                    }
                    is_gone
                });
            }
        }
    }

    /// Its directory of the quota, which is half a core; or why there is none.
    fn half_a_core(mounts: &str) -> Result<Group, String> {
        let name = format!("plimsoll-test-cpu-{}", std::process::id());
        let has = |line: &&str, kind: &str, option: &str| {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, _, is, options, ..] = fields[..] else { return false };
            is == kind && (option.is_empty() || options.split(',').any(|one| one == option))
        };
        let mount = |kind, option| {
            let line = mounts.lines().find(|line| has(line, kind, option))?;
            line.split(' ').nth(1).map(Path::new)
        };
        let make = |at: &Path, group: &mut Group| {
            let dir = at.join(&name);
            match std::fs::create_dir(&dir) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    Err(format!("{}: {error}", dir.display()))
                }
                _ if group.0.contains(&dir) => Ok(()),
                _ => {
                    group.0.push(dir);
                    Ok(())
                }
            }
        };
        let set = |group: &Group, file: &str, text: &str| {
            write(group.0[0].join(file), text).map_err(|error| format!("{file}: {error}"))
        };
        let mut group = Group(Vec::new());
        if let (Some(cpu), Some(account)) = (mount("cgroup", "cpu"), mount("cgroup", "cpuacct")) {
            make(cpu, &mut group)?;
            make(account, &mut group)?;
            set(&group, "cpu.cfs_period_us", "100000")?;
            set(&group, "cpu.cfs_quota_us", "50000")?;
        } else {
            make(mount("cgroup2", "").ok_or("no control groups are mounted")?, &mut group)?;
            set(&group, "cpu.max", "50000 100000")?;
        }
        Ok(group)
    }

    #[test]
    fn a_process_that_uses_all_its_quota_is_seen() {
        let mounts = read_to_string("/proc/mounts").unwrap_or_default();
        let group = match half_a_core(&mounts) {
            Ok(group) => group,
            Err(why) => return eprintln!("skipped: no control group can be made here: {why}"),
        };
        let found = CpuGroup::find(&group.0[0], &mounts).expect("the kernel counts it");
        assert_eq!(read(&found).1, 0.5, "half a core");
        let enter = r#"for dir in "$@"; do echo $$ > "$dir/cgroup.procs" || exit 9; done; while :; do :; done"#;
        let mut burns = std::process::Command::new("sh")
            .args(["-c", enter, "sh"])
            .args(&group.0)
            .spawn()
            .expect("sh");
        let began = std::time::Instant::now();
        // 0.2 s of half a core come soon, however busy the machine is.
        while read(&found).0 < 200_000.0 && began.elapsed().as_secs() < 30 {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let (busy_us, _) = read(&found);
        burns.kill().expect("killed");
        burns.wait().expect("reaped");
        assert!(busy_us >= 200_000.0, "{busy_us} us in {:?}", began.elapsed());
    }
}
