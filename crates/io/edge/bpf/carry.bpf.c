/* Carries the flows of a table to the one of another size that takes its place. Run by the daemon
 * (BPF_PROG_TEST_RUN), for packets of new flows wait for it: a walk by system calls takes ten times as long. */
#include "forwarder.h"

FLOWS(old_flows4, key4, flow4);
FLOWS(old_flows6, key6, flow6);

/* In and out: in the first bytes of the packet of the run. */
struct carry {
	__u32 switched; /* packets go by the new table already: what it says of a flow counts */
	__u32 carried;	/* that were not there yet */
	__u32 refused;	/* for which there was no room */
};

/* A flow that both tables have: what only the old one has noted. */
INLINE void merge(struct flow *to, const struct flow *from, const int words)
{
	__u32 *peer = (void *)(to + 1);
	const __u32 *noted = (const void *)(from + 1);
	if ((__s32)(from->seen_s - to->seen_s) > 0)
		to->seen_s = from->seen_s;
	if ((from->signs & SIGN_PEER) && !(to->signs & SIGN_PEER)) {
#pragma unroll
		for (int i = 0; i < words; i++)
			peer[i] = noted[i];
	}
	to->signs |= from->signs;
}

INLINE void carry_flow(void *table, const void *key, struct flow *from, struct carry *c, const int words)
{
	struct flow *to = bpf_map_lookup_elem(table, key);
	if (to && to->target == from->target) {
		merge(to, from, words);
		return;
	}
	if (to && c->switched)
		return;
	if (bpf_map_update_elem(table, key, from, BPF_ANY))
		c->refused++;
	else if (!to)
		c->carried++;
}

static long carry4(void *map __attribute__((unused)), const struct key4 *key, struct flow4 *value, struct carry *c)
{
	struct key4 own = *key;
	struct flow4 flow = *value;
	carry_flow(&flows4, &own, &flow.flow, c, 4);
	return 0;
}

static long carry6(void *map __attribute__((unused)), const struct key6 *key, struct flow6 *value, struct carry *c)
{
	struct key6 own = *key;
	struct flow6 flow = *value;
	carry_flow(&flows6, &own, &flow.flow, c, 10);
	return 0;
}

SEC("xdp") int carry(struct xdp_md *ctx)
{
	struct carry *asked = (void *)(long)ctx->data;
	if ((void *)(asked + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	struct carry c = {.switched = asked->switched};
	bpf_for_each_map_elem(&old_flows4, carry4, &c, 0);
	bpf_for_each_map_elem(&old_flows6, carry6, &c, 0);
	asked = (void *)(long)ctx->data;
	if ((void *)(asked + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	*asked = c;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
