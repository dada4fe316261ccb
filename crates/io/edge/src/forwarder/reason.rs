//! What is counted of packets that do not go straight to a node; `enum reason` of bpf/forwarder.h.

/// Names, in the program's order.
pub(crate) const REASONS: [&str; 15] = [
    "unmatched",
    "no_node",
    "full",
    "malformed",
    "too_big",
    "foreign_vni",
    "unknown_node",
    "nested",
    "returned",
    "taught",
    "untaught",
    "fragment_unknown",
    "error_unknown",
    "rehomed",
    "route_asked",
];
