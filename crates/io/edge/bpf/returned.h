/* From nodes: what a function rewrote comes back with the key it came in by, so that the way back of what the
 * function made of its flow is learned; then it goes where the kernel's routes lead. */
#pragma once
#include "routes.h"
#include "toobig.h"

struct outer {
	struct wrap wrap;
	struct teach teach;
	__u32 key[10];
} __attribute__((packed));

/* Where the routes lead, by a configured interface; else the kernel's, which may have to ask for a neighbour
 * first. `mine` is the address of the interface that it came in by. */
static __noinline int by_routes(struct xdp_md *ctx, const __u8 *mine)
{
	struct bpf_fib_lookup fib = {.ifindex = ctx->ingress_ifindex};
	long found = route(ctx, &fib);
	struct ethernet *eth = (void *)(long)ctx->data;
	if (!mine || found < 0 || (void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	if (found == BPF_FIB_LKUP_RET_SUCCESS) {
		__u32 port = port_of(fib.ifindex);
		if (port < MAX_PORTS) {
			__builtin_memcpy(eth->to, fib.dmac, 6);
			__builtin_memcpy(eth->from, fib.smac, 6);
			return bpf_redirect_map(&ports, port, XDP_DROP);
		}
	}
	count_reason(REASON_ROUTE_ASKED);
	__builtin_memcpy(eth->to, mine, 6);
	return XDP_PASS;
}

/* The flow known by one key gets a second one. 0: known already. */
INLINE int learn(void *table, const __u32 *key, const __u32 *other, struct flow *flow, __u32 turned,
		 const int words)
{
	__u32 now_s = now_seconds();
	struct flow *second = bpf_map_lookup_elem(table, other);
	__u32 *peer = (void *)(flow + 1);
	__u32 same = 1;
	if (second && second->target == flow->target) {
		__u32 *back = (void *)(second + 1);
#pragma unroll
		for (int i = 0; i < words; i++)
			same &= back[i] == key[i];
		if (same && (second->signs & SIGN_PEER)) {
			if (second->seen_s != now_s)
				second->seen_s = now_s;
			return 0;
		}
	}
	struct flow6 made = {.flow = {.target = flow->target,
				      .seen_s = now_s,
				      .born_ms = flow->born_ms,
				      .signs = SIGN_PEER | (turned ? SIGN_TURNED : 0)}};
	__u32 *peers = (void *)&made.peer;
#pragma unroll
	for (int i = 0; i < words; i++)
		peers[i] = key[i];
	if (bpf_map_update_elem(table, other, &made, BPF_ANY))
		return -1;
#pragma unroll
	for (int i = 0; i < words; i++)
		peer[i] = other[i];
	flow->signs |= SIGN_PEER;
	return 1;
}

/* `p` is the packet as it is now, `key` the one that it came to the node by. */
static __noinline void teach(struct parsed *p, const __u32 *key, __u32 server, __u32 flags, __u32 family)
{
	if (!p || !key)
		return;
	void *flow = family == 4 ? bpf_map_lookup_elem(&flows4, key) : bpf_map_lookup_elem(&flows6, key);
	struct flow *known = flow;
	__u32 at = known ? known->target : MAX_TARGETS;
	struct target *target = bpf_map_lookup_elem(&targets, &at);
	if (!known || !target || ids_of((void *)&target->wrap + OUTER_BYTES)->server != server) {
		count_reason(REASON_UNTAUGHT);
		return;
	}
	/* The second key's first packet, too, is one of the side that began. */
	__u32 turned = flags & FLAG_REPLY ? !p->turned : p->turned;
	int taught = family == 4 ? learn(&flows4, key, p->key, known, turned, 4)
				 : learn(&flows6, key, p->key, known, turned, 10);
	if (taught)
		count_reason(taught > 0 ? REASON_TAUGHT : REASON_UNTAUGHT);
}

/* VXLAN within that would be believed where it arrives: here, or at a node. */
INLINE int is_nested(struct xdp_md *ctx, const struct forwarder_config *c, __u32 at)
{
	struct address_key key = {.family = 4};
	struct {
		struct ipv4 ip;
		struct udp udp;
	} in;
	if (bpf_xdp_load_bytes(ctx, at, &in, sizeof(in)) || in.ip.version_ihl != 0x45 ||
	    in.ip.protocol != IPPROTO_UDP || in.udp.destination != VXLAN_PORT)
		return 0;
	key.address[0] = in.ip.destination;
	return in.ip.destination == c->address || bpf_map_lookup_elem(&own, &key);
}

/* VXLAN to this machine. */
static __noinline int from_node(struct xdp_md *ctx)
{
	__u32 zero = 0, room_at = 1, key[10] = {};
	struct forwarder_config *c = bpf_map_lookup_elem(&config, &zero);
	struct parsed *p = room(room_at);
	struct wrap wrap;
	struct teach teaching = {};
	if (!c || !p)
		return XDP_DROP;
	if (bpf_xdp_load_bytes(ctx, 0, &wrap, sizeof(wrap)) || wrap.vxlan.flags != VXLAN_FLAGS) {
		count_reason(REASON_MALFORMED);
		return XDP_DROP;
	}
	if (wrap.vxlan.vni != c->vni) {
		/* Of a VXLAN device of this machine's, if of anybody. */
		count_reason(REASON_FOREIGN_VNI);
		return XDP_PASS;
	}
	struct ids *ids = ids_of((void *)&wrap + OUTER_BYTES);
	__u32 server = ids->server;
	struct server *from = bpf_map_lookup_elem(&servers, &server);
	/* Clients can forge a node's address, but not the interface that they come in by. */
	if (!are_ids(ids) || !from || !from->address || from->address != wrap.ip.source ||
	    from->ifindex != ctx->ingress_ifindex) {
		count_reason(REASON_UNKNOWN_NODE);
		return XDP_DROP;
	}
	__u32 skip = WRAP_BYTES;
	__be16 type = wrap.inner.type;
	if (type == ETH_TEACH) {
		if (bpf_xdp_load_bytes(ctx, skip, &teaching, sizeof(teaching)))
			goto malformed;
		type = teaching.type;
		__u32 bytes = type == ETH_IPV4 ? sizeof(struct key4) : sizeof(struct key6);
		if (bytes == sizeof(struct key4) ? bpf_xdp_load_bytes(ctx, skip + sizeof(teaching), key, sizeof(struct key4))
						 : bpf_xdp_load_bytes(ctx, skip + sizeof(teaching), key, sizeof(struct key6)))
			goto malformed;
		skip += sizeof(teaching) + bytes;
	}
	if (type != ETH_IPV4 && type != ETH_IPV6)
		goto malformed;
	if (is_nested(ctx, c, skip)) {
		count_reason(REASON_NESTED);
		return XDP_DROP;
	}
	int kind = parse_slow_xdp(ctx, skip, type, p);
	if (kind == KIND_BAD)
		goto malformed;
	if ((ids->flags & FLAG_UPDATE) && teaching.type && (kind == KIND_FLOW || kind == KIND_ERROR)) {
		/* An error goes against the flow that it is about. */
		teach(p, key, server, ids->flags, type == ETH_IPV4 ? 4 : 6);
	}
	if (bpf_xdp_adjust_head(ctx, skip - ETH_BYTES))
		return XDP_DROP;
	struct ethernet *eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	eth->type = type;
	count_reason(REASON_RETURNED);
	return by_routes(ctx, wrap.eth.to);
malformed:
	count_reason(REASON_MALFORMED);
	return XDP_DROP;
}
