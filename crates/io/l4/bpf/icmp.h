/* ICMP errors about replies: a router on the way to the client answers to the VIP, and the server that
 * sent the packet must hear of it, or path MTU discovery fails. The error quotes the packet; where the
 * quote reaches to the timestamp option, the cookie in it names the server. */
#pragma once
#include "answer.h"

/* The upper half of the timestamp in the TCP header quoted at `tcp_at`; -1: the quote does not reach it. Of
 * options that begin NOP NOP TS, as all data segments have them, no more need be quoted; others are walked
 * where all of them are. */
GLOBAL int quoted_upper(struct xdp_md *ctx, __u32 tcp_at)
{
	__u8 words = 0;
	__be16 upper;
	__u32 first = 0, at = TCP_BYTES + 2;
	if (bpf_xdp_load_bytes(ctx, tcp_at + offsetof(struct tcp, offset), &words, 1) ||
	    bpf_xdp_load_bytes(ctx, tcp_at + TCP_BYTES, &first, sizeof(first)))
		return -1;
	if (first != NOP_NOP_TS)
		at = other_options(ctx, tcp_at, (words >> 4) * 4);
	if (!at || bpf_xdp_load_bytes(ctx, tcp_at + at + offsetof(struct timestamps, value_upper), &upper,
				      sizeof(upper)))
		return -1;
	return bpf_ntohs(upper);
}

/* The quoted TCP header begins at `tcp_at`; `ports` are the client's and the VIP's. */
INLINE int quoted_server(struct xdp_md *ctx, const struct config *c, struct vip *vip,
			 const __u32 *client, __u32 ports, const int family, __u32 tcp_at)
{
	int upper = quoted_upper(ctx, tcp_at);
	if (upper >= 0) {
		__u32 epoch = epoch_of(upper);
		struct permutation *perm = bpf_map_lookup_elem(&permutations, &epoch);
		if (perm && (c->salts & (1 << epoch))) {
			__u64 hash = hash_by(c, vip, epoch & 1, client, ports, family);
			__u32 id = reveal(perm, hash, upper);
			__u32 at = vip->base + id;
			struct member *m =
				id < stride ? bpf_map_lookup_elem(&members, &at) : NULL;
			if (m && m->state == MEMBER_LIVE) {
				count_reason(vip->number, REASON_ICMP);
				return to_member(ctx, m, at);
			}
		}
	}
	return spread_out(ctx, vip, hash_by(c, vip, BY_SPREAD, client, ports, family),
			  REASON_ICMP_SPREAD, 0);
}

struct quote_v4 {
	__u8 type, code;
	__sum16 checksum;
	__u32 rest;
	struct ipv4 ip;
};

GLOBAL int icmp_v4(struct xdp_md *ctx)
{
	struct quote_v4 quote = {};
	struct ipv4 outer;
	__u32 ports = 0, at = ETH_BYTES, zero = 0;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	if (!c || bpf_xdp_load_bytes(ctx, at, &outer, sizeof(outer)))
		return XDP_PASS;
	at += (outer.version_ihl & 15) * 4;
	if (bpf_xdp_load_bytes(ctx, at, &quote, sizeof(quote)))
		return unserved(ctx, REASON_NO_SERVICE);
	/* Destination unreachable, time exceeded, parameter problem. */
	if (quote.type != 3 && quote.type != 11 && quote.type != 12)
		return unserved(ctx, REASON_NO_SERVICE);
	/* The error goes to the sender of what is quoted; and it begins here. */
	if (outer.destination != quote.ip.source || (outer.fragment & FRAGMENT_OFFSET))
		return unserved(ctx, REASON_NO_SERVICE);
	__u32 quoted_header = (quote.ip.version_ihl & 15) * 4;
	if (quote.ip.protocol != IPPROTO_TCP || quoted_header < IPV4_BYTES ||
	    (quote.ip.fragment & FRAGMENT_OFFSET))
		return unserved(ctx, REASON_NO_SERVICE);
	at += 8 + quoted_header;
	if (bpf_xdp_load_bytes(ctx, at, &ports, sizeof(ports)))
		return unserved(ctx, REASON_NO_SERVICE);
	struct vip *vip = find_vip(c, &quote.ip.source, ports, 4);
	if (!vip)
		return unserved(ctx, REASON_NO_SERVICE);
	return quoted_server(ctx, c, vip, &quote.ip.destination, turned(ports), 4, at);
}

struct quote_v6 {
	__u8 type, code;
	__sum16 checksum;
	__u32 rest;
	struct ipv6 ip;
	__u32 ports;
};

GLOBAL int icmp_v6(struct xdp_md *ctx)
{
	struct quote_v6 quote = {};
	__u32 zero = 0;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	if (!c)
		return XDP_PASS;
	if (bpf_xdp_load_bytes(ctx, ETH_BYTES + IPV6_BYTES, &quote, sizeof(quote)))
		return unserved(ctx, REASON_NO_SERVICE);
	/* Errors are below 128; neighbour discovery and echoes are above. */
	if (quote.type == 0 || quote.type > 4 || quote.ip.next != IPPROTO_TCP)
		return unserved(ctx, REASON_NO_SERVICE);
	__u64 told[2];
	if (bpf_xdp_load_bytes(ctx, ETH_BYTES + offsetof(struct ipv6, destination), told, sizeof(told)) ||
	    told[0] != load64(quote.ip.source) || told[1] != load64(quote.ip.source + 2))
		return unserved(ctx, REASON_NO_SERVICE);
	__u32 ports = quote.ports;
	struct vip *vip = find_vip(c, quote.ip.source, ports, 6);
	if (!vip)
		return unserved(ctx, REASON_NO_SERVICE);
	return quoted_server(ctx, c, vip, quote.ip.destination, turned(ports), 6,
			     ETH_BYTES + IPV6_BYTES + offsetof(struct quote_v6, ports));
}
