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

/* Back to the sender, by the interface it came in by. */
INLINE int back(struct xdp_md *ctx)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	__u64 to = load64(eth->to);
	__u32 from = load32(eth->from), from_end = *(__u16 *)(eth->from + 4);
	store32(eth->to, from);
	*(__u16 *)(eth->to + 4) = from_end;
	store32(eth->from, to);
	*(__u16 *)(eth->from + 4) = to >> 32;
	__u32 port = port_of(ctx->ingress_ifindex);
	__u32 *flags = bpf_map_lookup_elem(&turns_back, &port);
	if (!flags || *flags & PORT_TURNS_BACK)
		return XDP_TX;
	return bpf_redirect_map(&ports, port, XDP_DROP);
}

INLINE void swap32(__u32 *one, __u32 *other)
{
	__u32 was = *one;
	*one = *other;
	*other = was;
}

/* Answers a ping: ends and type change, checksums with them. */
INLINE int echo_v4(struct xdp_md *ctx, struct ipv4 *ip, struct icmp_head *icmp)
{
	__u16 hops = *(__u16 *)&ip->ttl;
	swap32(&ip->source, &ip->destination);
	ip->ttl = ANSWER_HOPS;
	fix_checksum(&ip->checksum, hops, *(__u16 *)&ip->ttl);
	icmp->type = ICMP_ECHO_REPLY;
	fix_checksum(&icmp->checksum, ICMP_ECHO, ICMP_ECHO_REPLY);
	count_stray(REASON_ECHO);
	return back(ctx);
}

INLINE int echo_v6(struct xdp_md *ctx, struct ipv6 *ip, struct icmp_head *icmp)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
		swap32(&ip->source[i], &ip->destination[i]);
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

/* Words of a header, added up for the Internet checksum; they may be added to others. */
INLINE __u64 sum_of(const void *header, const int bytes)
{
	__u64 sum = 0;
#pragma unroll
	for (int at = 0; at < bytes; at += 4)
		sum += load32(header + at);
	return sum;
}

INLINE __sum16 checksum_of(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Gives a packet this length. */
INLINE int resize(struct xdp_md *ctx, __u32 bytes)
{
	__u32 length = ctx->data_end - ctx->data;
	return bpf_xdp_adjust_tail(ctx, (int)bytes - (int)length);
}

/* `addresses` are the sum of both. */
INLINE void write_reset(struct tcp *tcp, const struct tcp *was, __u64 addresses)
{
	tcp->source = was->destination;
	tcp->destination = was->source;
	tcp->sequence = was->acknowledgment;
	tcp->acknowledgment = 0;
	tcp->offset = TCP_BYTES / 4 << 4;
	tcp->flags = TCP_RST;
	tcp->window = 0;
	tcp->checksum = 0;
	tcp->urgent = 0;
	tcp->checksum = checksum_of(addresses + bpf_htonl(TCP_BYTES) + bpf_htonl(IPPROTO_TCP) +
				    sum_of(tcp, TCP_BYTES));
}

INLINE int reset_v4(struct xdp_md *ctx, const struct tcp *was)
{
	if (resize(ctx, SHORTEST_FRAME))
		return XDP_DROP;
	struct ipv4 *ip = (void *)(long)ctx->data + ETH_BYTES;
	struct tcp *tcp = (void *)(ip + 1);
	__u8 *rest = (void *)(tcp + 1);
	if (rest + 6 > (__u8 *)(long)ctx->data_end)
		return XDP_DROP;
	ip->version_ihl = 0x45;
	ip->tos = 0;
	ip->length = bpf_htons(IPV4_BYTES + TCP_BYTES);
	ip->id = 0;
	ip->fragment = bpf_htons(0x4000);
	ip->ttl = ANSWER_HOPS;
	ip->protocol = IPPROTO_TCP;
	ip->checksum = 0;
	swap32(&ip->source, &ip->destination);
	ip->checksum = checksum_of(sum_of(ip, IPV4_BYTES));
	write_reset(tcp, was, sum_of(&ip->source, 8));
	store32(rest, 0);
	*(__u16 *)(rest + 4) = 0;
	return back(ctx);
}

INLINE int reset_v6(struct xdp_md *ctx, const struct tcp *was)
{
	if (resize(ctx, ETH_BYTES + IPV6_BYTES + TCP_BYTES))
		return XDP_DROP;
	struct ipv6 *ip = (void *)(long)ctx->data + ETH_BYTES;
	struct tcp *tcp = (void *)(ip + 1);
	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	ip->version_class_flow = bpf_htonl(6 << 28);
	ip->length = bpf_htons(TCP_BYTES);
	ip->next = IPPROTO_TCP;
	ip->hop_limit = ANSWER_HOPS;
#pragma unroll
	for (int i = 0; i < 4; i++)
		swap32(&ip->source[i], &ip->destination[i]);
	write_reset(tcp, was, sum_of(ip->source, 32));
	return back(ctx);
}

/* Ends a connection whose server is down, as that server's kernel would (RFC 9293, 3.5.2): a RST at the number
 * that the client expects next. A RST is not answered; nor is what acknowledges nothing. */
GLOBAL int reset(struct xdp_md *ctx, __u32 tcp_offset)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	struct tcp was;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end ||
	    bpf_xdp_load_bytes(ctx, tcp_offset, &was, sizeof(was)))
		return XDP_DROP;
	if ((was.flags & (TCP_RST | TCP_ACK)) != TCP_ACK)
		return XDP_DROP;
	return eth->type == ETH_IPV4 ? reset_v4(ctx, &was) : reset_v6(ctx, &was);
}
