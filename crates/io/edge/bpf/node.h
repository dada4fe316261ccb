/* What a node's programs share: its settings, counts, and the way of a packet past a service's functions.
 * Mirrored in src/node/layout.rs. */
#pragma once
#include "key.h"

#define MAX_SERVICES 64
#define MAX_CPUS 256
#define MAX_UPLINKS 64
#define MAX_CHAIN 8

/* One entry. */
struct node_config {
	__u32 vni;	 /* as in the packet */
	__u32 address;	 /* this node's */
	__u32 forwarder; /* whose packets are taken; 0: none yet */
	__u32 server;
	__u32 uplink;	   /* index of the interface towards the forwarder */
	__u32 uplink_port; /* and in `uplinks` */
	__u8 mac[6], forwarder_mac[6]; /* this end, and the next hop towards the forwarder */
	__u32 calibrating;	       /* packets to and from CALIBRATION are counted and go no further */
};

/* 198.18.0.0/15 is for benchmarks (RFC 2544). */
#define CALIBRATION bpf_htonl(0xc612fffe)

/* By service and CPU. */
struct service_count {
	__u64 packets; /* handed to the functions */
	__u64 left;    /* that came out at the end */
	__u64 rewritten;
	__u64 calibrated;
};

enum node_reason {
	NODE_MALFORMED,
	NODE_FOREIGN_VNI,
	NODE_STRANGER, /* VXLAN from another sender than the forwarder */
	NODE_UNKNOWN_IDS,
	NODE_NO_MARK, /* left a namespace without its mark: its own packets, or a ruleset changed marks */
	NODE_ROUTE_ASKED,
	NODE_FORWARDER_ROUTE, /* the way to the destination leads by the forwarder: wrapped again */
	NODE_TTL,
	NODE_NOT_AUTHENTIC, /* questions, which the daemon counts */
	NODE_REASONS
};

#define NODE_MAP(name, kind, entries, value_type)     \
	struct {                                      \
		__uint(type, kind);                   \
		__uint(max_entries, entries);         \
		__type(key, __u32);                   \
		__type(value, value_type);            \
	} name SEC(".maps")

NODE_MAP(node, BPF_MAP_TYPE_ARRAY, 1, struct node_config);
NODE_MAP(node_reasons, BPF_MAP_TYPE_PERCPU_ARRAY, NODE_REASONS, __u64);
NODE_MAP(service_counts, BPF_MAP_TYPE_PERCPU_ARRAY, MAX_SERVICES, struct service_count);
NODE_MAP(uplinks, BPF_MAP_TYPE_DEVMAP, MAX_UPLINKS, __u32);

INLINE int node_drop(__u32 why)
{
	__u64 *count = bpf_map_lookup_elem(&node_reasons, &why);
	if (count)
		(*count)++;
	return XDP_DROP;
}

INLINE struct node_config *settings(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&node, &zero);
}
