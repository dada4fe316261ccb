//! What the kernel can do, told by the names in its own type information: no version needs to be known,
//! and what a distribution ported back counts.
//!
//! Cost: one pass over some megabytes.

use std::collections::BTreeSet;
use std::fs;

/// A name in BTF, since which release, and what needs it.
pub const NEEDED: [(&str, &str, &str); 4] = [
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
