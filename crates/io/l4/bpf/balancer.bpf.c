/* The layer-4 balancer: one XDP program for both directions of every interface.
 *
 *   from a client   VIP by destination; server by the cookie in TSecr, which is put back to what the
 *                   server sent; MAC rewrite; redirect
 *   from a server   VIP by source; server by its MAC address; cookie into TSval; MAC rewrite; redirect
 *
 * The straight way costs no more than array look-ups, all inlined by the JIT, whatever the number of
 * connections. What is rare has functions of its own in slow.h. */
#include "icmp.h"
#include "slow.h"

INLINE int balance(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethernet *eth = data;
	struct packet p = {.ctx = ctx, .end = end, .eth = eth};
	__u32 zero = 0;
	if (data + ETH_BYTES + IPV4_BYTES + TCP_BYTES > end)
		return small(ctx);
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	if (!c)
		return XDP_PASS;

	if (eth->type == bpf_htons(0x0800)) {
		struct ipv4 *ip = data + ETH_BYTES;
		if (ip->version_ihl != 0x45 || ip->protocol != IPPROTO_TCP ||
		    (ip->fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET)))
			return ip->protocol == IPPROTO_ICMP ? icmp_v4(ctx) : slow_v4(ctx);
		p.tcp = (void *)(ip + 1);
		p.tcp_offset = ETH_BYTES + IPV4_BYTES;
		return tcp_v4(&p, c, ip);
	}
	if (eth->type == bpf_htons(0x86dd)) {
		struct ipv6 *ip = data + ETH_BYTES;
		if (data + ETH_BYTES + IPV6_BYTES + TCP_BYTES > end)
			return small(ctx);
		if (ip->next != IPPROTO_TCP)
			return ip->next == NEXT_ICMPV6 ? icmp_v6(ctx) : slow_v6(ctx);
		p.tcp = (void *)(ip + 1);
		p.tcp_offset = ETH_BYTES + IPV6_BYTES;
		return tcp_v6(&p, c, ip);
	}
	if (eth->type == bpf_htons(0x8100) || eth->type == bpf_htons(0x88a8))
		count_stray(REASON_VLAN);
	return XDP_PASS;
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
