/* A node's deparser: takes the packet out of its VXLAN, and hands it to its service, which hands it to its core. */
#include "node.h"

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, MAX_SERVICES);
	__type(key, __u32);
	__type(value, __u32);
} services SEC(".maps");

SEC("xdp") int deparse(struct xdp_md *ctx)
{
	struct wrap *wrap = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct node_config *c = settings();
	if (!c || (void *)(wrap + 1) > end)
		return XDP_PASS;
	struct ethernet *eth = (void *)wrap;
	struct ipv4 *ip = (void *)(eth + 1);
	struct udp *udp = (void *)(ip + 1);
	struct vxlan *vxlan = (void *)(udp + 1);
	struct ethernet *inner = (void *)(vxlan + 1);
	if (eth->type != ETH_IPV4 || ip->version_ihl != 0x45 || ip->protocol != IPPROTO_UDP ||
	    (ip->fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET)) || udp->destination != VXLAN_PORT ||
	    ip->destination != c->address)
		return XDP_PASS;
	if (vxlan->flags != VXLAN_FLAGS)
		return node_drop(NODE_MALFORMED);
	if (vxlan->vni != c->vni) {
		node_drop(NODE_FOREIGN_VNI);
		return XDP_PASS;
	}
	if (!c->forwarder || ip->source != c->forwarder)
		return node_drop(NODE_STRANGER);
	struct ids *ids = ids_of(inner);
	__u32 service = ids->service;
	if (!are_ids(ids) || ids->server != c->server || service >= MAX_SERVICES)
		return node_drop(NODE_UNKNOWN_IDS);
	__u32 least = inner->type == ETH_IPV4 ? IPV4_BYTES : inner->type == ETH_IPV6 ? IPV6_BYTES : 0;
	if (!least || (void *)(inner + 1) + least > end)
		return node_drop(NODE_MALFORMED);
	if (bpf_xdp_adjust_head(ctx, OUTER_BYTES))
		return XDP_DROP;
	bpf_tail_call(ctx, &services, service);
	return node_drop(NODE_UNKNOWN_IDS);
}

char LICENSE[] SEC("license") = "GPL";
