/* The forwarder's maps and their values. Mirrored in src/forwarder/layout.rs; FORWARDER_LAYOUT changes with
 * every change that pinned maps of before do not bear. */
#pragma once
#include "key.h"

#define FORWARDER_LAYOUT 1
#define MAX_PORTS 64
#define MAX_SERVICES 64
#define MAX_RULES 256
#define MAX_SLOTS 512
#define MAX_SERVERS 64
#define MAX_TARGETS 4096

/* What tells young flows from old ones: `Ages` of crates/logic/feedback, by which the loader sets them. */
volatile const __u32 aging_ms = 10;
volatile const __u32 old_ms = 20;
volatile const __u16 heavy = 32; /* as wide as what is counted */

enum age { AGE_YOUNG, AGE_AGING, AGE_OLD };

#define SIGN_TURNED 1   /* the flow's first packet came from the higher end */
#define SIGN_ANSWERED 2 /* packets came against it */
#define SIGN_PEER 4     /* `peer` is the key of the same flow on the other side of a NAT */
#define SIGN_FIN 8      /* TCP: the side that began has ended */
#define SIGN_FIN_BACK 16
#define SIGN_RESET 32

/* What `flows4` and `flows6` hold; the peer's key follows. */
struct flow {
	__u32 target;
	__u32 seen_s; /* by now_seconds() */
	__u32 born_ms; /* by now_ms(), cut */
	__u16 signs;
	__u16 packets; /* while it is young or aging, up to `heavy`: of its own, so that no sign is lost to it */
};

struct flow4 {
	struct flow flow;
	struct key4 peer;
};

struct flow6 {
	struct flow flow;
	struct key6 peer;
};

/* A (server, core, service): where flows are sent, and what is written in front of their packets. */
struct target {
	struct wrap wrap; /* lengths, checksum and source port are 0 */
	__u32 port;	  /* in `ports` */
	__u32 live;
	__u32 mtu; /* of the way to the node */
	__u32 pad[13];
};

_Static_assert(sizeof(struct target) == 128, "two lines of the cache");

struct target_count {
	__u64 packets, bytes;
	__u64 old_packets; /* of old flows */
	__u64 opened;
	__u64 replies; /* packets against the direction of the first */
	__u64 aging_packets;
	__u64 pad[2];
};

/* Which packets are a service's; the first that matches counts. */
struct rule {
	__u32 source[4], source_mask[4], destination[4], destination_mask[4];
	__u32 service;
	__u16 port_low, port_high; /* of the destination; both 0: any */
	__u8 family;		   /* 4, 6 */
	__u8 protocol;		   /* 0: any */
	__u8 pad[6];
};

struct slots {
	__u32 length;
	__u16 target[MAX_SLOTS];
};

/* One entry. Rules and slots come in halves: what is not read is filled, then a bit flips. */
struct forwarder_config {
	__u32 vni; /* as in the packet */
	__u32 address; /* the forwarder's, towards nodes */
	__u32 unmatched_drop;
	__u32 rules_half, rules[2];
	__u64 slots_half; /* bit s: of service s */
};

struct server {
	__u32 address;
	__u32 ifindex; /* that the way to it leads by: where its packets come in */
};

struct address_key {
	__u32 address[4];
	__u32 family;
};

/* Names as in status: src/forwarder/reason.rs. */
enum reason {
	REASON_UNMATCHED,
	REASON_NO_NODE,		 /* a new flow, and no node takes it */
	REASON_FULL,		 /* a new flow, and the table is full */
	REASON_MALFORMED,
	REASON_TOO_BIG,		 /* longer than the way to the node takes; the sender gets an error, if it may */
	REASON_FOREIGN_VNI,
	REASON_UNKNOWN_NODE,	 /* VXLAN from elsewhere, by another interface, or with ids that no node has */
	REASON_NESTED,		 /* from a node, and VXLAN for this machine or a node within */
	REASON_RETURNED,	 /* from nodes, sent on */
	REASON_TAUGHT,		 /* learned from a rewritten packet how the way back looks */
	REASON_UNTAUGHT,	 /* rewritten, but its flow is not known (any more), or the table is full */
	REASON_FRAGMENT_UNKNOWN, /* a later fragment whose first one has not come */
	REASON_ERROR_UNKNOWN,	 /* an ICMP error about a flow that is not known: the kernel's */
	REASON_REHOMED,		 /* a flow whose node is gone, sent to another one */
	REASON_ROUTE_ASKED,	 /* handed to the kernel for want of a neighbour */
	REASONS
};

#define ARRAY(name, kind, entries, value_type)        \
	struct {                                      \
		__uint(type, kind);                   \
		__uint(max_entries, entries);         \
		__type(key, __u32);                   \
		__type(value, value_type);            \
	} name SEC(".maps")

ARRAY(config, BPF_MAP_TYPE_ARRAY, 1, struct forwarder_config);
ARRAY(rules, BPF_MAP_TYPE_ARRAY, 2 * MAX_RULES, struct rule);
ARRAY(slots, BPF_MAP_TYPE_ARRAY, 2 * MAX_SERVICES, struct slots);
ARRAY(targets, BPF_MAP_TYPE_ARRAY, MAX_TARGETS, struct target);
ARRAY(counts, BPF_MAP_TYPE_PERCPU_ARRAY, MAX_TARGETS, struct target_count);
ARRAY(servers, BPF_MAP_TYPE_ARRAY, MAX_SERVERS, struct server);
ARRAY(reasons, BPF_MAP_TYPE_PERCPU_ARRAY, REASONS, __u64);
ARRAY(turns, BPF_MAP_TYPE_PERCPU_ARRAY, MAX_SERVICES, __u32);
ARRAY(ports, BPF_MAP_TYPE_DEVMAP, MAX_PORTS, __u32);
ARRAY(meta, BPF_MAP_TYPE_ARRAY, 1, __u32);
/* Flows that ended, or went elsewhere when their node was gone, by target. */
ARRAY(closed, BPF_MAP_TYPE_ARRAY, MAX_TARGETS, __u64);

struct name {
	char text[128];
};

/* Whose a target is: not for the program, but for whoever takes over. */
ARRAY(names, BPF_MAP_TYPE_ARRAY, MAX_TARGETS, struct name);

#define FLOWS(name, key_type, value_type)             \
	struct {                                      \
		__uint(type, BPF_MAP_TYPE_HASH);      \
		__uint(max_entries, 1);               \
		__type(key, struct key_type);         \
		__type(value, struct value_type);     \
	} name SEC(".maps")

FLOWS(flows4, key4, flow4);
FLOWS(flows6, key6, flow6);

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct fragment_key);
	__type(value, __u64); /* target, and FLAG_ above it */
} fragments SEC(".maps");

/* Addresses of this machine and of the nodes: never a service's. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct address_key);
	__type(value, __u32);
} own SEC(".maps");

/* Of the whole clock: milliseconds alone, cut to a word, begin anew in seven weeks. */
INLINE __u32 now_seconds(void)
{
	return now_ms() / 1000;
}

/* A flow is at its place no more. */
INLINE void count_closed(const struct flow *flow)
{
	__u32 at = flow->target;
	__u64 *count = bpf_map_lookup_elem(&closed, &at);
	if (count)
		__sync_fetch_and_add(count, 1);
}

INLINE void count_reason(__u32 why)
{
	__u64 *count = bpf_map_lookup_elem(&reasons, &why);
	if (count)
		(*count)++;
}
