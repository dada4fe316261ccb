/* A service on a node: its packets go to their core by a cpumap of the service's own, so that the kernel's thread
 * for them, and what it costs, is the service's alone. There, functions run one after the other by tail calls; or
 * the packet passes through a namespace with rules of nftables, and through functions before and behind it.
 * Loaded once for each service.
 *
 *   deparse ─▶ receive ─▶ cpumap[core]: stage ─▶ function ─▶ … ─▶ finish
 *   deparse ─▶ receive ─▶ veth ─▶ enter ─▶ cpumap[core]: stage ─▶ … ─▶ namespace ─▶ veth ─▶ leave ─▶ … ─▶ finish
 */
#include "leave_node.h"

/* Set by the loader. */
volatile const __u32 service = 0;
volatile const __u32 has_namespace = 0;
volatile const __u32 functions_before = 0; /* the namespace; all of them where there is none */
volatile const __u32 functions_after = 0;

#define MARK_SET (1U << 31)
#define RING_BITS 14
/* Go on with the next program (enum tcx_action_base, not in older headers). */
#define TCX_NEXT -1

enum function {
	FUNCTION_COUNTER,
	FUNCTION_WORK,
	FUNCTION_REWRITE,
	FUNCTIONS
};

/* What a function is set to; by its place in the chain. */
struct function_settings {
	__u32 function;
	__u32 iterations;	  /* of work */
	__u32 from[4], mask[4];	  /* of rewrite: addresses within become … */
	__u32 to[4];
	__u32 family;
	__u32 pad;
};

/* Of the packet that this CPU is at. */
struct passing {
	__u32 key[10];
	__u32 is_flow;
	__u32 core, flags;
	__u32 place; /* of the next function */
	__u32 last;  /* the place behind the last one of this part */
	__u32 ends;  /* behind it: the end of the chain, or the namespace */
};

struct remembered {
	__u32 key[10];
	__u32 core, flags;
};

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, MAX_CPUS);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} cpus SEC(".maps");

#define PROGRAMS(name, entries)                       \
	struct {                                      \
		__uint(type, BPF_MAP_TYPE_PROG_ARRAY); \
		__uint(max_entries, entries);         \
		__type(key, __u32);                   \
		__type(value, __u32);                 \
	} name SEC(".maps")

/* By place in the chain; the last is the end of it. On a cpumap's thread, and on a veth's queue. */
PROGRAMS(chain, MAX_CHAIN + 1);
PROGRAMS(chain_behind, MAX_CHAIN + 1);

NODE_MAP(functions, BPF_MAP_TYPE_ARRAY, MAX_CHAIN, struct function_settings);
NODE_MAP(function_counts, BPF_MAP_TYPE_PERCPU_ARRAY, MAX_CHAIN, __u64);
NODE_MAP(passing, BPF_MAP_TYPE_PERCPU_ARRAY, 1, struct passing);
/* The namespace's legs, from this side: 0 towards the side that begins flows, 1 away from them. */
NODE_MAP(legs, BPF_MAP_TYPE_DEVMAP, 2, __u32);
NODE_MAP(leg_macs, BPF_MAP_TYPE_ARRAY, 2, __u64);
NODE_MAP(ring_turn, BPF_MAP_TYPE_PERCPU_ARRAY, 1, __u32);
/* What packets within the namespace came in by: by mark. */
NODE_MAP(ring, BPF_MAP_TYPE_PERCPU_ARRAY, 1 << RING_BITS, struct remembered);

INLINE struct passing *now_passing(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&passing, &zero);
}

INLINE struct service_count *own_count(void)
{
	__u32 at = service;
	return bpf_map_lookup_elem(&service_counts, &at);
}

INLINE int to_core(struct xdp_md *ctx, __u32 core)
{
	if (core >= MAX_CPUS)
		return node_drop(NODE_UNKNOWN_IDS);
	/* No such core, or its queue is full: dropped. */
	(void)ctx;
	return bpf_redirect_map(&cpus, core, XDP_DROP);
}

SEC("xdp") int receive(struct xdp_md *ctx)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	struct ids *ids = ids_of(eth);
	if (!has_namespace)
		return to_core(ctx, ids->core);
	__u32 leg = ids->flags & FLAG_REPLY ? 1 : 0;
	return bpf_redirect_map(&legs, leg, XDP_DROP);
}

/* In the namespace, where a packet enters. */
INLINE int entered(struct xdp_md *ctx, __u32 leg)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	struct ids *ids = ids_of(eth);
	if (!are_ids(ids))
		return XDP_PASS;
	__u64 *mac = bpf_map_lookup_elem(&leg_macs, &leg);
	if (mac)
		__builtin_memcpy(eth->to, mac, 6);
	return to_core(ctx, ids->core);
}

SEC("xdp") int enter(struct xdp_md *ctx)
{
	return entered(ctx, 0);
}

SEC("xdp") int enter_reply(struct xdp_md *ctx)
{
	return entered(ctx, 1);
}

/* The packet is at its core. */
SEC("xdp/cpumap") int stage(struct xdp_md *ctx)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	struct parsed *p = room(0);
	struct passing *now = now_passing();
	struct service_count *count = own_count();
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end || !p || !now || !count)
		return XDP_DROP;
	struct ids *ids = ids_of(eth);
	now->core = ids->core;
	now->flags = ids->flags & FLAG_REPLY;
	__u32 kind = parse_slow_xdp(ctx, ETH_BYTES, eth->type, p);
	if (kind == KIND_BAD)
		return node_drop(NODE_MALFORMED);
	count->packets++;
	now->is_flow = kind == KIND_FLOW || kind == KIND_ERROR;
	__builtin_memcpy(now->key, p->key, sizeof(now->key));
	now->place = 0;
	now->last = functions_before;
	now->ends = !has_namespace;
	bpf_tail_call(ctx, &chain, now->last ? 0 : MAX_CHAIN);
	return node_drop(NODE_UNKNOWN_IDS);
}

/* The next function; behind the last one, the end. */
INLINE int next(struct xdp_md *ctx, struct passing *now, const int behind)
{
	__u32 place = ++now->place;
	if (place >= now->last)
		place = MAX_CHAIN;
	if (behind)
		bpf_tail_call(ctx, &chain_behind, place);
	else
		bpf_tail_call(ctx, &chain, place);
	return node_drop(NODE_UNKNOWN_IDS);
}

INLINE struct function_settings *own_settings(const struct passing *now)
{
	__u32 place = now->place;
	return bpf_map_lookup_elem(&functions, &place);
}

INLINE int do_count(struct xdp_md *ctx, const int behind)
{
	struct passing *now = now_passing();
	if (!now)
		return XDP_DROP;
	__u32 place = now->place;
	__u64 *count = bpf_map_lookup_elem(&function_counts, &place);
	if (count)
		(*count)++;
	return next(ctx, now, behind);
}

static long work_step(__u32 i, __u64 *hash)
{
	*hash = (*hash ^ i) * 0x9e3779b97f4a7c15ULL;
	*hash ^= *hash >> 29;
	return 0;
}

INLINE int do_work(struct xdp_md *ctx, const int behind)
{
	struct passing *now = now_passing();
	struct function_settings *set = now ? own_settings(now) : NULL;
	if (!set)
		return XDP_DROP;
	__u64 hash = now->key[0];
	bpf_loop(set->iterations, work_step, &hash, 0);
	/* Kept, so that it is not optimised away; no address changes. */
	now->flags |= (hash == 1) << 30;
	return next(ctx, now, behind);
}

INLINE void fix_l4(void *l4, void *end, __u32 protocol, __u32 old, __u32 new)
{
	__sum16 *sum = NULL;
	if (protocol == IPPROTO_TCP && l4 + sizeof(struct tcp) <= end)
		sum = &((struct tcp *)l4)->checksum;
	else if (protocol == IPPROTO_UDP && l4 + sizeof(struct udp) <= end && ((struct udp *)l4)->checksum)
		sum = &((struct udp *)l4)->checksum;
	if (!sum)
		return;
	fix_checksum(sum, old, new);
	fix_checksum(sum, old >> 16, new >> 16);
}

/* Addresses of a network, one by one, those of another (IPv4): the source on the way out, the destination on
 * the way back. No state. */
INLINE int do_rewrite(struct xdp_md *ctx, const int behind)
{
	struct passing *now = now_passing();
	struct function_settings *set = now ? own_settings(now) : NULL;
	struct ethernet *eth = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(eth + 1);
	void *end = (void *)(long)ctx->data_end;
	if (!set || (void *)(ip + 1) > end)
		return XDP_DROP;
	if (eth->type == ETH_IPV4 && ip->version_ihl == 0x45) {
		__u32 reply = now->flags & FLAG_REPLY, mask = set->mask[0];
		__u32 was = reply ? ip->destination : ip->source, is = was;
		if (!reply && (was & mask) == set->from[0])
			is = set->to[0] | (was & ~mask);
		else if (reply && (was & mask) == set->to[0])
			is = set->from[0] | (was & ~mask);
		if (is != was) {
			if (reply)
				ip->destination = is;
			else
				ip->source = is;
			fix_checksum(&ip->checksum, was, is);
			fix_checksum(&ip->checksum, was >> 16, is >> 16);
			if (!(ip->fragment & FRAGMENT_OFFSET))
				fix_l4(ip + 1, end, ip->protocol, was, is);
		}
	}
	return next(ctx, now, behind);
}

#define FUNCTION(name, body)                               \
	SEC("xdp/cpumap") int name(struct xdp_md *ctx)     \
	{                                                  \
		return body(ctx, 0);                       \
	}                                                  \
	SEC("xdp") int name##_behind(struct xdp_md *ctx)   \
	{                                                  \
		return body(ctx, 1);                       \
	}

FUNCTION(counter, do_count)
FUNCTION(work, do_work)
FUNCTION(rewrite, do_rewrite)

/* The end: whether it was rewritten decides where it goes. */
INLINE int finished(struct xdp_md *ctx, const int hop)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct parsed *p = room(0);
	struct passing *now = now_passing();
	struct service_count *count = own_count();
	struct node_config *c = settings();
	if ((void *)(eth + 1) > end || !p || !now || !count || !c)
		return XDP_DROP;
	__be16 type = eth->type;
	__u32 kind = parse_slow_xdp(ctx, ETH_BYTES, type, p);
	if (kind == KIND_BAD)
		return node_drop(NODE_MALFORMED);
	eth = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (hop) {
		if ((void *)(eth + 1) > end || !count_hop(eth, end))
			return node_drop(NODE_TTL);
	}
	count->left++;
	if (c->calibrating && type == ETH_IPV4 && (p->key[0] == CALIBRATION || p->key[1] == CALIBRATION)) {
		count->calibrated++;
		return XDP_DROP;
	}
	int was_rewritten = now->is_flow && (kind == KIND_FLOW || kind == KIND_ERROR) &&
			    !is_same_key(now->key, p->key, type);
	__u32 flags = now->flags & FLAG_REPLY;
	if (!was_rewritten)
		return straight(ctx, c, now->core, service, flags);
	count->rewritten++;
	return wrap_back(ctx, c, now->key, now->core, service, flags | FLAG_UPDATE);
}

/* On the core: of a chain without a namespace the end, else the namespace's beginning. */
SEC("xdp/cpumap") int finish(struct xdp_md *ctx)
{
	struct passing *now = now_passing();
	if (!now)
		return XDP_DROP;
	if (!now->ends)
		return XDP_PASS;
	return finished(ctx, 1);
}

SEC("xdp") int finish_behind(struct xdp_md *ctx)
{
	return finished(ctx, 0);
}

/* On this side of the namespace, where a packet comes out. Its source address is its mark. */
INLINE int left(struct xdp_md *ctx, __u32 flags)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	struct passing *now = now_passing();
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end || !now)
		return XDP_DROP;
	if (eth->type != ETH_IPV4 && eth->type != ETH_IPV6)
		return XDP_PASS;
	__u32 mark = load32(eth->from + 2), at = mark & ((1 << RING_BITS) - 1), cpu = mark >> RING_BITS & 0xff;
	now->is_flow = 0;
	now->flags = flags;
	now->core = bpf_get_smp_processor_id();
	struct remembered *was = mark & MARK_SET ? bpf_map_lookup_percpu_elem(&ring, &at, cpu) : NULL;
	if (was) {
		__builtin_memcpy(now->key, was->key, sizeof(now->key));
		now->is_flow = 1;
		now->core = was->core;
	} else {
		node_drop(NODE_NO_MARK);
	}
	now->place = functions_before;
	now->last = functions_before + functions_after;
	now->ends = 1;
	bpf_tail_call(ctx, &chain_behind, functions_after ? now->place : MAX_CHAIN);
	return node_drop(NODE_UNKNOWN_IDS);
}

/* By the leg away from the side that begins flows: on the way out. */
SEC("xdp") int leave(struct xdp_md *ctx)
{
	return left(ctx, 0);
}

SEC("xdp") int leave_reply(struct xdp_md *ctx)
{
	return left(ctx, FLAG_REPLY);
}

/* In the namespace, past the cpumap: a packet's mark says, wherever the rules send it, what it came in by. */
SEC("classifier") int mark(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct parsed *p = room(1);
	__u32 *turn = bpf_map_lookup_elem(&ring_turn, &zero);
	__be16 type = 0;
	if (!p || !turn || bpf_skb_load_bytes(skb, 12, &type, 2))
		return TCX_NEXT;
	__u32 kind = parse_slow(skb, ETH_BYTES, type, p, 1);
	if (kind != KIND_FLOW && kind != KIND_ERROR)
		return TCX_NEXT;
	__u32 at = (*turn)++ & ((1 << RING_BITS) - 1), cpu = bpf_get_smp_processor_id();
	struct remembered *entry = bpf_map_lookup_elem(&ring, &at);
	if (!entry)
		return TCX_NEXT;
	__builtin_memcpy(entry->key, p->key, sizeof(entry->key));
	entry->core = cpu;
	skb->mark = MARK_SET | (cpu & 0xff) << RING_BITS | at;
	return TCX_NEXT;
}

/* Where it leaves the namespace: the mark into the source address, which nobody reads on this cable. */
SEC("classifier") int tell(struct __sk_buff *skb)
{
	__u32 mark = skb->mark;
	bpf_skb_store_bytes(skb, 8, &mark, sizeof(mark), 0);
	return TCX_NEXT;
}

/* Makes a burst for calibration out of the packet of a live-frame run, a period apart: 64 flows of it. */
struct burst {
	__u64 period_ns, next_ns;
	__u32 core, flows, turn, pad;
};

NODE_MAP(bursts, BPF_MAP_TYPE_ARRAY, 1, struct burst);

static long wait_step(__u32 i, __u64 *until)
{
	(void)i;
	return bpf_ktime_get_ns() >= *until;
}

SEC("xdp") int calibrate(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct burst *burst = bpf_map_lookup_elem(&bursts, &zero);
	struct ethernet *eth = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(eth + 1);
	struct udp *udp = (void *)(ip + 1);
	if (!burst || (void *)(udp + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	__u64 now = bpf_ktime_get_ns();
	if (burst->next_ns + 2000000 < now)
		burst->next_ns = now;
	__u64 until = burst->next_ns;
	bpf_loop(1 << 20, wait_step, &until, 0);
	burst->next_ns = until + burst->period_ns;
	struct ids ids = {IDS_FIRST, 0, 0, burst->core, service, IDS_LAST};
	__builtin_memcpy(eth->from, &ids, 6);
	eth->type = ETH_IPV4;
	*ip = (struct ipv4){.version_ihl = 0x45,
			    .length = bpf_htons(50),
			    .ttl = 64,
			    .protocol = IPPROTO_UDP,
			    .source = bpf_htonl(0xc6120001),
			    .destination = CALIBRATION};
	ip->checksum = header_checksum(ip);
	*udp = (struct udp){.source = bpf_htons(1024 + burst->turn++ % burst->flows),
			    .destination = bpf_htons(9),
			    .length = bpf_htons(30)};
	if (!has_namespace)
		return to_core(ctx, burst->core);
	return bpf_redirect_map(&legs, 0, XDP_DROP);
}

/* What an iteration of work costs. */
SEC("xdp") int measure_work(struct xdp_md *ctx)
{
	struct burst *burst = (void *)(long)ctx->data;
	if ((void *)(burst + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	__u64 hash = burst->next_ns;
	bpf_loop(burst->flows, work_step, &hash, 0);
	burst->next_ns = hash;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
