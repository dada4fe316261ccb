/* Both directions of one packet, and everything that is rare: IPv4 options, fragments, ICMP errors. */
#pragma once
#include "balancer.h"

INLINE struct flow flow_v4(__u32 client, __u32 vip, __u32 ports)
{
	return (struct flow){.word = {client, vip, ports, IPPROTO_TCP | 2 << 8}};
}

INLINE struct flow flow_v6(const __u32 *client, const __u32 *vip, __u32 ports)
{
	return (struct flow){.word = {client[0], client[1], client[2], client[3], vip[0], vip[1],
				      vip[2], vip[3], ports, IPPROTO_TCP | 8 << 8}};
}

/* Ports as one word, client first. */
INLINE __u32 forward_ports(const struct tcp *tcp)
{
	return *(const __u32 *)tcp;
}

INLINE __u32 reply_ports(const struct tcp *tcp)
{
	__u32 ports = *(const __u32 *)tcp;
	return ports << 16 | ports >> 16;
}

INLINE int tcp_v4(struct packet *p, const struct config *c, struct ipv4 *ip)
{
	struct tcp *tcp = p->tcp;
	struct vip *vip =
		find_vip(c, &ip->destination, vip_key(tcp->destination, IPPROTO_TCP, 4), 1);
	if (vip) {
		struct flow flow = flow_v4(ip->source, ip->destination, forward_ports(tcp));
		return to_server(p, c, vip, &flow, 4);
	}
	vip = find_vip(c, &ip->source, vip_key(tcp->source, IPPROTO_TCP, 4), 1);
	if (!vip)
		return XDP_PASS;
	__u32 id = find_source(c, vip, p->eth->from);
	if (!id) {
		count_reason(vip->number, REASON_UNKNOWN_SOURCE);
		return XDP_PASS;
	}
	if (ip->ttl <= 1) {
		count_reason(vip->number, REASON_TTL);
		return XDP_PASS;
	}
	struct flow flow = flow_v4(ip->destination, ip->source, reply_ports(tcp));
	write_cookie(p, c, vip, id, &flow, 4);
	count_reply(p, vip, id);
	if (!c->uplink.set)
		return by_route(p->ctx, vip->number);
	count_hop(ip);
	return to_uplink(p->eth, p->ctx, c);
}

INLINE int tcp_v6(struct packet *p, const struct config *c, struct ipv6 *ip)
{
	struct tcp *tcp = p->tcp;
	struct vip *vip =
		find_vip(c, ip->destination, vip_key(tcp->destination, IPPROTO_TCP, 6), 4);
	if (vip) {
		struct flow flow = flow_v6(ip->source, ip->destination, forward_ports(tcp));
		return to_server(p, c, vip, &flow, 10);
	}
	vip = find_vip(c, ip->source, vip_key(tcp->source, IPPROTO_TCP, 6), 4);
	if (!vip)
		return XDP_PASS;
	__u32 id = find_source(c, vip, p->eth->from);
	if (!id) {
		count_reason(vip->number, REASON_UNKNOWN_SOURCE);
		return XDP_PASS;
	}
	if (ip->hop_limit <= 1) {
		count_reason(vip->number, REASON_TTL);
		return XDP_PASS;
	}
	struct flow flow = flow_v6(ip->destination, ip->source, reply_ports(tcp));
	write_cookie(p, c, vip, id, &flow, 10);
	count_reply(p, vip, id);
	if (!c->uplink.set)
		return by_route(p->ctx, vip->number);
	ip->hop_limit--;
	return to_uplink(p->eth, p->ctx, c);
}

INLINE struct fragment_key fragment_v4(const struct ipv4 *ip)
{
	struct fragment_key key = {.id = ip->id, .protocol = ip->protocol};
	key.client[0] = ip->source;
	key.vip[0] = ip->destination;
	return key;
}

/* Of a fragment after the first: to where the first one went. The cache is bounded; what fell out of
 * it is dropped, for a piece that reaches another server than the rest only fills its memory. */
INLINE int later_fragment(struct xdp_md *ctx, struct fragment_key *key)
{
	__u32 *at = bpf_map_lookup_elem(&fragments, key);
	if (!at)
		return XDP_PASS; /* perhaps not for a VIP at all */
	__u32 place = *at;
	struct member *m = bpf_map_lookup_elem(&members, &place);
	if (!m || m->state == MEMBER_UNUSED)
		return XDP_PASS;
	count_stray(REASON_FRAGMENT);
	return to_member(ctx, m, place);
}

/* Keeps where a first fragment went: the server whose MAC address it has got. */
INLINE void remember(struct xdp_md *ctx, const struct config *c, struct fragment_key *key,
		     __be16 port, __u32 family)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return;
	struct vip *vip = family == 4 ? find_vip(c, key->vip, vip_key(port, IPPROTO_TCP, 4), 1)
				      : find_vip(c, key->vip, vip_key(port, IPPROTO_TCP, 6), 4);
	__u32 id = vip ? find_source(c, vip, eth->to) : 0;
	if (!id)
		return;
	__u32 at = vip->base + id;
	bpf_map_update_elem(&fragments, key, &at, BPF_ANY);
}

/* IPv4 that is not a whole TCP segment under a plain header. */
GLOBAL int slow_v4(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ipv4 *ip = data + ETH_BYTES;
	struct packet p = {.ctx = ctx, .end = end, .eth = data};
	__u32 zero = 0;
	if ((void *)(ip + 1) > end)
		return XDP_PASS;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	if (!c)
		return XDP_PASS;
	__u32 header = (ip->version_ihl & 15) * 4;
	if ((ip->version_ihl >> 4) != 4 || header < IPV4_BYTES) {
		count_stray(REASON_MALFORMED);
		return XDP_PASS;
	}
	if (ip->protocol != IPPROTO_TCP)
		return XDP_PASS;
	struct fragment_key key = fragment_v4(ip);
	if (ip->fragment & FRAGMENT_OFFSET)
		return later_fragment(ctx, &key);
	p.tcp = data + ETH_BYTES + header;
	p.tcp_offset = ETH_BYTES + header;
	if ((void *)(p.tcp + 1) > end) {
		count_stray(REASON_MALFORMED);
		return XDP_PASS;
	}
	__be16 port = p.tcp->destination;
	int first = ip->fragment & MORE_FRAGMENTS, verdict = tcp_v4(&p, c, ip);
	if (first && verdict != XDP_PASS)
		remember(ctx, c, &key, port, 4);
	return verdict;
}

struct fragment_header {
	__u8 next;
	__u8 reserved;
	__be16 offset;
	__u32 id;
};

/* IPv6 whose next header is not TCP: fragments; any other extension header is the kernel's. */
GLOBAL int slow_v6(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ipv6 *ip = data + ETH_BYTES;
	struct packet p = {.ctx = ctx, .end = end, .eth = data};
	__u32 zero = 0;
	if ((void *)(ip + 1) > end)
		return XDP_PASS;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	if (!c)
		return XDP_PASS;
	if (ip->next != NEXT_FRAGMENT)
		return XDP_PASS;
	struct fragment_header *f = (void *)(ip + 1);
	if ((void *)(f + 1) > end || f->next != IPPROTO_TCP)
		return XDP_PASS;
	struct fragment_key key = {.id = f->id, .protocol = IPPROTO_TCP};
	__builtin_memcpy(key.client, ip->source, 16);
	__builtin_memcpy(key.vip, ip->destination, 16);
	if (f->offset & bpf_htons(0xfff8))
		return later_fragment(ctx, &key);
	p.tcp = (void *)(f + 1);
	p.tcp_offset = ETH_BYTES + IPV6_BYTES + sizeof(*f);
	if ((void *)(p.tcp + 1) > end) {
		count_stray(REASON_MALFORMED);
		return XDP_PASS;
	}
	__be16 port = p.tcp->destination;
	int verdict = tcp_v6(&p, c, ip);
	if (verdict != XDP_PASS)
		remember(ctx, c, &key, port, 6);
	return verdict;
}

/* Too short for TCP: the last fragment of something, or malformed. Not a call of its own: kernels before
 * 6.13 give the deepest chain of calls 512 bytes of stack in all. */
INLINE int small(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethernet *eth = data;
	struct ipv4 *v4 = data + ETH_BYTES;
	struct ipv6 *v6 = data + ETH_BYTES;
	if ((void *)(v4 + 1) > end)
		return XDP_PASS;
	if (eth->type == bpf_htons(0x0800) && v4->protocol == IPPROTO_TCP) {
		if (v4->fragment & FRAGMENT_OFFSET)
			return slow_v4(ctx);
		count_stray(REASON_MALFORMED);
	}
	if (eth->type == bpf_htons(0x86dd) && (void *)(v6 + 1) <= end &&
	    v6->next == NEXT_FRAGMENT)
		return slow_v6(ctx);
	return XDP_PASS;
}
