/* Removes flows that are idle, both entries of one together, and counts what is left. Run by the daemon
 * (BPF_PROG_TEST_RUN): a walk in the kernel costs a tenth of one by system calls. */
#pragma once
#include "forwarder.h"

/* A flow whose ends have closed it is kept for stray packets. */
#define CLOSING_S 10

/* In and out: in the first bytes of the packet of the run. */
struct sweep {
	__u32 idle_s;	    /* flows with packets both ways */
	__u32 unanswered_s; /* with packets one way alone */
	__u32 removed;
	__u32 entries4, entries6; /* left */
	__u32 answered;
};

struct sweep_context {
	struct sweep sweep;
	__u32 now_s;
};

INLINE int has_ended(const struct flow *flow, const struct flow *peer, const struct sweep_context *c)
{
	__u32 signs = flow->signs | (peer ? peer->signs : 0);
	__u32 seen = flow->seen_s;
	if (peer && (__s32)(peer->seen_s - seen) > 0)
		seen = peer->seen_s;
	__u32 since = c->now_s - seen;
	__u32 limit = signs & SIGN_ANSWERED ? c->sweep.idle_s : c->sweep.unanswered_s;
	int closed = (signs & SIGN_RESET) || (signs & (SIGN_FIN | SIGN_FIN_BACK)) == (SIGN_FIN | SIGN_FIN_BACK);
	if (closed && limit > CLOSING_S)
		limit = CLOSING_S;
	/* What was seen while the walk was under way. */
	return (__s32)since > 0 && since > limit;
}

INLINE void end_of(struct flow *flow, struct sweep_context *c)
{
	c->sweep.removed++;
	count_closed(flow);
}

/* Whether the peer of a flow still holds it for its own: a NAT may have given the port to another one. */
INLINE int is_mutual(const __u32 *key, const __u32 *back, const int words)
{
	__u32 differs = 0;
#pragma unroll
	for (int i = 0; i < words; i++)
		differs |= key[i] ^ back[i];
	return !differs;
}

static long sweep4(void *map __attribute__((unused)), const struct key4 *key, struct flow4 *value, struct sweep_context *c)
{
	struct key4 peer_key = value->peer, own = *key;
	struct flow4 *peer = value->flow.signs & SIGN_PEER ? bpf_map_lookup_elem(&flows4, &peer_key) : NULL;
	if (peer && !is_mutual((void *)&own, (void *)&peer->peer, 4))
		peer = NULL;
	if (!has_ended(&value->flow, peer ? &peer->flow : NULL, c)) {
		c->sweep.entries4++;
		c->sweep.answered += !!((value->flow.signs | (peer ? peer->flow.signs : 0)) & SIGN_ANSWERED);
		return 0;
	}
	end_of(&value->flow, c);
	if (peer)
		bpf_map_delete_elem(&flows4, &peer_key);
	bpf_map_delete_elem(&flows4, &own);
	return 0;
}

static long sweep6(void *map __attribute__((unused)), const struct key6 *key, struct flow6 *value, struct sweep_context *c)
{
	struct key6 peer_key = value->peer, own = *key;
	struct flow6 *peer = value->flow.signs & SIGN_PEER ? bpf_map_lookup_elem(&flows6, &peer_key) : NULL;
	if (peer && !is_mutual((void *)&own, (void *)&peer->peer, 10))
		peer = NULL;
	if (!has_ended(&value->flow, peer ? &peer->flow : NULL, c)) {
		c->sweep.entries6++;
		c->sweep.answered += !!((value->flow.signs | (peer ? peer->flow.signs : 0)) & SIGN_ANSWERED);
		return 0;
	}
	end_of(&value->flow, c);
	if (peer)
		bpf_map_delete_elem(&flows6, &peer_key);
	bpf_map_delete_elem(&flows6, &own);
	return 0;
}

SEC("xdp") int sweep(struct xdp_md *ctx)
{
	struct sweep_context c = {};
	struct sweep *sweep = (void *)(long)ctx->data;
	if ((void *)(sweep + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	c.sweep.idle_s = sweep->idle_s;
	c.sweep.unanswered_s = sweep->unanswered_s;
	c.now_s = now_seconds();
	bpf_for_each_map_elem(&flows4, sweep4, &c, 0);
	bpf_for_each_map_elem(&flows6, sweep6, &c, 0);
	sweep = (void *)(long)ctx->data;
	if ((void *)(sweep + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	*sweep = c.sweep;
	return XDP_PASS;
}

/* The program's clock, for whoever reads flows. */
SEC("xdp") int read_clock(struct xdp_md *ctx)
{
	__u64 *now = (void *)(long)ctx->data;
	if ((void *)(now + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	*now = now_ms();
	return XDP_PASS;
}
