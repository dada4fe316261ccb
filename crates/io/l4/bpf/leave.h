/* How a packet leaves: by which interface, with whose addresses. A server's place is known; the way to a
 * client is the operator's one next hop, that of the kernel's default route as the daemon last saw it
 * (`struct way`), what the kernel's routes lately answered for this client (hops.h), or what they answer for
 * this packet (bpf_fib_lookup, some 130 ns). A way holds for a few seconds, and the daemon renews it: without
 * one the kernel's routes are asked. */
#pragma once
#include "choose.h"
#include "hops.h"

INLINE const __u32 *source_of(const void *ip, const int family)
{
	return family == 4 ? &((const struct ipv4 *)ip)->source : ((const struct ipv6 *)ip)->source;
}

INLINE const __u32 *destination_of(const void *ip, const int family)
{
	return family == 4 ? &((const struct ipv4 *)ip)->destination
			   : ((const struct ipv6 *)ip)->destination;
}

INLINE void count_reason(__u32 vip_number, __u32 why)
{
	__u32 at = vip_number * REASONS + why;
	__u64 *count = bpf_map_lookup_elem(&reasons, &at);
	if (count && !dry_run)
		(*count)++;
}

/* What belongs to no VIP is counted in the last row. */
INLINE void count_stray(__u32 why)
{
	count_reason(max_vips, why);
}

/* Both addresses lie in a map as they do in a packet: one wide store and a short one. */
INLINE void write_addresses(struct ethernet *eth, const __u8 *both)
{
	store64(eth, load64(both));
	store32(eth->from + 2, load32(both + 8));
}

/* The place of an interface in `ports`; MAX_PORTS: it is not configured. Few are, and they come first. */
INLINE __u32 port_of(__u32 ifindex)
{
	for (__u32 at = 0; at < MAX_PORTS; at++) {
		__u32 key = at, *held = bpf_map_lookup_elem(&ports, &key);
		if (held && *held == ifindex)
			return at;
	}
	return MAX_PORTS;
}

/* The same, where packets may be sent that did not come by it. */
INLINE __u32 open_port_of(__u32 ifindex)
{
	__u32 port = port_of(ifindex), *flags = bpf_map_lookup_elem(&turns_back, &port);
	return flags && !(*flags & PORT_SHUT) ? port : MAX_PORTS;
}

INLINE int leave_by(struct xdp_md *ctx, __u32 port, __u32 ifindex, __u32 hairpin_tx)
{
	if (hairpin_tx && ctx->ingress_ifindex == ifindex)
		return XDP_TX;
	/* Its addresses are another machine's by now: nothing for the kernel. */
	return bpf_redirect_map(&ports, port, XDP_DROP);
}

INLINE __u8 *hops_of(void *ip, const int family)
{
	return family == 4 ? &((struct ipv4 *)ip)->ttl : &((struct ipv6 *)ip)->hop_limit;
}

INLINE void count_hop(void *ip, const int family)
{
	if (family == 4)
		fix_checksum(&((struct ipv4 *)ip)->checksum, bpf_htons(0x0100), 0);
	(*hops_of(ip, family))--;
}

/* Whether a way holds for a packet of so many bytes, without the Ethernet header. */
INLINE int leads(const struct way *way, const void *ip, __u64 bytes, __u64 now, const int family)
{
	const __u32 *client = destination_of(ip, family);
	__u64 to = family == 4 ? *client : load64(client);
	if (UNLIKELY(now >= way->until_ms || bytes > way->mtu))
		return 0;
	for (__u32 at = 0; at < MAX_ASKED && at < way->asked_count; at++)
		if (UNLIKELY((to & way->asked[at].mask) == way->asked[at].prefix))
			return 0;
	return 1;
}

INLINE int by_way(struct ethernet *eth, struct xdp_md *ctx, const struct way *way)
{
	write_addresses(eth, way->mac);
	return leave_by(ctx, way->port, way->ifindex, way->hairpin_tx);
}

/* Sends a reply of one family by the way, where it holds, or by the hop that is remembered; -1: neither. */
INLINE int by_known(struct xdp_md *ctx, const struct way *way, struct ethernet *eth, void *end,
		    __u64 now, const int family)
{
	void *ip = eth + 1;
	const __u32 *client = destination_of(ip, family);
	__u64 bytes = end - ip;
	if (LIKELY(leads(way, ip, bytes, now, family))) {
		count_hop(ip, family);
		return by_way(eth, ctx, way);
	}
	__u64 tag = hop_tag(way, now, family);
	struct hop *hop = tag ? hop_at(client, family) : NULL;
	if (!hop || !is_hop_to(hop, tag, client, family) || bytes > hop->mtu)
		return -1;
	count_hop(ip, family);
	write_addresses(eth, hop->mac);
	return bpf_redirect_map(&ports, hop->port, XDP_DROP);
}

/* Sends a reply of one family by what is known; else where the kernel's routes lead, by a configured interface. */
INLINE int by_routes(struct xdp_md *ctx, const struct way *way, struct ethernet *eth, void *end,
		     __u32 vip_number, const int family)
{
	struct bpf_fib_lookup fib = {.l4_protocol = IPPROTO_TCP, .ifindex = ctx->ingress_ifindex};
	int known = by_known(ctx, way, eth, end, now_ms(), family);
	if (known >= 0)
		return known;
	if (family == 4) {
		struct ipv4 *ip = (void *)(eth + 1);
		fib.family = 2; /* AF_INET */
		fib.tot_len = bpf_ntohs(ip->length);
		fib.tos = ip->tos;
		fib.ipv4_src = ip->source;
		fib.ipv4_dst = ip->destination;
	} else {
		struct ipv6 *ip = (void *)(eth + 1);
		fib.family = 10; /* AF_INET6 */
		fib.tot_len = bpf_ntohs(ip->length) + IPV6_BYTES;
		__builtin_memcpy(fib.ipv6_src, ip->source, 16);
		__builtin_memcpy(fib.ipv6_dst, ip->destination, 16);
	}
	count_reason(vip_number, REASON_ROUTE_ASKED);
	__u64 tag = hop_tag(way, now_ms(), family);
	__u32 port = MAX_PORTS;
	if (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) == BPF_FIB_LKUP_RET_SUCCESS)
		port = open_port_of(fib.ifindex);
	if (port == MAX_PORTS) {
		count_reason(vip_number, REASON_NO_ROUTE);
		return XDP_PASS;
	}
	remember_hop(&fib, tag, destination_of(eth + 1, family), port, family);
	__builtin_memcpy(eth->to, fib.dmac, 6);
	__builtin_memcpy(eth->from, fib.smac, 6);
	count_hop(eth + 1, family);
	return bpf_redirect_map(&ports, port, XDP_PASS);
}

/* The rest is the kernel's to send or to answer: many drivers drop what is redirected to an interface without
 * XDP. Also counts the hop, as a router does. */
GLOBAL int to_client(struct xdp_md *ctx, __u32 vip_number)
{
	__u32 zero = 0;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	struct ethernet *eth = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	if (!c || (void *)(eth + 1) > end)
		return XDP_PASS;
	if (eth->type == ETH_IPV4 && (void *)(eth + 1) + sizeof(struct ipv4) <= end)
		return by_routes(ctx, &c->ways[0], eth, end, vip_number, 4);
	if (eth->type == ETH_IPV6 && (void *)(eth + 1) + sizeof(struct ipv6) <= end)
		return by_routes(ctx, &c->ways[1], eth, end, vip_number, 6);
	return XDP_PASS;
}
