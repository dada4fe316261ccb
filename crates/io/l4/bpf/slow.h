/* Everything that is rare or happens once for a connection: SYNs, other layouts of options, IPv4
 * options, fragments, ICMP errors. */
#pragma once
#include "icmp.h"

/* Whether a segment's header is shorter than it can be, or reaches beyond what IP says there is, or IP
 * beyond what came; or both begins and ends a connection. `end` is by IP, from the packet's begin. The
 * fast path does not ask: its 32 bytes of TCP have come, and the server's kernel looks anyhow. */
INLINE int is_malformed(const struct packet *p, __u32 tcp_offset, __u32 end)
{
	__u32 header = (p->tcp->offset >> 4) * 4;
	__u8 flags = p->tcp->flags;
	return header < TCP_BYTES || tcp_offset + header > end || end > p->end - (void *)p->eth ||
	       ((flags & TCP_SYN) && (flags & (TCP_FIN | TCP_RST)));
}

/* A segment whose header begins `tcp_offset` bytes into the packet, its first 20 bytes known to be there, and
 * that by IP ends at `end`. */
INLINE int any_segment(struct packet *p, const struct config *c, __u32 tcp_offset, __u32 end, const int family)
{
	p->malformed = is_malformed(p, tcp_offset, end);
	p->timestamps = find_timestamps(p->ctx, p->tcp, p->end, tcp_offset, &p->walked);
	return segment(p, c, family, 0);
}

struct fragment_header {
	__u8 next;
	__u8 reserved;
	__be16 offset;
	__u32 id;
};

/* What the fragments of a packet have in common; its family, or 0. */
INLINE int fragment_of(struct xdp_md *ctx, struct fragment_key *key)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *eth = (void *)(long)ctx->data;
	struct ipv4 *v4 = (void *)(eth + 1);
	struct ipv6 *v6 = (void *)(eth + 1);
	struct fragment_header *f = (void *)(v6 + 1);
	if ((void *)(v4 + 1) > end)
		return 0;
	key->protocol = IPPROTO_TCP;
	if (eth->type == ETH_IPV4) {
		key->client[0] = v4->source;
		key->vip[0] = v4->destination;
		key->id = v4->id;
		return 4;
	}
	if ((void *)(f + 1) > end)
		return 0;
	__builtin_memcpy(key->client, v6->source, 16);
	__builtin_memcpy(key->vip, v6->destination, 16);
	key->id = f->id;
	return 6;
}

/* Of a fragment after the first: to where the first one went. The cache is bounded; what fell out of
 * it is the kernel's, for a piece that reaches another server than the rest only fills its memory. */
GLOBAL int later_fragment(struct xdp_md *ctx)
{
	struct fragment_key key = {};
	if (!fragment_of(ctx, &key))
		return XDP_PASS;
	__u32 *at = bpf_map_lookup_elem(&fragments, &key), place = at ? *at : ~0U;
	struct member *m = bpf_map_lookup_elem(&members, &place);
	if (!m || m->state == MEMBER_UNUSED) {
		count_stray(REASON_FRAGMENT_LOST); /* perhaps not for a VIP at all */
		return unserved(ctx, REASONS);
	}
	count_stray(REASON_FRAGMENT);
	return to_member(ctx, m, place);
}

/* Keeps where a first fragment went: the server whose MAC address it has got. */
GLOBAL int remember(struct xdp_md *ctx, __u32 tcp_offset)
{
	struct fragment_key key = {};
	__u32 zero = 0;
	__be16 ports[2];
	int family = fragment_of(ctx, &key);
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	if (!family || !c || bpf_xdp_load_bytes(ctx, tcp_offset, ports, sizeof(ports)))
		return 0;
	struct ethernet *eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return 0;
	struct vip *vip = family == 4 ? find_vip(c, key.vip, ports[1], 4)
				      : find_vip(c, key.vip, ports[1], 6);
	__u32 source = vip ? find_source(c, vip, eth->to) : 0;
	if (!source)
		return 0;
	__u32 at = vip->base + id_of(source);
	bpf_map_update_elem(&fragments, &key, &at, BPF_ANY);
	return 0;
}

/* IPv4 that does not take the fast path. */
GLOBAL int slow_v4(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ipv4 *ip = data + ETH_BYTES;
	struct packet p = {.ctx = ctx, .end = end, .eth = data, .ip = ip};
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
		return unserved(ctx, REASON_NO_SERVICE);
	if (ip->fragment & FRAGMENT_OFFSET)
		return later_fragment(ctx);
	p.tcp = data + ETH_BYTES + header;
	if ((void *)(p.tcp + 1) > end) {
		count_stray(REASON_MALFORMED);
		return unserved(ctx, REASONS);
	}
	int first = ip->fragment & MORE_FRAGMENTS;
	int verdict = any_segment(&p, c, ETH_BYTES + header, ETH_BYTES + bpf_ntohs(ip->length), 4);
	if (first && verdict != XDP_PASS)
		remember(ctx, ETH_BYTES + header);
	return verdict;
}

/* IPv6 that does not take the fast path: extension headers other than a fragment's are the kernel's. */
GLOBAL int slow_v6(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ipv6 *ip = data + ETH_BYTES;
	struct packet p = {.ctx = ctx, .end = end, .eth = data, .ip = ip};
	__u32 zero = 0, header = IPV6_BYTES;
	if ((void *)(ip + 1) > end)
		return XDP_PASS;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	if (!c)
		return XDP_PASS;
	int first = ip->next == NEXT_FRAGMENT;
	if (first) {
		struct fragment_header *f = (void *)(ip + 1);
		if ((void *)(f + 1) > end || f->next != IPPROTO_TCP)
			return unserved(ctx, REASON_NO_SERVICE);
		if (f->offset & bpf_htons(0xfff8))
			return later_fragment(ctx);
		header += sizeof(*f);
	} else if (ip->next != IPPROTO_TCP) {
		return unserved(ctx, REASON_NO_SERVICE);
	}
	p.tcp = data + ETH_BYTES + header;
	if ((void *)(p.tcp + 1) > end) {
		count_stray(REASON_MALFORMED);
		return unserved(ctx, REASONS);
	}
	__u32 ip_end = ETH_BYTES + IPV6_BYTES + bpf_ntohs(ip->length);
	int verdict = any_segment(&p, c, ETH_BYTES + header, ip_end, 6);
	if (first && verdict != XDP_PASS)
		remember(ctx, ETH_BYTES + header);
	return verdict;
}

/* What is too short for the fast path, or neither IPv4 nor IPv6. */
INLINE int other(struct xdp_md *ctx, __be16 type)
{
	if (type == ETH_IPV4)
		return slow_v4(ctx);
	if (type == ETH_IPV6)
		return slow_v6(ctx);
	if (type == bpf_htons(0x8100) || type == bpf_htons(0x88a8))
		count_stray(REASON_VLAN);
	return XDP_PASS;
}
