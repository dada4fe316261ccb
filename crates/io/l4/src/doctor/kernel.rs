//! The kernel: its features, this process's rights, bpffs, memory limits, clocks.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::features::{AGENT, NEEDED, present};
use super::{Finding, Role, sysctl};
use crate::mounts::{self, ADVICE, Owner};
use crate::program::is_bpffs;
use crate::rights::missing_to_examine;

/// The oldest release with all that the balancer needs.
const OLDEST: (u32, u32) = (5, 18);
/// Clock sources that are read without leaving the guest or asking a slow device.
const QUICK_CLOCKS: [&str; 5] =
    ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "riscv_clocksource"];

pub fn examine(role: Role) -> Vec<Finding> {
    let mut findings = vec![version(&release()), rights(), bpffs(), memlock(), jit(), clock()];
    findings.extend(features(role));
    findings
}

fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The first two numbers of a release such as `6.1.0-18-amd64`.
fn numbers(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn version(release: &str) -> Finding {
    let finding = Finding::new("kernel", "machine", "the programs are loaded into it");
    match numbers(release) {
        Some(found) if found < OLDEST => {
            let (major, minor) = OLDEST;
            finding.fail(format!("Linux {release}"), format!("expected {major}.{minor} or later"))
        }
        _ => finding.ok(format!("Linux {release}; tested with 6.1, 6.12 and 6.18")),
    }
}

fn features(role: Role) -> Vec<Finding> {
    let why =
        "without type information the agent cannot read sockets, and its features are unknown";
    let btf = Finding::new("btf", "machine", why);
    let Some(present) = present() else {
        let advice = "use a kernel with CONFIG_DEBUG_INFO_BTF";
        let found = "/sys/kernel/btf/vmlinux is not there";
        return vec![match role {
            Role::Server { agent: true } => btf.fail(found, advice),
            _ => btf.warn(found, advice),
        }];
    };
    let mut findings = vec![btf.ok("/sys/kernel/btf/vmlinux is there")];
    let agent = matches!(role, Role::Server { agent: true });
    for (name, since, what) in NEEDED.into_iter().chain([AGENT]) {
        let finding = Finding::new("feature", name, what);
        findings.push(match present.contains(name) {
            true => finding.ok("there"),
            false if name == AGENT.0 && !agent => finding.warn(
                "not there",
                format!("servers without agents need none; agents want Linux {since} or later"),
            ),
            false => finding.fail("not there", format!("expected Linux {since} or later")),
        });
    }
    findings
}

fn rights() -> Finding {
    let why = "programs are loaded and attached, and servers probed, by this process's rights";
    let finding = Finding::new("privileges", "machine", why);
    let missing = missing_to_examine();
    if missing.is_empty() {
        return finding.ok("CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_NET_RAW");
    }
    finding
        .fail(format!("{} missing", missing.join(", ")), "run as root, or with these capabilities")
}

fn bpffs() -> Finding {
    let why = "programs, maps and links are pinned there, so that they outlive the daemon";
    let finding = Finding::new("bpffs", "/sys/fs/bpf", why);
    let path = Path::new("/sys/fs/bpf");
    let is_mounted = is_bpffs(path);
    let own = "in a mount namespace of this process's own: what is pinned goes with it";
    if !is_mounted && mounts::are_own() {
        return finding.fail(format!("not mounted, {own}"), ADVICE);
    }
    if is_mounted {
        return match mounts::owner(path) {
            Owner::Machine => finding.ok("mounted"),
            Owner::Namespace => finding.fail(own, ADVICE),
            Owner::Unknown => finding.warn(
                "mounted; this process has mounts of its own, and pins last as long as this one does",
                ADVICE,
            ),
        };
    }
    finding.warn("not mounted", "`plimsoll l4 run` mounts it; or: mount -t bpf bpf /sys/fs/bpf")
}

/// Since 5.11 maps are charged to the cgroup, and the limit has no say.
fn memlock() -> Finding {
    let finding =
        Finding::new("memlock", "machine", "kernels before 5.11 count maps as locked memory");
    let limit = getrlimit(Resource::Memlock).current;
    let old = numbers(&release()).is_some_and(|found| found < (5, 11));
    match limit {
        Some(bytes) if old => finding.fail(
            format!("at most {} KiB", bytes >> 10),
            "LimitMEMLOCK=infinity in the unit, or `ulimit -l unlimited`",
        ),
        Some(bytes) => {
            finding.ok(format!("{} KiB, which this kernel does not ask for", bytes >> 10))
        }
        None => finding.ok("unlimited"),
    }
}

fn jit() -> Finding {
    let finding = Finding::new("jit", "machine", "interpreted, a packet costs ten times as much");
    match sysctl("net.core.bpf_jit_enable") {
        Some(0) => finding.warn("off", "sysctl -w net.core.bpf_jit_enable=1"),
        Some(_) => finding.ok("on"),
        None => finding.ok("always on, or unknown"),
    }
}

fn clock() -> Finding {
    let why = "timestamps are restored by the clock; a slow source costs microseconds a packet";
    let finding = Finding::new("clock", "machine", why);
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let Ok(source) = fs::read_to_string(path) else {
        return finding.ok("the source is unknown");
    };
    let source = source.trim();
    if QUICK_CLOCKS.contains(&source) {
        return finding.ok(source);
    }
    finding.warn(source, "see why the kernel took no quick one: dmesg | grep clocksource")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn an_old_kernel_is_refused_and_an_odd_name_is_not() {
        let level = |release| version(release).level;
        assert_eq!(level("5.4.0-150-generic"), Level::Fail);
        assert_eq!(level("5.10.0"), Level::Fail);
        assert_eq!(level("6.1.0-56-cloud-amd64"), Level::Ok);
        assert_eq!(level("6.18.44-fc-v657"), Level::Ok);
        assert_eq!(level("custom"), Level::Ok);
    }
}
