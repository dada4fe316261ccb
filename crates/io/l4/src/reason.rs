//! Why a packet left the fast path: the counters' names, in the order of `bpf/types.h`.

/// The names, as `plimsoll l4 status` shows them; docs/l4.md says what each means.
pub const REASONS: [&str; 22] = [
    "no_timestamp",
    "syn_no_timestamp",
    "foreign_cookie",
    "stale_cookie",
    "clock_unknown",
    "reply_no_timestamp",
    "no_server",
    "unknown_source",
    "no_route",
    "slow_options",
    "fragment",
    "fragment_lost",
    "icmp",
    "icmp_spread",
    "malformed",
    "vlan",
    "ttl",
    "no_port",
    "no_service",
    "echo",
    ROUTE_ASKED,
    "clock_moved",
];

/// Of replies for which the kernel's routes were asked, which is no fallback.
pub const ROUTE_ASKED: &str = "route_asked";
