/* The program's maps. Sizes that depend on the configuration are set by the loader. */
#pragma once
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "types.h"

#define MAP(name, kind, entries, value_type)          \
	struct {                                      \
		__uint(type, kind);                   \
		__uint(max_entries, entries);         \
		__type(key, __u32);                   \
		__type(value, value_type);            \
	} name SEC(".maps")

MAP(config, BPF_MAP_TYPE_ARRAY, 1, struct config);
MAP(permutations, BPF_MAP_TYPE_ARRAY, 2, struct permutation);
MAP(vips, BPF_MAP_TYPE_ARRAY, 2, struct vip);
MAP(slots, BPF_MAP_TYPE_ARRAY, 2, struct slots);
MAP(members, BPF_MAP_TYPE_ARRAY, 1, struct member);
MAP(clocks, BPF_MAP_TYPE_ARRAY, 1, struct clock);
MAP(macs, BPF_MAP_TYPE_ARRAY, 2, struct mac_bucket);
MAP(counts, BPF_MAP_TYPE_PERCPU_ARRAY, 1, struct member_count);
MAP(reasons, BPF_MAP_TYPE_PERCPU_ARRAY, REASONS, __u64);
MAP(turns, BPF_MAP_TYPE_PERCPU_ARRAY, 1, __u32);
MAP(open, BPF_MAP_TYPE_ARRAY, 1, __s32);
/* Named otherwise than the one of before, whose events read otherwise: pinned maps may hold both. */
MAP(connections, BPF_MAP_TYPE_ARRAY, (1 << LAST_BITS) / LAST_ROW, struct last);
MAP(owners, BPF_MAP_TYPE_ARRAY, 1 << OWNER_BITS, __u64);
MAP(ports, BPF_MAP_TYPE_DEVMAP, MAX_PORTS, __u32);
/* By place of `ports`: PORT_TURNS_BACK, PORT_SHUT. */
MAP(turns_back, BPF_MAP_TYPE_ARRAY, MAX_PORTS, __u32);
MAP(hops, BPF_MAP_TYPE_PERCPU_ARRAY, 1, struct hop);
MAP(meta, BPF_MAP_TYPE_ARRAY, 1, struct meta);
MAP(vip_names, BPF_MAP_TYPE_ARRAY, 1, struct name);
MAP(member_names, BPF_MAP_TYPE_ARRAY, 1, struct name);
MAP(notes, BPF_MAP_TYPE_ARRAY, 1, struct note);

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct fragment_key);
	__type(value, __u32);
} fragments SEC(".maps");

/* The VIPs' addresses but for those that are this machine's own: nothing else is served there. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct address_key);
	__type(value, __u32);
} addresses SEC(".maps");

/* No program reads it, and it is not pinned: the kernel answers an update of a map of maps only when all runs of
 * programs that had begun before have ended (an RCU grace period), which is what user space wants of it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__uint(max_entries, 1);
		__type(key, __u32);
		__type(value, __u32);
	});
} readers SEC(".maps");

/* Set by the loader before the program is verified, so that they are constants to the verifier. */
volatile const __u32 stride = 256;   /* ids of a VIP, 0 included */
volatile const __u32 max_vips = 1;
volatile const __u32 vip_bits = 0;   /* log2 of half of `vips` */
volatile const __u32 mac_bits = 0;   /* log2 of half of `macs` */
volatile const __u32 hop_bits = 0;   /* log2 of the destinations that a CPU remembers the way to */
volatile const __u32 dry_run = 0;      /* to be asked, not to serve: nothing is counted */
