/* Balancers without a cookie, for comparison: every packet by hash of its connection, with the same
 * look-up of the VIP, list, rewrite, counters and redirect as ours. The list in use says which: a plain one
 * (what ECMP and RSS do) or Maglev's (consistent hashing).
 *
 * Beamer (Olteanu and others, NSDI 2018) adds daisy chaining: a place of the list remembers its previous
 * server, and the packet tells it to the present one, which passes on what it has no socket for. Beamer
 * tells it in an encapsulation; here it is in the source MAC address, which nobody reads on these links,
 * and the packet is passed on by way of the balancer. */
#pragma once
#include "balancer.h"

/* First two bytes of a source MAC address that carries a server's id. */
#define MARK_PREVIOUS 0xfe02
#define MARK_PASSED_ON 0xfd02

/* By place of the list; 0: it never had another server. */
MAP(previous, BPF_MAP_TYPE_ARRAY, MAX_SLOTS, __u32);

INLINE void write_mark(struct ethernet *eth, __u16 mark, __u16 id)
{
	*(__u16 *)eth->from = mark;
	*(__u16 *)(eth->from + 2) = id;
	*(__u16 *)(eth->from + 4) = 0;
}

INLINE int to_hashed(struct xdp_md *ctx, const struct config *c, const struct vip *vip,
		     const struct flow *flow, const struct tcp *tcp, const int chained)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	struct slots *s = slots_of(vip);
	__u32 id, at, list_at, *before = NULL, sequence = tcp->sequence;
	__u64 hash = flow_hash(&c->spread, flow, 4);
	__u8 flags = tcp->flags;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end || !s)
		return XDP_PASS;
	if (chained && *(__u16 *)eth->from == MARK_PASSED_ON) {
		id = *(__u16 *)(eth->from + 2);
	} else {
		list_at = place(hash, s->policy_length);
		id = listed(s->policy, list_at);
		if (chained)
			before = bpf_map_lookup_elem(&previous, &list_at);
	}
	at = vip->base + id;
	struct member *m = id ? bpf_map_lookup_elem(&members, &at) : NULL;
	if (!m)
		return XDP_DROP;
	if (UNLIKELY((flags & (TCP_SYN | TCP_ACK)) == TCP_SYN))
		count_opened(at, hash, sequence, LAST_TIMED);
	int verdict = to_member(ctx, m, at);
	eth = (void *)(long)ctx->data;
	if (before && *before && *before != id && (void *)(eth + 1) <= (void *)(long)ctx->data_end)
		write_mark(eth, MARK_PREVIOUS, *before);
	return verdict;
}

INLINE int rival_v4(struct xdp_md *ctx, const int chained)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(eth + 1);
	struct tcp *tcp = (void *)(ip + 1);
	__u32 zero = 0;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	if (!c || (void *)(tcp + 1) > (void *)(long)ctx->data_end ||
	    eth->type != ETH_IPV4 || ip->version_ihl != 0x45 || !is_whole_tcp(ip))
		return XDP_PASS;
	struct vip *vip = find_vip(c, &ip->destination, tcp->destination, 4);
	if (vip) {
		struct flow flow = {.word = {ip->source, ip->destination, *(__u32 *)tcp,
					     IPPROTO_TCP | 2 << 8}};
		return to_hashed(ctx, c, vip, &flow, tcp, chained);
	}
	vip = find_vip(c, &ip->source, tcp->source, 4);
	if (!vip || !leads(&c->ways[0], ip, (void *)(long)ctx->data_end - (void *)ip, now_ms(), 4))
		return XDP_PASS;
	return by_way(eth, ctx, &c->ways[0]);
}

/* At a server of a daisy chain: what belongs to no connection of its own goes to the previous server. */
INLINE int pass_on(struct xdp_md *ctx)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(eth + 1);
	struct tcp *tcp = (void *)(ip + 1);
	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end || eth->type != ETH_IPV4 ||
	    ip->version_ihl != 0x45 || ip->protocol != IPPROTO_TCP ||
	    *(__u16 *)eth->from != MARK_PREVIOUS ||
	    (tcp->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
		return XDP_PASS;
	struct bpf_sock_tuple tuple = {.ipv4 = {ip->source, ip->destination, tcp->source,
						tcp->destination}};
	struct bpf_sock *socket =
		bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	int own = 0;
	if (socket) {
		own = socket->state != BPF_TCP_LISTEN;
		bpf_sk_release(socket);
	}
	if (own)
		return XDP_PASS;
	*(__u16 *)eth->from = MARK_PASSED_ON;
	return XDP_TX;
}
