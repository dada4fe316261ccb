/* Where the kernel's routes lead a packet. */
#pragma once
#include "wire.h"

/* Asks the routes for the packet of `ctx`, `fib->ifindex` being the interface that it is asked for by; a code of
 * BPF_FIB_LKUP_RET_*, or less than 0 where the packet is too short. */
INLINE long route(struct xdp_md *ctx, struct bpf_fib_lookup *fib)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ipv4 *ip = (void *)(eth + 1);
	struct ipv6 *ip6 = (void *)(eth + 1);
	if ((void *)(ip + 1) > end)
		return -1;
	if (eth->type == ETH_IPV4) {
		fib->family = 2; /* AF_INET */
		fib->tot_len = bpf_ntohs(ip->length);
		fib->tos = ip->tos;
		fib->l4_protocol = ip->protocol;
		fib->ipv4_src = ip->source;
		fib->ipv4_dst = ip->destination;
	} else {
		if ((void *)(ip6 + 1) > end)
			return -1;
		fib->family = 10; /* AF_INET6 */
		fib->tot_len = bpf_ntohs(ip6->length) + IPV6_BYTES;
		fib->l4_protocol = ip6->next;
		__builtin_memcpy(fib->ipv6_src, ip6->source, 16);
		__builtin_memcpy(fib->ipv6_dst, ip6->destination, 16);
	}
	return bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
}
