//! What this process may do: its effective capabilities.

use std::fs;

use crate::error::L4Error;

const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_NET_RAW: u64 = 1 << 13;
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_PERFMON: u64 = 1 << 38;
const CAP_BPF: u64 = 1 << 39;

/// Whether programs may be loaded and attached.
pub(crate) fn check() -> Result<(), L4Error> {
    let missing = lacking(effective(), &["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"]);
    if missing.is_empty() { Ok(()) } else { Err(L4Error::Privileges(missing.join(", "))) }
}

/// What is missing of that, and of asking servers.
pub(crate) fn missing_to_examine() -> Vec<&'static str> {
    lacking(effective(), &["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON", "CAP_NET_RAW"])
}

fn effective() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

fn lacking(bits: u64, names: &[&'static str]) -> Vec<&'static str> {
    // Until 5.8 there was only the one for all.
    let old = bits & CAP_SYS_ADMIN;
    let any = |name: &str| match name {
        "CAP_BPF" => CAP_BPF | old,
        "CAP_PERFMON" => CAP_PERFMON | old,
        "CAP_NET_ADMIN" => CAP_NET_ADMIN,
        _ => CAP_NET_RAW,
    };
    names.iter().copied().filter(|name| bits & any(name) == 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_rights_are_named() {
        let all = ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON", "CAP_NET_RAW"];
        assert_eq!(lacking(u64::MAX, &all), Vec::<&str>::new());
        assert_eq!(lacking(CAP_SYS_ADMIN | CAP_NET_ADMIN | CAP_NET_RAW, &all), Vec::<&str>::new());
        assert_eq!(lacking(CAP_BPF | CAP_PERFMON, &all), ["CAP_NET_ADMIN", "CAP_NET_RAW"]);
        assert_eq!(lacking(0, &all), all);
    }
}
