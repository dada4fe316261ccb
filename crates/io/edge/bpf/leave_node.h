/* Out of a node: back through the forwarder where a function rewrote the packet, else straight on. */
#pragma once
#include "node.h"
#include "routes.h"

/* The node's own interface may be asked for by the kernel, which then finds the neighbour. */
INLINE int by_kernel(struct xdp_md *ctx, const struct node_config *c)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	__builtin_memcpy(eth->to, c->mac, 6);
	__builtin_memcpy(eth->from, c->forwarder_mac, 6);
	node_drop(NODE_ROUTE_ASKED);
	return XDP_PASS;
}

INLINE void write_outer(struct wrap *wrap, const struct node_config *c, __u32 inner_bytes, __be16 type,
			__u32 core, __u32 service, __u32 flags, __u32 hash)
{
	struct ethernet *eth = (void *)wrap;
	struct ipv4 *ip = (void *)(eth + 1);
	struct udp *udp = (void *)(ip + 1);
	struct vxlan *vxlan = (void *)(udp + 1);
	struct ethernet *inner = (void *)(vxlan + 1);
	__u16 bytes = inner_bytes + UDP_BYTES + 8;
	__builtin_memcpy(eth->to, c->forwarder_mac, 6);
	__builtin_memcpy(eth->from, c->mac, 6);
	eth->type = ETH_IPV4;
	*ip = (struct ipv4){.version_ihl = 0x45,
			    .length = bpf_htons(bytes + IPV4_BYTES),
			    .fragment = bpf_htons(0x4000),
			    .ttl = 64,
			    .protocol = IPPROTO_UDP,
			    .source = c->address,
			    .destination = c->forwarder};
	ip->checksum = header_checksum(ip);
	*udp = (struct udp){.source = bpf_htons(0xc000 | ((hash ^ hash >> 16) & 0x3fff)),
			    .destination = VXLAN_PORT,
			    .length = bpf_htons(bytes)};
	vxlan->flags = VXLAN_FLAGS;
	vxlan->vni = c->vni;
	struct ids ids = {IDS_FIRST, flags, c->server, core, service, IDS_LAST};
	__builtin_memcpy(inner->to, c->forwarder_mac, 6);
	__builtin_memcpy(inner->from, &ids, 6);
	inner->type = type;
}

/* Wrapped, with what it came in by in front where it was rewritten. `key` has the family's words; NULL: it was
 * not rewritten. */
INLINE int wrap_back(struct xdp_md *ctx, const struct node_config *c, const __u32 *key, __u32 core,
		     __u32 service, __u32 flags)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	__be16 type = eth->type;
	__u32 more = OUTER_BYTES, hash = key ? key[0] ^ key[1] ^ key[2] : 0;
	if (key)
		more += type == ETH_IPV4 ? TEACH4_BYTES : TEACH6_BYTES;
	if (bpf_xdp_adjust_head(ctx, -(int)more))
		return XDP_DROP;
	struct wrap *wrap = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct teach *teach = (void *)(wrap + 1);
	__u32 *words = (void *)(teach + 1);
	if ((void *)(words) > end)
		return XDP_DROP;
	write_outer(wrap, c, end - (void *)wrap - OUTER_BYTES, key ? ETH_TEACH : type, core, service, flags,
		    hash * 0x9e3779b1);
	if (key) {
		teach->type = type;
		teach->pad = 0;
		if ((void *)(words + 4) > end)
			return XDP_DROP;
#pragma unroll
		for (int i = 0; i < 4; i++)
			words[i] = key[i];
		if (type == ETH_IPV6) {
			if ((void *)(words + 10) > end)
				return XDP_DROP;
#pragma unroll
			for (int i = 4; i < 10; i++)
				words[i] = key[i];
		}
	}
	return bpf_redirect_map(&uplinks, c->uplink_port, XDP_DROP);
}

INLINE __u32 uplink_of(__u32 ifindex)
{
	for (__u32 at = 0; at < MAX_UPLINKS; at++) {
		__u32 key = at, *held = bpf_map_lookup_elem(&uplinks, &key);
		if (held && *held == ifindex)
			return at;
	}
	return MAX_UPLINKS;
}

/* Straight to the destination by the node's own routes. */
INLINE int straight(struct xdp_md *ctx, const struct node_config *c, __u32 core, __u32 service, __u32 flags)
{
	struct bpf_fib_lookup fib = {.ifindex = c->uplink};
	long found = route(ctx, &fib);
	struct ethernet *eth = (void *)(long)ctx->data;
	if (found < 0 || (void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	if (found != BPF_FIB_LKUP_RET_SUCCESS)
		return by_kernel(ctx, c);
	/* The forwarder would take it for a packet of the flow that comes from outside, and send it here again. */
	if (!__builtin_memcmp(fib.dmac, c->forwarder_mac, 6)) {
		node_drop(NODE_FORWARDER_ROUTE);
		return wrap_back(ctx, c, NULL, core, service, flags | FLAG_RETURN);
	}
	__u32 port = uplink_of(fib.ifindex);
	if (port == MAX_UPLINKS)
		return by_kernel(ctx, c);
	__builtin_memcpy(eth->to, fib.dmac, 6);
	__builtin_memcpy(eth->from, fib.smac, 6);
	return bpf_redirect_map(&uplinks, port, XDP_DROP);
}

/* One hop less, as a router counts; 0: it was the last. */
INLINE int count_hop(struct ethernet *eth, void *end)
{
	struct ipv4 *ip = (void *)(eth + 1);
	struct ipv6 *ip6 = (void *)(eth + 1);
	if (eth->type == ETH_IPV4) {
		if ((void *)(ip + 1) > end || ip->ttl <= 1)
			return 0;
		fix_checksum(&ip->checksum, bpf_htons(0x0100), 0);
		ip->ttl--;
		return 1;
	}
	if ((void *)(ip6 + 1) > end || ip6->hop_limit <= 1)
		return 0;
	ip6->hop_limit--;
	return 1;
}

INLINE int is_same_key(const __u32 *one, const __u32 *other, __be16 type)
{
	__u32 differs = (one[0] ^ other[0]) | (one[1] ^ other[1]) | (one[2] ^ other[2]) | (one[3] ^ other[3]);
	if (type == ETH_IPV6)
#pragma unroll
		for (int i = 4; i < 10; i++)
			differs |= one[i] ^ other[i];
	return !differs;
}
