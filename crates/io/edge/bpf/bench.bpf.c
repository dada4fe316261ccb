/* What a packet costs: the forwarder's program behind a preamble that makes flows, the preamble by itself, and a
 * table such as layer-4 balancers keep (LRU, one entry a direction), with the same VXLAN behind it. Loaded onto the
 * pinned maps of a forwarder that runs, and run many times in a system call (BPF_PROG_TEST_RUN). */
#include "forwarder.bpf.c"

#define TABLE_ENTRIES (2 << 20)

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, TABLE_ENTRIES);
	__type(key, struct key4);
	__type(value, __u64);
} lru SEC(".maps");

/* Of flows there are so many; a turn is where they begin. */
struct bench {
	__u64 number, flows, turn;
};

ARRAY(bench, BPF_MAP_TYPE_ARRAY, 1, struct bench);

/* The packet of the next flow: wrapped once, it is as long as that from then on. */
INLINE int prepare(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct bench *b = bpf_map_lookup_elem(&bench, &zero);
	if (!b)
		return -1;
	if (ctx->data_end - ctx->data > 100 && bpf_xdp_adjust_head(ctx, OUTER_BYTES))
		return -1;
	struct ethernet *eth = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(eth + 1);
	struct udp *udp = (void *)(ip + 1);
	if ((void *)(udp + 1) > (void *)(long)ctx->data_end)
		return -1;
	__u64 number = b->number++ & (b->flows - 1);
	number += b->turn;
	eth->type = ETH_IPV4;
	ip->source = bpf_htonl(0x0a000000 | (number >> 14 & 0xffffff));
	udp->source = bpf_htons(0x4000 | (number & 0x3fff));
	return 0;
}

SEC("xdp") int preamble(struct xdp_md *ctx)
{
	if (prepare(ctx))
		return XDP_ABORTED;
	/* As the others leave it. */
	return bpf_xdp_adjust_head(ctx, -(int)OUTER_BYTES) ? XDP_ABORTED : XDP_REDIRECT;
}

SEC("xdp") int measured(struct xdp_md *ctx)
{
	if (prepare(ctx))
		return XDP_ABORTED;
	struct ethernet *eth = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	if ((void *)(eth + 1) > end)
		return XDP_ABORTED;
	return forward4(ctx, (void *)(eth + 1), end);
}

/* Look-up, choice of a first packet by the same rules and slots, counters, VXLAN: no more than that. */
SEC("xdp") int by_lru(struct xdp_md *ctx)
{
	struct parsed p;
	int verdict;
	if (prepare(ctx))
		return XDP_ABORTED;
	struct ethernet *eth = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(eth + 1);
	void *end = (void *)(long)ctx->data_end;
	if ((void *)(ip + 1) > end || !parse_quick4(ip, end, &p))
		return XDP_ABORTED;
	__u64 *found = bpf_map_lookup_elem(&lru, p.key);
	__u32 at = found ? (__u32)*found : MAX_TARGETS;
	struct target *target = found ? bpf_map_lookup_elem(&targets, &at) : NULL;
	if (!target || !target->live) {
		at = choose(&p, &verdict, 4);
		target = bpf_map_lookup_elem(&targets, &at);
		if (!target)
			return XDP_ABORTED;
		__u64 value = at;
		bpf_map_update_elem(&lru, p.key, &value, BPF_ANY);
		count_opened(at);
	}
	count_packet(at, ctx, AGE_YOUNG, 0);
	return encapsulate(ctx, target, 0, mix(&p));
}
