/* A balancer with a connection table, for comparison: what Katran does with a packet, with the same
 * look-up of the VIP, the same choice for a SYN, the same rewrite, counters and redirect as
 * ours. A SYN is not looked up; anything else is, and is chosen for anew when it is not there. It reads
 * no TCP options and changes no checksum. */
#pragma once
#include "balancer.h"

#define TABLE_ENTRIES (2 << 20)

struct lru_key_v4 {
	__u32 client, vip, ports, protocol;
};

struct lru_key_v6 {
	__u32 client[4], vip[4], ports, protocol;
};

#define TABLE(name, key_type)                              \
	struct {                                           \
		__uint(type, BPF_MAP_TYPE_LRU_HASH);       \
		__uint(max_entries, TABLE_ENTRIES);        \
		__type(key, struct key_type);              \
		__type(value, __u64);                      \
	} name SEC(".maps")

TABLE(connections_v4, lru_key_v4);
TABLE(connections_v6, lru_key_v6);

/* `key` is `flow`, in the order of its words. */
INLINE int by_table(struct xdp_md *ctx, void *table, const void *key, const struct vip *vip,
		    const struct config *c, const struct flow *flow, const int words, __u8 flags)
{
	struct member *m;
	__u32 at;
	if (LIKELY((flags & (TCP_SYN | TCP_ACK)) != TCP_SYN)) {
		__u64 *found = bpf_map_lookup_elem(table, key);
		if (LIKELY(found)) {
			at = *found;
			m = bpf_map_lookup_elem(&members, &at);
			if (LIKELY(m && m->state == MEMBER_LIVE)) {
				if (UNLIKELY(flags & (TCP_FIN | TCP_RST)))
					count_less(at);
				return to_member(ctx, m, at);
			}
		}
		__u32 zero = 0;
		struct bench *b = bpf_map_lookup_elem(&bench, &zero);
		if (b)
			b->missed++;
	}
	__u32 id = choose(vip, flow_hash(&c->spread, flow, words));
	at = vip->base + id;
	m = id ? bpf_map_lookup_elem(&members, &at) : NULL;
	if (!m)
		return XDP_DROP;
	__u64 value = at;
	bpf_map_update_elem(table, key, &value, BPF_ANY);
	struct member_count *count = bpf_map_lookup_elem(&counts, &at);
	if (count)
		count_more(count, at);
	return to_member(ctx, m, at);
}

INLINE int lru_v4(struct xdp_md *ctx)
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
	if (!vip)
		return XDP_PASS;
	struct flow flow = {.word = {ip->source, ip->destination, *(__u32 *)tcp,
				     IPPROTO_TCP | 2 << 8}};
	struct lru_key_v4 key = {flow.word[0], flow.word[1], flow.word[2], flow.word[3]};
	return by_table(ctx, &connections_v4, &key, vip, c, &flow, 4, tcp->flags);
}

INLINE int lru_v6(struct xdp_md *ctx)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	struct ipv6 *ip = (void *)(eth + 1);
	struct tcp *tcp = (void *)(ip + 1);
	__u32 zero = 0;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	if (!c || (void *)(tcp + 1) > (void *)(long)ctx->data_end ||
	    eth->type != ETH_IPV6 || ip->next != IPPROTO_TCP)
		return XDP_PASS;
	struct vip *vip = find_vip(c, ip->destination, tcp->destination, 6);
	if (!vip)
		return XDP_PASS;
	struct flow flow = {.word = {ip->source[0], ip->source[1], ip->source[2], ip->source[3],
				     ip->destination[0], ip->destination[1], ip->destination[2],
				     ip->destination[3], *(__u32 *)tcp, IPPROTO_TCP | 8 << 8}};
	return by_table(ctx, &connections_v6, flow.word, vip, c, &flow, 10, tcp->flags);
}
