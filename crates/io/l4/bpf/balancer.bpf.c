/* The layer-4 balancer: one XDP program for both directions of every interface.
 *
 *   from a client   VIP by destination; server by the cookie in TSecr, which is put back to what the
 *                   server sent; MAC rewrite; redirect
 *   from a server   VIP by source; server by its MAC address; cookie into TSval; MAC rewrite; redirect
 *
 * The fast path costs no more than array look-ups, all inlined by the JIT, whatever the number of
 * connections, and all its fields are at known places. What is rare has functions of its own in slow.h. */
#include "slow.h"

/* NOP NOP TS in front, and no SYN: all segments of an established connection, those with selective
 * acknowledgments and the last ones, too. */
INLINE int is_straight(const struct tcp *tcp)
{
	return LIKELY(tcp->offset >= STRAIGHT_TCP_BYTES / 4 << 4 && !(tcp->flags & TCP_SYN) &&
		      *(const __u32 *)(tcp + 1) == NOP_NOP_TS);
}

INLINE int straight(struct packet *p, const int family)
{
	__u32 zero = 0;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	if (!c)
		return XDP_PASS;
	p->timestamps = (void *)p->tcp + TCP_BYTES + 2;
	return segment(p, c, family, 1);
}

INLINE int balance(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethernet *eth = data;
	struct ipv4 *v4 = (void *)(eth + 1);
	struct ipv6 *v6 = (void *)(eth + 1);
	struct packet p = {.ctx = ctx, .end = end, .eth = eth, .ip = eth + 1};
	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	if (eth->type == ETH_IPV4 && (void *)(v4 + 1) + STRAIGHT_TCP_BYTES <= end) {
		p.tcp = (void *)(v4 + 1);
		if (LIKELY(v4->version_ihl == 0x45 && is_whole_tcp(v4)) && is_straight(p.tcp))
			return straight(&p, 4);
		return v4->protocol == IPPROTO_ICMP ? icmp_v4(ctx) : slow_v4(ctx);
	}
	if (eth->type == ETH_IPV6 && (void *)(v6 + 1) + STRAIGHT_TCP_BYTES <= end) {
		p.tcp = (void *)(v6 + 1);
		if (LIKELY(v6->next == IPPROTO_TCP) && is_straight(p.tcp))
			return straight(&p, 6);
		return v6->next == NEXT_ICMPV6 ? icmp_v6(ctx) : slow_v6(ctx);
	}
	return other(ctx, eth->type);
}

SEC("xdp") int balancer(struct xdp_md *ctx)
{
	return balance(ctx);
}

/* Run by `plimsoll l4 where` and by the loader, never attached: writes now_ms() over the packet's first
 * eight bytes. */
SEC("xdp") int read_clock(struct xdp_md *ctx)
{
	__u64 *now = (void *)(long)ctx->data;
	if ((void *)(now + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	*now = now_ms();
	return XDP_PASS;
}

/* The kernel lends bpf_fib_lookup only to programs that are free under the GPL, too. */
char free_under[] SEC("license") = "Dual MIT/GPL";
