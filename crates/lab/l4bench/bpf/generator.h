/* A packet generator for live-frame test runs (BPF_F_TEST_XDP_LIVE_FRAMES): each frame becomes another
 * flow's, with its cookie, and leaves by the interface it is said to have come in by. And its other end,
 * which counts what arrives. */
#pragma once
#include "flows.h"

/* Whatever a frame passed on its way wrote into it, and frames are used again: the head is written
 * whole every time. */
#define HEAD_WORDS 10

struct head {
	__u64 word[HEAD_WORDS];
};

struct arrived {
	__u64 packets;
	__u64 bytes;
};

MAP(head, BPF_MAP_TYPE_ARRAY, 1, struct head);
MAP(arrived, BPF_MAP_TYPE_PERCPU_ARRAY, 1, struct arrived);

INLINE int generate_v4(struct xdp_md *ctx, const int kind)
{
	__u32 zero = 0;
	struct ethernet *eth = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(eth + 1);
	struct head *h = bpf_map_lookup_elem(&head, &zero);
	__u64 *words = (void *)eth;
	if (!h || (void *)(words + HEAD_WORDS) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
#pragma unroll
	for (int i = 0; i < HEAD_WORDS; i++)
		words[i] = h->word[i];
	struct ipv4 was = *ip;
	if (prepare_v4(ctx, kind))
		return XDP_ABORTED;
	__u32 before = kind == REPLY ? was.destination : was.source;
	__u32 after = kind == REPLY ? ip->destination : ip->source;
	fix_checksum(&ip->checksum, before, after);
	fix_checksum(&ip->checksum, before >> 16, after >> 16);
	return XDP_TX;
}

INLINE int count_arrival(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct ethernet *eth = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(eth + 1);
	struct arrived *here = bpf_map_lookup_elem(&arrived, &zero);
	if (!here || (void *)(ip + 1) > (void *)(long)ctx->data_end ||
	    eth->type != bpf_htons(0x0800) || ip->protocol != IPPROTO_TCP)
		return XDP_PASS;
	here->packets++;
	here->bytes += ctx->data_end - ctx->data;
	return XDP_DROP;
}
