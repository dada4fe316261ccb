/* In the balancer's place for the moment in which an interface changes the mode of XDP: what belongs to a service is
 * dropped, in both directions. The kernel would forward replies without their cookies, which breaks connections; what is
 * lost is sent again. On tcx, by a link that ends with the daemon. */
#include "vip.h"

/* To whatever else is on the hook; TCX_NEXT and TCX_DROP of newer headers. */
#define NEXT -1
#define DROP 2

INLINE int verdict(const __u32 *source, const __u32 *destination, __u32 tcp_at, struct __sk_buff *skb,
		   const int family)
{
	__be16 ports[2];
	__u32 zero = 0;
	struct config *c = bpf_map_lookup_elem(&config, &zero);
	if (!c || bpf_skb_load_bytes(skb, tcp_at, ports, sizeof(ports)))
		return NEXT;
	if (find_vip(c, source, ports[0], family) || find_vip(c, destination, ports[1], family))
		return DROP;
	return NEXT;
}

SEC("classifier") int guard(struct __sk_buff *skb)
{
	struct ipv4 v4;
	/* Addresses are read by eights. */
	struct ipv6 v6 __attribute__((aligned(8)));
	__be16 type;
	/* Tagged packets are the kernel's with the balancer, too. */
	if (skb->vlan_present || bpf_skb_load_bytes(skb, 12, &type, sizeof(type)))
		return NEXT;
	if (type == ETH_IPV4) {
		if (bpf_skb_load_bytes(skb, ETH_BYTES, &v4, sizeof(v4)) || v4.protocol != IPPROTO_TCP ||
		    (v4.fragment & FRAGMENT_OFFSET))
			return NEXT;
		return verdict(&v4.source, &v4.destination, ETH_BYTES + (v4.version_ihl & 15) * 4, skb, 4);
	}
	if (type != ETH_IPV6 || bpf_skb_load_bytes(skb, ETH_BYTES, &v6, sizeof(v6)) || v6.next != IPPROTO_TCP)
		return NEXT;
	return verdict(v6.source, v6.destination, ETH_BYTES + IPV6_BYTES, skb, 6);
}

char free_under[] SEC("license") = "Dual MIT/GPL";
