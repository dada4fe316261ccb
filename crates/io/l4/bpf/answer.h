/* What the balancer answers itself, or ends: what is sent to a VIP's address and is no service's, and
 * segments of connections whose server is down. The kernel would send them on where its routes lead, which
 * is back to where they came from. */
#pragma once
#include "balancer.h"

#define ANSWER_HOPS 64
#define ICMP_ECHO 8
#define ICMP_ECHO_REPLY 0
#define ICMPV6_ECHO 128
#define ICMPV6_ECHO_REPLY 129
/* Router and neighbour solicitations and advertisements, redirects: the kernel's. */
#define ICMPV6_FIRST_OF_LINK 133
#define ICMPV6_LAST_OF_LINK 137
/* What Ethernet pads to. */
#define SHORTEST_FRAME 60

struct icmp_head {
	__u8 type, code;
	__sum16 checksum;
};

/* Back to who sent it, by the interface it came in by. */
GLOBAL int back(struct xdp_md *ctx)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	struct ethernet was = *eth;
	__builtin_memcpy(eth->to, was.from, 6);
	__builtin_memcpy(eth->from, was.to, 6);
	__u32 port = port_of(ctx->ingress_ifindex);
	__u32 *by_tx = bpf_map_lookup_elem(&turns_back, &port);
	if (!by_tx || *by_tx)
		return XDP_TX;
	return bpf_redirect_map(&ports, port, XDP_DROP);
}

/* Answers a ping: ends and type change, checksums with them. */
INLINE int echo_v4(struct xdp_md *ctx, struct ipv4 *ip, struct icmp_head *icmp)
{
	__u32 source = ip->source;
	__u16 hops = *(__u16 *)&ip->ttl;
	ip->source = ip->destination;
	ip->destination = source;
	ip->ttl = ANSWER_HOPS;
	fix_checksum(&ip->checksum, hops, *(__u16 *)&ip->ttl);
	icmp->type = ICMP_ECHO_REPLY;
	fix_checksum(&icmp->checksum, ICMP_ECHO, ICMP_ECHO_REPLY);
	count_stray(REASON_ECHO);
	return back(ctx);
}

INLINE int echo_v6(struct xdp_md *ctx, struct ipv6 *ip, struct icmp_head *icmp)
{
	for (int i = 0; i < 4; i++) {
		__u32 source = ip->source[i];
		ip->source[i] = ip->destination[i];
		ip->destination[i] = source;
	}
	ip->hop_limit = ANSWER_HOPS;
	icmp->type = ICMPV6_ECHO_REPLY;
	fix_checksum(&icmp->checksum, ICMPV6_ECHO, ICMPV6_ECHO_REPLY);
	count_stray(REASON_ECHO);
	return back(ctx);
}

INLINE int is_served(const struct address_key *key)
{
	return bpf_map_lookup_elem(&addresses, key) != NULL;
}

INLINE int drop(__u32 why)
{
	if (why < REASONS)
		count_stray(why);
	return XDP_DROP;
}

INLINE int unserved_v4(struct xdp_md *ctx, __u32 why)
{
	struct ipv4 *ip = (void *)(long)ctx->data + ETH_BYTES;
	void *end = (void *)(long)ctx->data_end;
	struct icmp_head *icmp = (void *)(ip + 1);
	if ((void *)(ip + 1) > end)
		return XDP_PASS;
	struct address_key key = {.address = {ip->destination}, .family = 4};
	if (!is_served(&key))
		return XDP_PASS;
	if (ip->version_ihl == 0x45 && ip->protocol == IPPROTO_ICMP && (void *)(icmp + 1) <= end &&
	    !(ip->fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET)) && icmp->type == ICMP_ECHO && !icmp->code)
		return echo_v4(ctx, ip, icmp);
	return drop(why);
}

INLINE int unserved_v6(struct xdp_md *ctx, __u32 why)
{
	struct ipv6 *ip = (void *)(long)ctx->data + ETH_BYTES;
	void *end = (void *)(long)ctx->data_end;
	struct icmp_head *icmp = (void *)(ip + 1);
	struct address_key key = {.family = 6};
	if ((void *)(ip + 1) > end)
		return XDP_PASS;
	__builtin_memcpy(key.address, ip->destination, 16);
	if (!is_served(&key))
		return XDP_PASS;
	if (ip->next == NEXT_ICMPV6 && (void *)(icmp + 1) <= end) {
		if (icmp->type >= ICMPV6_FIRST_OF_LINK && icmp->type <= ICMPV6_LAST_OF_LINK)
			return XDP_PASS;
		if (icmp->type == ICMPV6_ECHO && !icmp->code)
			return echo_v6(ctx, ip, icmp);
	}
	return drop(why);
}

/* What belongs to no service: the kernel's, but for what is sent to a VIP's address, which is no address of
 * this machine's. `why` it is dropped, unless that is counted already: REASONS. */
GLOBAL int unserved(struct xdp_md *ctx, __u32 why)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_PASS;
	if (eth->type == ETH_IPV4)
		return unserved_v4(ctx, why);
	if (eth->type == ETH_IPV6)
		return unserved_v6(ctx, why);
	return XDP_PASS;
}

/* What a segment's checksum covers, by either family: zeros do not count. */
struct covered {
	__u32 source[4];
	__u32 destination[4];
	__be32 bytes;
	__be32 protocol;
	struct tcp tcp;
};

/* The Internet checksum of words on the stack. */
INLINE __sum16 sum_of(void *words, __u32 bytes)
{
	__u32 sum = bpf_csum_diff(NULL, 0, words, bytes, 0);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Gives a packet this length: the header of a RST, and what a frame must have. */
INLINE int resize(struct xdp_md *ctx, __u32 bytes)
{
	__u32 length = ctx->data_end - ctx->data;
	return bpf_xdp_adjust_tail(ctx, (int)bytes - (int)length);
}

INLINE int write_reset_v4(struct xdp_md *ctx, const struct covered *s)
{
	struct ipv4 ip = {
		.version_ihl = 0x45,
		.length = bpf_htons(IPV4_BYTES + TCP_BYTES),
		.fragment = bpf_htons(0x4000),
		.ttl = ANSWER_HOPS,
		.protocol = IPPROTO_TCP,
		.source = s->source[0],
		.destination = s->destination[0],
	};
	ip.checksum = sum_of(&ip, sizeof(ip));
	if (resize(ctx, SHORTEST_FRAME))
		return XDP_DROP;
	__u8 *at = (void *)(long)ctx->data + ETH_BYTES;
	if (at + SHORTEST_FRAME - ETH_BYTES > (__u8 *)(long)ctx->data_end)
		return XDP_DROP;
	__builtin_memcpy(at, &ip, sizeof(ip));
	__builtin_memcpy(at + IPV4_BYTES, &s->tcp, TCP_BYTES);
	__builtin_memset(at + IPV4_BYTES + TCP_BYTES, 0, SHORTEST_FRAME - ETH_BYTES - IPV4_BYTES - TCP_BYTES);
	return back(ctx);
}

INLINE int write_reset_v6(struct xdp_md *ctx, const struct covered *s)
{
	struct ipv6 ip = {
		.version_class_flow = bpf_htonl(6 << 28),
		.length = bpf_htons(TCP_BYTES),
		.next = IPPROTO_TCP,
		.hop_limit = ANSWER_HOPS,
	};
	__builtin_memcpy(ip.source, s->source, 16);
	__builtin_memcpy(ip.destination, s->destination, 16);
	if (resize(ctx, ETH_BYTES + IPV6_BYTES + TCP_BYTES))
		return XDP_DROP;
	__u8 *at = (void *)(long)ctx->data + ETH_BYTES;
	if (at + IPV6_BYTES + TCP_BYTES > (__u8 *)(long)ctx->data_end)
		return XDP_DROP;
	__builtin_memcpy(at, &ip, sizeof(ip));
	__builtin_memcpy(at + IPV6_BYTES, &s->tcp, TCP_BYTES);
	return back(ctx);
}

/* Ends a connection whose server is down, as that server's kernel would (RFC 9293, 3.5.2): a RST at the number
 * that the client expects next. A RST is not answered; nor is what acknowledges nothing. */
GLOBAL int reset(struct xdp_md *ctx, __u32 tcp_offset)
{
	struct covered s = {.bytes = bpf_htonl(TCP_BYTES), .protocol = bpf_htonl(IPPROTO_TCP)};
	struct ethernet *eth = (void *)(long)ctx->data;
	struct ipv4 *v4 = (void *)(eth + 1);
	struct ipv6 *v6 = (void *)(eth + 1);
	void *end = (void *)(long)ctx->data_end;
	struct tcp was;
	if ((void *)(v4 + 1) > end || bpf_xdp_load_bytes(ctx, tcp_offset, &was, sizeof(was)))
		return XDP_DROP;
	if ((was.flags & (TCP_RST | TCP_ACK)) != TCP_ACK)
		return XDP_DROP;
	int is_v4 = eth->type == ETH_IPV4;
	if (is_v4) {
		s.source[0] = v4->destination;
		s.destination[0] = v4->source;
	} else {
		if ((void *)(v6 + 1) > end)
			return XDP_DROP;
		__builtin_memcpy(s.source, v6->destination, 16);
		__builtin_memcpy(s.destination, v6->source, 16);
	}
	s.tcp.source = was.destination;
	s.tcp.destination = was.source;
	s.tcp.sequence = was.acknowledgment;
	s.tcp.offset = TCP_BYTES / 4 << 4;
	s.tcp.flags = TCP_RST;
	s.tcp.checksum = sum_of(&s, sizeof(s));
	return is_v4 ? write_reset_v4(ctx, &s) : write_reset_v6(ctx, &s);
}
