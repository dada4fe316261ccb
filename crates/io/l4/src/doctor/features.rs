//! What the kernel can do, read from the names in its own type information: no version needs to be known,
//! and what a distribution ported back counts.
//!
//! Cost: one pass over some megabytes.

use std::collections::BTreeSet;
use std::fs;

/// A name in BTF, since which release, and what needs it.
pub const NEEDED: [(&str, &str, &str); 5] = [
    (
        "BPF_FUNC_xdp_load_bytes",
        "5.18",
        "options, fragments and ICMP errors in packets of any shape",
    ),
    ("BPF_LINK_TYPE_XDP", "5.9", "XDP by links, which outlive the daemon"),
    ("BPF_MAP_TYPE_DEVMAP", "4.14", "forwarding from one interface to another"),
    ("bpf_prog_test_run_xdp", "4.12", "`l4 where`, and the program's clock"),
    ("bpf_jiffies64", "5.5", "the program's clock"),
];

/// For the server's agent.
pub const AGENT: (&str, &str, &str) = ("BPF_TCX_INGRESS", "6.6", "the server's agent");

/// The names there are among those looked for; `None` without BTF.
pub fn present() -> Option<BTreeSet<&'static str>> {
    let bytes = fs::read("/sys/kernel/btf/vmlinux").ok()?;
    let wanted: Vec<&str> = NEEDED.iter().map(|(name, ..)| *name).chain([AGENT.0]).collect();
    let mut found = BTreeSet::new();
    for word in bytes.split(|byte| *byte == 0) {
        found.extend(wanted.iter().find(|name| name.as_bytes() == word));
    }
    Some(found)
}

/// What the balancer needs of the kernel and lacks there; nothing where it cannot be known.
pub fn missing() -> Vec<String> {
    present().map_or_else(Vec::new, |present| lacking(&present))
}

fn lacking(present: &BTreeSet<&str>) -> Vec<String> {
    let lacked = NEEDED.iter().filter(|(name, ..)| !present.contains(name));
    lacked.map(|(name, since, _)| format!("{name} (Linux {since})")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_older_kernel_lacks_is_named_with_the_release_that_brought_it() {
        let all: BTreeSet<&str> = NEEDED.iter().map(|(name, ..)| *name).collect();
        assert_eq!(lacking(&all), Vec::<String>::new());
        let mut old = all;
        old.remove("BPF_FUNC_xdp_load_bytes");
        assert_eq!(lacking(&old), ["BPF_FUNC_xdp_load_bytes (Linux 5.18)"]);
    }
}
