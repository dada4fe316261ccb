/* Path MTU: the sender of a packet too long for what is put in front gets an ICMP error (RFC 1191, RFC 8201). */
#pragma once
#include "encap.h"

#define QUOTE_BYTES 64
#define TOLD_HOPS 64
#define IPV4_DONT_FRAGMENT bpf_htons(0x4000)

struct too_big4 {
	struct ethernet eth;
	struct ipv4 ip;
	__u8 type, code;
	__sum16 checksum;
	__be16 unused, mtu;
	__u8 quote[QUOTE_BYTES];
} __attribute__((packed));

struct too_big6 {
	struct ethernet eth;
	struct ipv6 ip;
	__u8 type, code;
	__sum16 checksum;
	__u32 mtu;
	__u8 quote[QUOTE_BYTES];
} __attribute__((packed));

INLINE __sum16 folded(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

INLINE __u64 words(const void *at, const int bytes)
{
	__u64 sum = 0;
#pragma unroll
	for (int i = 0; i < bytes; i += 2)
		sum += *(const __u16 *)(at + i);
	return sum;
}

INLINE void turn_back(struct ethernet *eth)
{
	__u8 was[6];
	__builtin_memcpy(was, eth->to, 6);
	__builtin_memcpy(eth->to, eth->from, 6);
	__builtin_memcpy(eth->from, was, 6);
}

/* The interface that it came by: few are configured. */
INLINE __u32 port_of(__u32 ifindex)
{
	for (__u32 at = 0; at < MAX_PORTS; at++) {
		__u32 key = at, *held = bpf_map_lookup_elem(&ports, &key);
		if (held && *held == ifindex)
			return at;
	}
	return MAX_PORTS;
}

/* Both are sent by the destination's address: the forwarder may have none that the sender's network routes, and
 * senders look at what is quoted alone. */
INLINE int tell4(struct xdp_md *ctx, __u32 mtu)
{
	const int more = sizeof(struct too_big4) - QUOTE_BYTES - ETH_BYTES;
	if (bpf_xdp_adjust_tail(ctx, (int)(ETH_BYTES + QUOTE_BYTES) - (int)(ctx->data_end - ctx->data)) ||
	    bpf_xdp_adjust_head(ctx, -more))
		return XDP_DROP;
	struct too_big4 *told = (void *)(long)ctx->data;
	if ((void *)(told + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	__builtin_memcpy(&told->eth, (void *)told + more, ETH_BYTES);
	struct ipv4 *was = (void *)told->quote;
	told->ip = (struct ipv4){.version_ihl = 0x45,
				 .length = bpf_htons(sizeof(*told) - ETH_BYTES),
				 .ttl = TOLD_HOPS,
				 .protocol = IPPROTO_ICMP,
				 .source = was->destination,
				 .destination = was->source};
	told->ip.checksum = header_checksum((void *)told + ETH_BYTES);
	told->type = ICMP_UNREACHABLE;
	told->code = 4;
	told->checksum = 0;
	told->unused = 0;
	told->mtu = bpf_htons(mtu);
	told->checksum = folded(words((void *)told + ETH_BYTES + IPV4_BYTES, 8 + QUOTE_BYTES));
	turn_back((void *)told);
	return bpf_redirect_map(&ports, port_of(ctx->ingress_ifindex), XDP_DROP);
}

INLINE int tell6(struct xdp_md *ctx, __u32 mtu)
{
	const int more = sizeof(struct too_big6) - QUOTE_BYTES - ETH_BYTES;
	if (bpf_xdp_adjust_tail(ctx, (int)(ETH_BYTES + QUOTE_BYTES) - (int)(ctx->data_end - ctx->data)) ||
	    bpf_xdp_adjust_head(ctx, -more))
		return XDP_DROP;
	struct too_big6 *told = (void *)(long)ctx->data;
	if ((void *)(told + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	__builtin_memcpy(&told->eth, (void *)told + more, ETH_BYTES);
	struct ipv6 *was = (void *)told->quote;
	told->ip.version_class_flow = bpf_htonl(6 << 28);
	told->ip.length = bpf_htons(8 + QUOTE_BYTES);
	told->ip.next = NEXT_ICMPV6;
	told->ip.hop_limit = TOLD_HOPS;
	__builtin_memcpy(told->ip.source, was->destination, 16);
	__builtin_memcpy(told->ip.destination, was->source, 16);
	told->type = 2;
	told->code = 0;
	told->checksum = 0;
	told->mtu = bpf_htonl(mtu);
	__u64 sum = words((void *)told + ETH_BYTES + 8, 32) + bpf_htons(8 + QUOTE_BYTES) + bpf_htons(NEXT_ICMPV6);
	told->checksum = folded(sum + words((void *)told + ETH_BYTES + IPV6_BYTES, 8 + QUOTE_BYTES));
	turn_back((void *)told);
	return bpf_redirect_map(&ports, port_of(ctx->ingress_ifindex), XDP_DROP);
}

INLINE int does_not_fit(const struct xdp_md *ctx, const struct target *target, const int family)
{
	__u32 bytes = ctx->data_end - ctx->data - ETH_BYTES;
	return bytes + (family == 4 ? GROWS4 : GROWS6) > target->mtu;
}

/* A packet that does not fit: IPv4 without "don't fragment" is dropped alone, for XDP does not fragment. */
static __noinline int too_big(struct xdp_md *ctx, __u32 mtu)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(eth + 1);
	count_reason(REASON_TOO_BIG);
	if ((void *)(eth + 1) + IPV6_BYTES > (void *)(long)ctx->data_end)
		return XDP_DROP;
	if (eth->type == ETH_IPV6)
		return tell6(ctx, mtu - GROWS6);
	if (ip->fragment & IPV4_DONT_FRAGMENT)
		return tell4(ctx, mtu - GROWS4);
	return XDP_DROP;
}
