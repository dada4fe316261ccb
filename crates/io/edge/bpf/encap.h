/* To a node: counted, wrapped, sent. */
#pragma once
#include "forwarder.h"

/* What a packet grows by on its way to a node and back: VXLAN, and the key of a flow that was rewritten. */
#define GROWS4 (OUTER_BYTES + TEACH4_BYTES)
#define GROWS6 (OUTER_BYTES + TEACH6_BYTES)

INLINE void write_wrap(struct wrap *to, const struct target *target, __u32 inner_bytes, __be16 type,
		       __u32 flags, __u32 hash)
{
	const __u64 *from = (const void *)&target->wrap;
	__u64 *words = (void *)to;
#pragma unroll
	for (int i = 0; i < 8; i++)
		words[i] = from[i];
	__u16 udp = inner_bytes + UDP_BYTES + 8;
	struct ipv4 *ip = (void *)to + ETH_BYTES;
	struct udp *out = (void *)(ip + 1);
	struct ethernet *inner = (void *)to + OUTER_BYTES;
	ip->length = bpf_htons(udp + IPV4_BYTES);
	/* The template's checksum is that of length 0. */
	__u32 sum = (__u16)~ip->checksum + ip->length;
	ip->checksum = ~((sum & 0xffff) + (sum >> 16));
	out->length = bpf_htons(udp);
	out->source = bpf_htons(0xc000 | ((hash ^ hash >> 16) & 0x3fff));
	inner->type = type;
	ids_of(inner)->flags = flags;
}

/* Which queue of the node's interface takes it. */
INLINE __u32 mix(const struct parsed *p)
{
	return (p->key[0] ^ p->key[1] * 0x85ebca6b ^ p->key[2] * 0xc2b2ae35) * 0x9e3779b1;
}

INLINE int encapsulate(struct xdp_md *ctx, const struct target *target, __u32 flags, __u32 hash)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	__be16 type = eth->type;
	if (bpf_xdp_adjust_head(ctx, -(int)OUTER_BYTES))
		return XDP_DROP;
	struct wrap *wrap = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	if ((void *)(wrap + 1) > end)
		return XDP_DROP;
	write_wrap(wrap, target, end - (void *)wrap - OUTER_BYTES, type, flags, hash);
	return bpf_redirect_map(&ports, target->port, XDP_DROP);
}

INLINE void count_packet(__u32 at, const struct xdp_md *ctx, enum age age, __u32 reply)
{
	struct target_count *count = bpf_map_lookup_elem(&counts, &at);
	if (!count)
		return;
	count->packets++;
	count->bytes += ctx->data_end - ctx->data;
	if (age == AGE_OLD)
		count->old_packets++;
	else if (age == AGE_AGING)
		count->aging_packets++;
	count->replies += reply;
}
